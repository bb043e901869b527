#include "support/job.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "lockstep/base/stopwatch.hpp"

namespace lockstep::test {

namespace {
/// Number of processes whose environment contains this mark, after waiting up to 20 s for it to become 0.
std::size_t processes_with(const std::string& mark) {
  for (int tries = 1;; ++tries) {
    std::size_t found = 0;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      if (environment.find(mark) != std::string::npos) ++found;
    }
    if (found == 0 || tries == 1000) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
}  // namespace

Job run_job(const Words& words) {
  static int number = 0;
  const std::string mark = join("LOCKSTEP_TEST_JOB=", getpid(), "-", number++);
  const Stopwatch watch;
  const ProcessResult result = run_process(Words{"env", mark, "timeout", "-s", "KILL", "60"} + words);
  const double seconds = watch.seconds();
  return {.code = result.exit_code,
          .output = result.err + result.out,
          .seconds = seconds,
          .left_behind = processes_with(mark)};
}

}  // namespace lockstep::test
