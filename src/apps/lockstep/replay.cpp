#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/proof/proof.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

struct ReplayArguments {
  RunConfig config;
  std::vector<std::string> run;
  std::int64_t from = 0, steps = 0;
  bool anyway = false;
  fs::path dir() const { return run.front(); }
};

Options make_options(ReplayArguments& a) {
  Options options(
      "lockstep replay", "Repeat steps of a reproducible run and compare them with its chain of hashes.",
      "The run must have been trained with --reproducible, which writes the chain RUN/proof.chain. The command starts "
      "from the checkpoint of a step, computes --steps after it (default: up to the last link) on any number of ranks, "
      "and compares weights, optimizer states and losses with each link of the chain. It writes no files. Exit code 0: "
      "all links agree; 1: the output names the first link that differs, and the parts that differ.");
  options.positional("RUN", &a.run, "run directory", 1, 1);
  options.add("from", &a.from, 0, non_negative,
              "step of the checkpoint to start from; 0: the initial weights, if there is no checkpoint of step 0");
  options.add(
      "anyway", &a.anyway, false,
      "compare even if the build, the instruction set, the device or the precision differs from that of the chain");
  options.list_only({"train.steps", "data.path", "data.stage", "data.layout", "data.memory", "run.device",
                     "run.threads", "run.isa", "run.precision", "dist.timeout", "dist.check_collectives",
                     "dist.parallel", "dist.gpu_ids"});
  options.example("lockstep replay runs/a --from 3000 --steps 2000", "recompute steps 3001 to 5000 and compare");
  options.example("mpirun -n 4 lockstep replay runs/a", "recompute the whole run on four ranks");
  return options;
}

/// The checkpoint of a step, or "" for step 0 if it has none. errors  Error (usage): lists the steps that have one
fs::path checkpoint_of(const fs::path& run, std::int64_t step) {
  std::string list;
  for (const fs::path& file : CheckpointFolder(run).candidates()) {
    if (!checkpoint_defect(file).empty()) continue;
    const std::int64_t found = CheckpointReader(file).state().step;
    if (found == step) return file;
    list += join(list.empty() ? "" : ", ", found);
  }
  require_usage(step == 0, "option from = ", step, ": ", run,
                " has no whole checkpoint of this step; it has those of: ", list.empty() ? "none" : list,
                "; from = 0 starts at the beginning of the run");
  return {};
}

/// Sets the options that determine the bits of these steps to the values of the chain.
void apply_chain(ReplayArguments& a, const Options& options, const ProofChain& chain) {
  RunConfig& c = a.config;
  const std::string& source = chain.source();
  require_data(!chain.entries().empty(), "proof chain '", source, "': it is empty");
  const std::int64_t last = chain.last_link(std::numeric_limits<std::int64_t>::max());
  const auto asked = [&](const char* key) { return options.origin(key) == "command line"; };
  a.steps = asked("train.steps") && c.train.steps > 0 ? c.train.steps : last - a.from;
  c.train.steps = 0;
  require_usage(a.steps > 0 && a.steps <= last - a.from, "replaying ", a.steps, " steps from step ", a.from,
                ": the last link of '", source, "' is of step ", last, "; choose earlier steps");
  const ProofRun& run = chain.run(a.from);
  require_data(a.from >= run.step, "proof chain '", source, "': it begins at step ", run.step, ", after step ", a.from);
  const ProofRun& end = chain.run(a.from + a.steps - 1);
  const auto differs = [](const std::string& what, const auto& now, const auto& then) {
    return now == then ? "" : join("\n  ", what, ": ", now, " now, ", then, " in the chain");
  };
  std::string list = differs("build", proof_build(), run.build) + differs("device", c.run.device, run.device) +
                     differs("precision", c.precision(), run.precision);
  const std::vector<ops::Isa>& sets = ops::available_isas();
  const auto same = std::ranges::find_if(sets, [&](ops::Isa isa) { return ops::record_name(isa) == run.isa; });
  if (same == sets.end()) {
    list += join("\n  instruction set: this processor lacks that of the chain, ", run.isa);
  } else if (asked("run.isa")) {
    list += differs("instruction set", c.run.isa, std::string(name(*same)));
  } else {
    c.run.isa = name(*same);
  }
  require_usage(list.empty() || a.anyway, "proof chain '", source, "' was recorded under other conditions:", list,
                "\nreplay under the same conditions, or compare nevertheless with --anyway");
  require_usage(
      end.step == run.step, "replaying steps ", a.from, " to ", a.from + a.steps, ": the run continued at step ",
      end.step, " under other conditions (build ", end.build, ", ", end.isa, ", ", end.device, ", ", end.precision,
      "), or its chain has a gap there; replay each part separately, this one with --steps ", end.step - a.from);
  for (std::int64_t step = a.from / run.every * run.every; step < a.from + a.steps; step += run.every)
    require_data(!chain.is_cut_before(step + 1), "proof chain '", source, "': the link of step ", step, " is missing");
  if (!asked("data.stage")) c.data.stage.clear();  // it belongs to the allocation of the training
  c.first_devices = run.devices;
  if (run.total > 0) c.schedule.total = run.total;
  // Evaluations change no weights, except where the learning rate follows them.
  if (c.schedule.name == "plateau") return;
  c.eval.every = std::numeric_limits<std::int64_t>::max();
  c.eval.every_steps = 0;
}

/// The replay on one rank.
int replay(World& world, const ReplayArguments& a, const ProofChain& chain, const fs::path& checkpoint) {
  const auto data_memory = make_node_data_memory(world, a.config.row_options());
  const auto model = load_task(world, a.config, *data_memory, nullptr, weights_of(checkpoint));
  Trainer trainer(world, a.config, *model);
  if (!checkpoint.empty()) {
    trainer.resume(checkpoint);
  } else if (!a.config.run.init.empty()) {
    trainer.start_from(a.config.run.init);
  }
  world.together("comparing the run with its chain", [&] {
    const ProofRun& run = chain.run(a.from);
    const std::string data = hex64(model->data_hash());
    require_data(run.kind == model->kind() && run.seed == a.config.run.seed && run.data_hash == data, "proof chain '",
                 chain.source(), "' is of another run: ", run.kind, ", seed ", run.seed, ", data ", run.data_hash,
                 "; the run directory has ", model->kind(), ", seed ", a.config.run.seed, ", data ", data);
  });
  const Replayed found = trainer.replay(chain, a.from + a.steps);
  if (world.rank() == 0) {
    const std::string agreed = found.links == 0 ? "no link agrees"
                                                : join(found.links, found.links == 1 ? " link agrees" : " links agree",
                                                       ", the last of step ", found.agreed);
    std::cout << a.run.front() << ": steps " << found.from << " to " << found.until << " computed on " << world.size()
              << (world.size() == 1 ? " rank: " : " ranks: ") << agreed << "\n";
    if (!found.difference.empty() && found.until == found.from)
      std::cout << "step " << found.until << ": the checkpoint differs from the chain in: " << found.difference << "\n";
    else if (!found.difference.empty())
      std::cout << "step " << found.until << ": differs from the chain in: " << found.difference
                << "; the first wrong step is one of " << std::max(found.agreed, found.from) + 1 << " to "
                << found.until << "\n";
  }
  if (!found.difference.empty()) return static_cast<int>(Fault::internal);
  return found.until < a.from + a.steps ? kExitInterrupted : kExitDone;
}

}  // namespace

int run_replay(World& world, const Args& args) {
  ReplayArguments a;
  Options options = make_options(a);
  Args all = args;
  if (!args.empty() && !args.front().starts_with("-")) {
    const fs::path config = fs::path(args.front()) / "config.ini";
    world.together("opening the run directory", [&] {
      if (world.rank() == 0)
        require_usage(fs::exists(config), "replaying '", args.front(),
                      "': it is not a run directory, it has no config.ini");
    });
    all.insert(all.begin(), {"--config", config.string()});
  }
  if (!parse(world, options, all, a.config)) return 0;
  RunConfig& c = a.config;
  world.configure({.timeout_s = c.dist.timeout, .check_collectives = c.dist.check_collectives});
  std::string text;
  fs::path checkpoint;
  world.together("reading the proof chain", [&] {
    check(c);
    if (world.rank() != 0) return;
    text = ProofChain::read(a.dir() / kProofFile).text();
    checkpoint = checkpoint_of(a.dir(), a.from);
    if (const CheckpointFolder first(a.dir() / kPretrainingFolder); checkpoint.empty() && c.task->pretraining())
      c.pretrained = fs::absolute(fs::exists(first.best_file()) ? first.best_file() : first.final_file()).string();
  });
  Communicator& comm = world.communicator();
  const ProofChain chain(comm.broadcast_text(std::move(text), 0, "proof chain"), (a.dir() / kProofFile).string());
  checkpoint = comm.broadcast_text(checkpoint.string(), 0, "checkpoint's name");
  c.pretrained = comm.broadcast_text(c.pretrained, 0, "initial weights");
  world.together("preparing the replay", [&] { apply_chain(a, options, chain); });
  return on_each_gpu(world, c, [&](World& rank) { return replay(rank, a, chain, checkpoint); });
}

}  // namespace lockstep::apps
