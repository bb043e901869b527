#include "support/job.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "lockstep/base/stopwatch.hpp"
#include "support/process.hpp"

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

Job run_job(std::vector<std::string> words) {
  static int number = 0;
  const std::string mark = join("LOCKSTEP_TEST_JOB=", getpid(), "-", number++);
  words.insert(words.begin(), {"env", mark, "timeout", "-s", "KILL", "60"});
  const Stopwatch watch;
  const ProcessResult result = run_process(words);
  const double seconds = watch.seconds();
  return {.code = result.exit_code,
          .output = result.err + result.out,
          .seconds = seconds,
          .left_behind = processes_with(mark)};
}

}  // namespace lockstep::test
