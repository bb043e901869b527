#include "program.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "support/emulator_file.hpp"
#include "support/paths.hpp"

namespace lockstep::test {

DataDir::DataDir(std::int64_t rows) { write_data(rows); }

void DataDir::write_data(std::int64_t rows) const {
  EmulatorContents contents = emulator_contents(rows + 2 * (rows / 5), 3, 2);
  contents.jacobian.clear();
  std::ranges::fill(contents.split, 2);
  std::fill_n(contents.split.begin(), rows, 0);
  std::fill_n(contents.split.begin() + rows, rows / 5, 1);
  write_emulator_data(*this / "data.h5", contents);
}

namespace {

std::vector<std::string> command(int ranks, int threads, std::vector<std::string> words) {
  words.insert(words.begin(), program_path("lockstep"));
  // The tests start more threads than there are cores, so a waiting thread must yield.
  words.insert(words.begin(), {"env", "OMP_NUM_THREADS=" + std::to_string(threads), "OMP_WAIT_POLICY=passive"});
  if (ranks > 1) {
    std::vector<std::string> all = mpirun_command();
    all.insert(all.end(), {"-n", std::to_string(ranks)});
    words.insert(words.begin(), all.begin(), all.end());
  }
  return words;
}

}  // namespace

ProcessResult lockstep_program(int ranks, int threads, std::vector<std::string> words) {
  return run_process(command(ranks, threads, std::move(words)));
}

ProcessResult interrupted_program(int ranks, const std::string& signal, double after_s,
                                  const std::filesystem::path& run_dir, std::vector<std::string> words) {
  // Seconds count from the first checkpoint of this start, because the time of a start depends on the machine. mpirun
  // forwards SIGUSR1 to its ranks.
  const std::string script =
      "signal=$1 after=$2 dir=$3; shift 3; mark=$dir.mark; touch $mark; \"$@\" & pid=$!; "
      "for i in $(seq 3000); do [ -n \"$(find $dir/checkpoints -name 'step-*.h5' -newer $mark 2>/dev/null)\" ] && "
      "break; "
      "kill -0 $pid 2>/dev/null || break; sleep 0.01; done; sleep $after; kill -$signal $pid; wait $pid";
  std::vector<std::string> all = command(ranks, 1, std::move(words));
  all.insert(all.begin(), {"bash", "-c", script, "bash", signal, std::to_string(after_s), run_dir.string()});
  return run_process(all);
}

bool equal_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::string& group) {
  const ProcessResult result = lockstep_program(1, 1, {"checkpoint", "diff", "--under", group, a.string(), b.string()});
  require(result.exit_code == 0 || result.exit_code == 1, "comparing ", a, " and ", b, ": ", result.err);
  return result.exit_code == 0;
}

}  // namespace lockstep::test
