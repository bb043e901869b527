#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <numeric>
#include <string_view>

#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/nested_runs.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/report/append_file.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/step/scaling.hpp"
#include "lockstep/train/rank_memory.hpp"
#include "lockstep/train/sharded_program.hpp"

namespace lockstep::apps {

namespace {

struct PlanArguments {
  RunConfig config;
  std::int64_t ranks = 1, ranks_per_node = 0, cores = 0;
  double rate = 0, memory_gib = 0;
};

/// Fills the cores and the memory of a node that are not given with those of Slurm's default partition; without Slurm
/// they stay those of this machine.
void ask_slurm(PlanArguments& a) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(
      ::popen("sinfo --noheader --format='%P %c %m' 2>/dev/null", "r"), ::pclose);
  char partition[256], processors[64], mebibytes[64];
  while (out && std::fscanf(out.get(), "%255s %63s %63s", partition, processors, mebibytes) == 3) {
    if (!std::string_view(partition).ends_with('*')) continue;
    const std::int64_t cores = std::atoll(processors);  // "40+" if some nodes have more
    const double memory_gib = std::atof(mebibytes) / 1024;
    std::cout << "a node of partition " << partition << " (sinfo): " << cores << " cores, "
              << human_bytes(std::ldexp(memory_gib, 30)) << "\n";
    if (a.cores == 0) a.cores = cores;
    if (a.memory_gib == 0 && a.config.run.device == "cpu") a.memory_gib = memory_gib;
    return;
  }
}

/// The last training record of the run directory with a rate, or one without.
StepRecord measured_step(const std::string& run_dir) {
  StepRecord last;
  read_records(read_if_there(std::filesystem::path(run_dir) / kMetricsFile), [&](const RunRecord& record) {
    const auto* step = std::get_if<StepRecord>(&record);
    if (step != nullptr && step->samples_per_s > 0) last = *step;
    return true;
  });
  return last;
}

/// Where the rate is from: "measured in runs/a on 4 ranks", and a warning if the plan has another number.
std::string measured_on(const std::string& run_dir, std::int64_t measured, std::int64_t planned) {
  const auto ranks = [](std::int64_t n) { return join(n, n == 1 ? " rank" : " ranks"); };
  if (measured == 0) return join("measured in ", run_dir, ", on an unknown number of ranks");
  return join("measured in ", run_dir, " on ", ranks(measured),
              measured == planned ? "" : join(", the rate of ", ranks(planned), " will differ"));
}

/// Steps and seconds of a run. per_step: samples of a step; given_rate: samples per second, 0: as measured
void print_time(const RunConfig& c, double given_rate, const TaskNeeds& needs, std::int64_t per_step,
                std::int64_t ranks) {
  const std::int64_t per_epoch =
      needs.steps_per_epoch > 0 ? needs.steps_per_epoch : (needs.train_samples + per_step - 1) / per_step;
  const double by_epochs = static_cast<double>(per_epoch) * static_cast<double>(c.train.epochs);
  const double steps = c.train.steps > 0 ? std::min(static_cast<double>(c.train.steps), by_epochs) : by_epochs;
  std::cout << "  " << per_epoch << " steps per epoch, "
            << (steps < by_epochs ? join(c.train.steps, " steps (train.steps)") : join(c.train.epochs, " epochs"))
            << "\n";
  const StepRecord last = given_rate > 0 ? StepRecord{} : measured_step(c.run.dir);
  const double rate = given_rate > 0 ? given_rate : last.samples_per_s;
  if (rate > 0) {
    const double epoch = static_cast<double>(needs.train_samples) / rate;
    std::cout << "  at " << join(rate) << " samples/s ("
              << (given_rate > 0 ? "--rate" : measured_on(c.run.dir, last.ranks, ranks))
              << "): " << human_seconds(epoch) << " per epoch, "
              << human_seconds(epoch * steps / static_cast<double>(per_epoch)) << " in all, without evaluations\n";
  } else {
    std::cout << "  no measured rate: set --rate (lockstep bench measures it), or --run-dir of an earlier run\n";
  }
}

/// How many of the planned nodes pay, or ranks of one node, by the last record of the run directory. per_step: samples
void print_paying(const PlanArguments& a, std::int64_t per_step) {
  const StepRecord last = measured_step(a.config.run.dir);
  const auto phase = [&](std::string_view name) {
    const auto found = std::ranges::find(last.phases, name, [](const auto& p) { return std::string_view(p.first); });
    return found == last.phases.end()
               ? 0
               : found->second * static_cast<double>(per_step) / (last.samples_per_s * last.seconds);
  };
  const bool nodes = a.ranks_per_node > 0 && last.ranks > a.ranks_per_node;
  const auto members = [&](std::int64_t ranks) {
    return nodes ? (ranks + a.ranks_per_node - 1) / a.ranks_per_node : ranks;
  };
  if (last.ranks < 2 || phase("forward_backward") == 0) return;
  LinkCost cost;
  StepWork work =
      work_of_wait(phase("forward_backward"), phase("reduce"), phase("update"), last.ranks, members(last.ranks), cost);
  work.fixed_global_batch = a.config.batch.per_rank == 0;
  std::cout << "  " << paying_text(work, cost, nodes ? "node" : "rank", members(a.ranks)) << "\n";
}

/// needs_of() with the batch of the configuration. errors  Error (usage): a configuration that training also refuses
TaskNeeds checked_needs(const RunConfig& c, int ranks) {
  c.task->require_supported(c, ranks);
  const TaskNeeds needs = needs_of(c, ranks, c.global_batch(ranks));
  if (needs.steps_per_epoch == 0) checked_batch(c, ranks, needs.train_samples);  // the steps are of ShardedProgram
  return needs;
}

std::int64_t ranks_per_node(const PlanArguments& a) { return a.ranks_per_node > 0 ? a.ranks_per_node : a.ranks; }

/// Threads of a rank.
std::int64_t threads_of(const PlanArguments& a) {
  const RunConfig::Run& run = a.config.run;
  if (run.device == "cuda") return 1;  // a rank computes its batch at once and sums the gradient in place
  return std::max<std::int64_t>(
      1, run.threads > 0 ? run.threads : (a.cores > 0 ? a.cores : ::sysconf(_SC_NPROCESSORS_ONLN)) / ranks_per_node(a));
}

PlannedRanks planned_ranks(const PlanArguments& a) { return {.ranks = a.ranks, .threads = threads_of(a)}; }

/// The largest batch over all ranks, of at most `samples`, with which a rank needs no more than `bytes`; 0: none.
std::int64_t largest_batch(const PlanArguments& a, std::int64_t samples, double bytes) {
  const int ranks = static_cast<int>(a.ranks);
  const std::int64_t unit = a.config.over_devices(1, ranks);
  const auto fits = [&](std::int64_t batch) {
    try {
      return rank_memory(a.config, planned_ranks(a), needs_of(a.config, ranks, batch), batch).sum() <= bytes;
    } catch (const Error&) {
      return false;  // no epoch fills such a batch
    }
  };
  std::int64_t fitting = 0, too_large = samples / unit + 1;
  while (fitting + 1 < too_large) {
    const std::int64_t trial = std::midpoint(fitting, too_large);
    (fits(trial * unit) ? fitting : too_large) = trial;
  }
  return fitting * unit;
}

constexpr const char* kWhyCopied = "in each rank, for the loss of another (checkpoint.partner_steps)";

void print(const PlanArguments& a, const TaskNeeds& needs) {
  const RunConfig& c = a.config;
  const std::int64_t per_node = ranks_per_node(a), threads = threads_of(a);
  const bool on_gpu = c.run.device == "cuda";
  const std::int64_t batch = c.global_batch(static_cast<int>(a.ranks)), per_step = batch * c.batch.accumulate;
  const RankMemory m = rank_memory(c, planned_ranks(a), needs, batch);
  const MemoryLimit limit = memory_limit();
  const double host_memory = a.memory_gib > 0 && !on_gpu ? std::ldexp(a.memory_gib, 30) : limit.bytes;
  const RowOptions options = c.row_options();
  const double divisible = needs.row_bytes * static_cast<double>(needs.data_rows),
               for_rows = options.memory_bytes > 0 ? options.memory_bytes : host_memory / 2;
  const auto nodes = static_cast<double>((a.ranks + per_node - 1) / per_node);
  const RowPlace place = needs.row_bytes == 0
                             ? RowPlace::replicated
                             : place_of_rows(options.layout, divisible, static_cast<std::int64_t>(nodes), for_rows);
  const double held = place == RowPlace::replicated ? needs.data_bytes
                      : place == RowPlace::divided  ? needs.data_bytes - divisible + divisible / nodes
                                                    : needs.data_bytes - divisible + for_rows;
  const double node = m.sum() * static_cast<double>(per_node) + held;

  const auto row = [](const std::string& what, double bytes, const std::string& note = "") {
    std::cout << "  " << std::left << std::setw(24) << what << std::right << std::setw(12) << human_bytes(bytes)
              << (note.empty() ? "" : "  ") << note << "\n";
  };
  std::cout << a.ranks << " ranks, " << per_node << " per node, "
            << (on_gpu ? std::string("a GPU") : join(threads, " threads")) << " each; " << needs.parameters
            << " parameters; " << batch << " samples per batch\n";
  const bool by_shards = !on_gpu && !needs.gradient_buffers && needs.owned_parameters == 0;  // as ShardedStep
  if (const std::string idle =
          idle_threads(c.step_options(static_cast<int>(threads), c.shards(batch, needs.least_tree_shard)), a.ranks);
      by_shards && !idle.empty())
    std::cout << "warning: " << idle << "\n";
  std::cout << "\nMemory of a rank" << (on_gpu ? "'s GPU" : "") << "\n";
  row("weights", m.weights);
  if (m.rounded > 0) row("rounded weights", m.rounded, c.precision() + ", as operations read them");
  row("gradient buffers", m.gradients,
      on_gpu || m.gradient_buffers == 1
          ? ""
          : join(m.gradient_buffers, ": one per ",
                 !c.run.reproducible ? "thread"
                 : needs.row_sparse  ? "shard of this rank, per thread"
                                     : "partial sum of a thread's shards",
                 ", and the sum", needs.table_rows > 0 ? "; of the table, the rows that each touches" : ""));
  if (needs.owned_parameters > 0) row("gradient of own rows", m.own_gradient);
  row("optimizer state", m.state, c.optim.name);
  if (m.average > 0) row("averaged weights", m.average);
  if (m.carried > 0) row("carried states", m.carried, join("of all ", per_step, " samples of a step"));
  row("activations", m.activations,
      join("about ", human_bytes(needs.activation_bytes_per_sample), " per sample that ",
           on_gpu ? "the GPU" : "a thread", " computes at a time"));
  if (m.arrays > 0) row("arrays of the graph", m.arrays);
  if (m.products > 0) row("scratch of products", m.products);
  if (m.data > 0) row("data set", m.data, "a copy in the GPU's memory, if it fits");
  if (m.scratch > 0) row("scratch of the loss", m.scratch);
  if (m.evaluation > 0) row("evaluation", m.evaluation, "scores of all candidates, of each thread");
  if (m.whole_copy > 0 && !on_gpu) row("copy of the state", m.whole_copy, kWhyCopied);
  row("sum", m.sum());
  std::cout << "\nMemory of a node\n";
  row("data set", held,
      place == RowPlace::replicated ? "one copy, shared by the ranks"
      : place == RowPlace::divided  ? join("rows divided over ", nodes, " nodes (data.layout)")
                                    : join("of ", human_bytes(divisible), " of rows, which stay in the file"));
  const bool sharded = c.checkpoint.layout == "sharded" && a.ranks > 1;
  const bool copied = c.checkpoint.copy || on_gpu;  // data in a GPU's memory are written from a copy
  const double copy = copied ? m.weights + m.all_state + m.average : 0;
  const double best = copied ? 2 * (m.weights + m.average) : 0;
  // Rank 0 gathers what it does not own before it copies or writes.
  const double gathered = needs.owned_parameters > 0 ? m.all_state - m.state : 0;
  const double share = sharded ? copy / static_cast<double>(a.ranks) * static_cast<double>(per_node) : copy;
  const double copies = share + best + gathered * static_cast<double>(per_node);
  row("checkpoint's copy", share, sharded ? "a share in each rank" : "in rank 0, written while the training goes on");
  row("best weights", best, "in rank 0: the last ones, and those that are being written");
  if (gathered > 0) row("others' state", gathered, "in each rank while a checkpoint is copied or written");
  if (m.whole_copy > 0 && on_gpu) row("copy of the state", m.whole_copy * static_cast<double>(per_node), kWhyCopied);
  if (!on_gpu) row("sum", node + copies, "of rank 0's node");
  const bool given = a.memory_gib > 0;
  const double memory = given    ? std::ldexp(a.memory_gib, 30)
                        : on_gpu ? static_cast<double>(gpu_count() > 0 ? gpu_memory(0).total : 0)
                                 : limit.bytes;
  const double of_ranks = on_gpu ? memory : (memory - held - copies) / static_cast<double>(per_node);
  const std::int64_t largest = memory == 0 ? 0 : largest_batch(a, needs.train_samples, of_ranks);
  row(given    ? "--node-memory"
      : on_gpu ? "this GPU has"
               : limit.source,
      memory,
      memory == 0    ? "no GPU here"
      : largest == 0 ? "too little for this configuration"
                     : join("largest batch: ", largest,
                            largest == needs.train_samples ? " samples, the whole training split" : " samples"));
  std::cout << "\nOn disk\n";
  row("a checkpoint", m.weights + m.all_state + m.average + m.carried + 100 * 1024,
      join("about; ", c.checkpoint.keep, " are kept, in addition to best and final"));
  if (!c.data.stage.empty())
    row("staged data set", static_cast<double>(std::filesystem::file_size(c.data.path)),
        join("in ", c.data.stage, " of each node, while it is loaded"));

  std::cout << "\nTime\n";
  if (place != RowPlace::replicated && nodes > 1) {
    // A node computes 1 / nodes of a step, of which it holds 1 / nodes.
    const double sent = static_cast<double>(per_step) * needs.row_bytes / nodes * (1 - 1 / nodes);
    std::cout << "  a step brings each node " << human_bytes(sent) << " of rows: " << human_seconds(8 * sent / 1e9)
              << " of a link of 1 Gbit/s, " << human_seconds(8 * sent / 1e10) << " of 10 Gbit/s\n";
  }
  print_time(c, a.rate, needs, per_step, a.ranks);
  if (by_shards) print_paying(a, per_step);
}

}  // namespace

int run_plan(World& world, const Args& args) {
  PlanArguments a;
  Options options(
      "lockstep plan",
      "Estimate the needs of a run before it starts: memory by category, largest batch, checkpoint size, time.",
      "The command reads only the header and the split of the data set. It neither allocates the model nor "
      "trains.");
  options.add("ranks", &a.ranks, 1, between(1, 1e9), "ranks of the planned run");
  options.add("ranks-per-node", &a.ranks_per_node, 0, between(0, 1e9), "ranks per node; 0: all on one node");
  options.add("rate", &a.rate, 0, non_negative,
              "samples per second of all ranks; 0: read from metrics.jsonl of run.dir");
  options.add("node-memory,memory", &a.memory_gib, 0, non_negative,
              "GiB of a node, or with run.device = cuda of a GPU; 0: as Slurm's sinfo says, else of this machine");
  options.add("cores", &a.cores, 0, between(0, 1e6), "cores of a node; 0: as Slurm's sinfo says, else of this machine");
  options.example("lockstep plan --config configs/emulator-icecolumn.ini --ranks 64 --ranks-per-node 8",
                  "a run on eight nodes");
  if (!parse(world, options, args, a.config)) return 0;
  world.together("planning", [&] {
    check(a.config);
    if (world.rank() != 0) return;
    const int ranks = static_cast<int>(a.ranks);
    if (a.cores == 0 || a.memory_gib == 0) ask_slurm(a);
    print(a, checked_needs(a.config, ranks));
    if (const std::int64_t members = member_count(options); members > 1)
      std::cout << "\nEnsemble\n  " << members << " such runs, one after the other: " << members
                << " times the time, and " << members << " times the checkpoints on disk\n";
    if (const auto first = make_pretraining(options, a.config)) {
      const RunConfig& c = first->config;
      std::cout << "\nPretraining before it, as " << c.model_kind << "\n";
      print_time(c, 0, checked_needs(c, ranks), c.global_batch(ranks) * c.batch.accumulate, ranks);
    }
  });
  return 0;
}

}  // namespace lockstep::apps
