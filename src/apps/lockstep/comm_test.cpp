#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/bench_scaling.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/measure_step.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/doctor/communication_check.hpp"
#include "lockstep/doctor/doctor.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/step/scaling.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

/// The cost of communication in the training of a model on this allocation: a measured step, and predictions for other
/// bucket sizes.
struct CommShare {
  struct Choice {
    std::int64_t bucket_bytes = 0;
    std::size_t messages = 0;
    StepPrediction step;
  };
  std::string kind;
  StepMeasurement measured;
  LinkCost cost;
  /// The configured bucket size first. Empty on one rank, and if the gradient does not travel in buckets.
  std::vector<Choice> choices;
  /// Index of the choice with the shortest step; 0 if it saves less than 1 % of the configured step.
  std::size_t best = 0;
  std::string paying;  ///< paying_text() with the best choice
};

constexpr double kTie = 0.01;  // smallest gain that justifies another setting, as a fraction of a step

/// The configured size, the whole gradient, and powers of two below it.
std::vector<std::int64_t> bucket_sizes(std::int64_t configured, double gradient_bytes) {
  std::vector<std::int64_t> sizes = {configured, static_cast<std::int64_t>(gradient_bytes)};
  for (std::int64_t size = std::int64_t{16} << 20; size >= std::int64_t{32} << 10; size /= 2)
    if (static_cast<double>(size) < gradient_bytes) sizes.push_back(size);
  return sizes;
}

/// Runs steps for about `seconds` and fits the cost of a message to the asynchronous all-reduces of the report.
/// Collective.
CommShare comm_share(World& world, const RunConfig& config, Task& model, const CommReport& report, int threads,
                     double seconds) {
  CommShare share;
  share.kind = config.model_kind;
  share.measured =
      measure_step(world, config, model, threads, {.steps = 0, .warmup = 1, .seconds = seconds, .least = 1});
  std::vector<AllReduceTime> times;
  for (const CommTiming& t : report.timings)
    if (t.collective == "start_all_reduce") times.push_back({t.bytes, t.median_s});
  if (world.size() == 1 || times.size() < 2 || !share.measured.facts.sends_buckets) return share;
  share.cost = fit_link_cost(times, link_members(world));
  for (const std::int64_t size : bucket_sizes(config.dist.bucket_bytes, share.measured.gradient_bytes)) {
    const StepWork work = step_work(world, config, model, share.measured, size);
    const std::size_t messages = work.bucket_bytes.size();
    if (std::any_of(share.choices.begin(), share.choices.end(),
                    [&](const CommShare::Choice& c) { return c.messages == messages; }))
      continue;  // the same buckets
    share.choices.push_back({size, messages, predict_step(work, share.cost, world.size())});
  }
  for (std::size_t c = 1; c < share.choices.size(); ++c) {
    const double margin = share.best == 0 ? 1 - kTie : 1;
    if (share.choices[c].step.step_s < margin * share.choices[share.best].step.step_s) share.best = c;
  }
  share.paying = paying_text(step_work(world, config, model, share.measured, share.choices[share.best].bucket_bytes),
                             share.cost, world.nodes() > 1 ? "node" : "rank", link_members(world));
  return share;
}

std::string comm_share_text(const CommShare& share) {
  const StepMeasurement& m = share.measured;
  std::string text = join("\n", share.kind, ": ", m.batch, " samples a step, gradient ", human_bytes(m.gradient_bytes),
                          "; measured: compute ", human_seconds(m.compute_s), ", update ", human_seconds(m.update_s));
  if (m.ranks == 1) return text + "; one rank: no messages\n";
  text += printed(", waiting for messages %s: %.1f %% of a step (with waiting for slower ranks %.1f %%)\n",
                  human_seconds(m.exposed_s).c_str(), 100 * m.exposed_s / m.mean_s, 100 * m.reduce_s / m.mean_s);
  if (share.choices.empty())
    return text + (m.facts.sends_buckets ? "No prediction: only messages of one size were timed.\n"
                                         : "No prediction: the gradient does not travel in buckets.\n");
  text += join("expected from alpha ", human_seconds(share.cost.alpha_s), " and ",
               human_bytes(share.cost.beta_s > 0 ? 1 / share.cost.beta_s : 0),
               "/s:\n  dist.bucket_bytes  messages  all of them   waited for  of a step\n");
  for (std::size_t c = 0; c < share.choices.size(); ++c) {
    const CommShare::Choice& choice = share.choices[c];
    text += printed("  %17lld  %8zu  %11s  %11s  %7.1f %%%s%s\n", static_cast<long long>(choice.bucket_bytes),
                    choice.messages, human_seconds(choice.step.communication_s).c_str(),
                    human_seconds(choice.step.exposed_s).c_str(), 100 * choice.step.exposed_s / choice.step.step_s,
                    c == 0 ? "  as configured" : "", c == share.best ? "  recommended" : "");
  }
  return text + share.paying + "\n";
}

nlohmann::ordered_json comm_share_json(const CommShare& share) {
  const StepMeasurement& m = share.measured;
  nlohmann::ordered_json json = {{"kind", share.kind},
                                 {"batch", m.batch},
                                 {"gradient_bytes", m.gradient_bytes},
                                 {"step_s", m.mean_s},
                                 {"compute_s", m.compute_s},
                                 {"update_s", m.update_s},
                                 {"exposed_s", m.exposed_s},
                                 {"exposed_share", m.exposed_s / m.mean_s}};
  if (share.choices.empty()) return json;
  json["alpha_s"] = share.cost.alpha_s;
  json["bytes_per_s"] = share.cost.beta_s > 0 ? 1 / share.cost.beta_s : 0;
  json["recommended_bucket_bytes"] = share.choices[share.best].bucket_bytes;
  for (const CommShare::Choice& c : share.choices)
    json["expected"].push_back({{"bucket_bytes", c.bucket_bytes},
                                {"messages", c.messages},
                                {"communication_s", c.step.communication_s},
                                {"exposed_s", c.step.exposed_s},
                                {"exposed_share", c.step.exposed_s / c.step.step_s}});
  return json;
}

}  // namespace

int run_comm_test(World& world, const Args& args) {
  constexpr double kTimeout_s = 30, kShareOfBudget = 0.4;
  std::int64_t max_bytes = 0;
  double budget_s = 0;
  bool json = false, doctor = false;
  std::string site;
  RunConfig config;
  Options options(
      "lockstep comm-test", "Test the communication of this allocation: correctness, latency, bandwidth, slow ranks.",
      "The command compares the result of every collective with the expected one, and exits with 0 only if all are "
      "correct. If no rank or link is slow either, the report is one line; --log-level detail prints the tables. "
      "The command times messages of growing size: the time of a collective is that of its slowest rank. For "
      "comparison it shows the raw link, the data that every rank sends to the next one in that time. It proposes a "
      "bucket size, and marks ranks that take 1.5 times the median time in a fixed computation and links that are 1.5 "
      "times slower than the median. With a configuration it also runs training steps, and shows which part of a step "
      "is communication, now and with other bucket sizes. Start it like the training: with the same launcher, nodes "
      "and ranks. The longest wait in a collective is 30 s unless --timeout is set.");
  options.add("max-bytes", &max_bytes, std::int64_t{16} << 20, at_least(8), "size of the longest message")
      .unit("bytes");
  options
      .add("budget", &budget_s, 10, positive,
           "time limit of the test; later messages are not timed. The steps of a model take another 0.4 times this "
           "limit, and pairs of hosts (--doctor) once more this limit")
      .unit("s");
  options.add("json", &json, false, "print one JSON object instead of tables");
  options.add(
      "doctor", &doctor, false,
      "also measure pairs of hosts and the memory of each host, compare them with the nominal rates of the interfaces, "
      "and name settings that slow communication down or can break it; with --device cuda also check NCCL's protocols");
  options.add(
      "write-site=FILE", &site, "",
      "with --doctor: file for slurm/sites/ with the settings for this network, such as slurm/sites/here.sh; jobs "
      "use it with SITE=here");
  options.example("srun --mpi=pmix lockstep comm-test --doctor --write-site slurm/sites/here.sh",
                  "find network problems and write the site file; one rank per node is enough");
  options.example("mpirun -n 2 lockstep comm-test", "two ranks on this machine");
  options.example("srun --mpi=pmix lockstep comm-test --max-bytes 64MiB --json", "on an allocation, for a script");
  options.example("srun --mpi=pmix lockstep comm-test --config configs/sasrec-ml1m.ini",
                  "also the cost of communication for this model");
  if (!parse(world, options, args, config)) return 0;
  world.together("checking the options", [&] {
    require_usage(site.empty() || doctor, "option write-site = ", site, ": only with --doctor");
    if (!site.empty() && world.rank() == 0) require_writable(site);
  });
  const bool with_model = !Options::config_files(args).empty() || !config.data.path.empty();
  if (with_model) world.together("checking the configuration", [&] { check(config); });

  WorldOptions limits = world.options();
  limits.timeout_s = options.given("dist.timeout") ? config.dist.timeout : kTimeout_s;
  world.configure(limits);
  const StopSignals signals;  // of a job that stops during its preflight: the check ends anyway
  const CommReport report = comm_test(world, {.max_bytes = static_cast<std::size_t>(max_bytes), .budget_s = budget_s});
  nlohmann::ordered_json out = parse_ordered_json(comm_test_json(report));
  const bool brief = report.passed() && !report.slow() && log::detail() != LogDetail::all;
  std::string text = brief ? comm_test_line(report) : comm_test_text(report);
  if (doctor) {
    DoctorOptions about{.budget_s = budget_s, .file_system = {}, .device = {}};
    world.together("choosing the device", [&] {
      about.device = choose_device(world, config.run.device, config.dist.gpu_ids);
      about.file_system = shared_file_system(std::filesystem::current_path());
    });
    const DoctorReport found = examine(world, about);
    out["doctor"] = parse_ordered_json(doctor_json(found));
    text += doctor_text(found);
    world.together("writing the site file", [&] {
      if (!site.empty() && world.rank() == 0) {
        write_text_atomically(site, site_file(found));
        log::info("site file: ", site);
      }
    });
  }
  if (with_model) {
    const int threads = prepare_cpu(world, config);
    LocalDataMemory data_memory;
    const std::unique_ptr<Task> model = load_task(world, config, data_memory);
    const CommShare share = comm_share(world, config, *model, report, threads, kShareOfBudget * budget_s);
    out["model"] = comm_share_json(share);
    text += comm_share_text(share);
  }
  if (world.rank() == 0) std::cout << (json ? json_text(out, 2) + "\n" : text) << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
