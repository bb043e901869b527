#include "lockstep/comm/comm_test.hpp"

#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/options.hpp"

namespace lockstep::apps {

int run_comm_test(World& world, const Args& args) {
  std::int64_t max_bytes = 0;
  double budget_s = 0, timeout_s = 0;
  bool json = false;
  Options options(
      "lockstep comm-test",
      "Test what the ranks of this allocation do together: correctness, latency, bandwidth, slow ranks.",
      "Every collective is compared with the result that each rank can work out itself; exit code 0 only if all "
      "are right. Then messages of growing size are timed, the time of a collective being that of its slowest "
      "rank, and a bucket size is proposed. Ranks that take 1.5 times the median in a fixed piece of arithmetic, "
      "or in sending to the next rank, are marked. Start it as the training is to be started: same launcher, "
      "same nodes, same ranks.");
  options.add("max-bytes", &max_bytes, std::int64_t{16} << 20, at_least(8), "longest message that is timed")
      .unit("bytes");
  options.add("budget", &budget_s, 10, positive, "time for the timing; what does not fit is left out").unit("s");
  options.add("timeout", &timeout_s, 30, non_negative, "longest wait in one collective; 0 waits for ever").unit("s");
  options.add("json", &json, false, "print one JSON object instead of tables");
  options.example("mpirun -n 2 lockstep comm-test", "two ranks on this machine");
  options.example("srun --mpi=pmix lockstep comm-test --max-bytes 64MiB --json", "an allocation, for a script");
  if (!parse(world, options, args)) return 0;

  WorldOptions limits = world.options();
  limits.timeout_s = timeout_s;
  world.configure(limits);
  const CommReport report = comm_test(world, {.max_bytes = static_cast<std::size_t>(max_bytes), .budget_s = budget_s});
  if (world.rank() == 0) std::cout << (json ? comm_test_json(report) + "\n" : comm_test_text(report)) << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
