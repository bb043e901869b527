#include "lockstep/comm/comm_test.hpp"

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/comm_share.hpp"
#include "apps/lockstep/commands.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

int run_comm_test(World& world, const Args& args) {
  constexpr double kTimeout_s = 30, kShareOfBudget = 0.4;
  std::int64_t max_bytes = 0;
  double budget_s = 0;
  bool json = false;
  RunConfig config;
  Options options(
      "lockstep comm-test",
      "Test what the ranks of this allocation do together: correctness, latency, bandwidth, slow ranks.",
      "Every collective is compared with the result that each rank can work out itself; exit code 0 only if all "
      "are right. Then messages of growing size are timed, the time of a collective being that of its slowest "
      "rank, beside the raw link: what every rank sends to the next one in that time. A bucket size is proposed. "
      "Ranks that take 1.5 times the median in a fixed piece of arithmetic, and links that are 1.5 times slower than "
      "the others, are marked. With a configuration some steps of its training follow: what part of a step is "
      "communication, and what it would be with other sizes of buckets. Start it as the training is to be started: "
      "same launcher, same nodes, same ranks. It waits for 30 s at most in one collective, unless --timeout says "
      "otherwise.");
  options.add("max-bytes", &max_bytes, std::int64_t{16} << 20, at_least(8), "longest message that is timed")
      .unit("bytes");
  options
      .add("budget", &budget_s, 10, positive,
           "time for the test: messages for which none is left are not timed; and 0.4 times that for the model's steps")
      .unit("s");
  options.add("json", &json, false, "print one JSON object instead of tables");
  options.example("mpirun -n 2 lockstep comm-test", "two ranks on this machine");
  options.example("srun --mpi=pmix lockstep comm-test --max-bytes 64MiB --json", "an allocation, for a script");
  options.example("srun --mpi=pmix lockstep comm-test --config configs/sasrec-ml1m.ini",
                  "and what communication costs this model here");
  if (!parse(world, options, args, config)) return 0;
  const bool with_model = !Options::config_files(args).empty() || !config.data.path.empty();
  if (with_model) world.together("checking the configuration", [&] { check(config); });

  WorldOptions limits = world.options();
  limits.timeout_s = options.given("dist.timeout") ? config.dist.timeout : kTimeout_s;
  world.configure(limits);
  const CommReport report = comm_test(world, {.max_bytes = static_cast<std::size_t>(max_bytes), .budget_s = budget_s});
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(comm_test_json(report));
  std::string text = comm_test_text(report);
  if (with_model) {
    const int threads = choose_threads(world, config.run.threads);
    LocalPlacement placement;
    const std::unique_ptr<Model> model = load_model(world, config, placement);
    const CommShare share = comm_share(world, config, *model, report, threads, kShareOfBudget * budget_s);
    out["model"] = comm_share_json(share);
    text += comm_share_text(share);
  }
  if (world.rank() == 0) std::cout << (json ? out.dump(2) + "\n" : text) << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
