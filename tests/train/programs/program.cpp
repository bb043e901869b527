#include "program.hpp"

#include "support/emulator_file.hpp"

namespace lockstep::test {

void write_data(std::int64_t rows) {
  EmulatorContents contents = emulator_contents(rows + 2 * (rows / 5), 3, 2);
  contents.jacobian.clear();
  std::ranges::fill(contents.split, 2);
  std::fill_n(contents.split.begin(), rows, 0);
  std::fill_n(contents.split.begin() + rows, rows / 5, 1);
  write_emulator_data("data.h5", contents);
}

namespace {

Words command(int ranks, int threads, const Words& words) {
  const Words launcher = ranks > 1 ? mpirun_command() + Words{"-n", std::to_string(ranks)} : Words{};
  // The tests start more threads than there are cores, so a waiting thread must yield.
  return launcher +
         Words{"env", "OMP_NUM_THREADS=" + std::to_string(threads), "OMP_WAIT_POLICY=passive",
               program_path("lockstep")} +
         words;
}

}  // namespace

ProcessResult lockstep_program(int ranks, int threads, const Words& words) {
  return run_process(command(ranks, threads, words));
}

ProcessResult interrupted_program(int ranks, const std::string& signal, double after_s,
                                  const std::filesystem::path& run_dir, const Words& words) {
  // Seconds count from the first checkpoint of this start, because the time of a start depends on the machine. mpirun
  // forwards SIGUSR1 to its ranks.
  const std::string script =
      "signal=$1 after=$2 dir=$3; shift 3; mark=$dir.mark; touch $mark; \"$@\" & pid=$!; "
      "for i in $(seq 3000); do [ -n \"$(find $dir/checkpoints -name 'step-*.h5' -newer $mark 2>/dev/null)\" ] && "
      "break; "
      "kill -0 $pid 2>/dev/null || break; sleep 0.01; done; sleep $after; kill -$signal $pid; wait $pid";
  return run_process(Words{"bash", "-c", script, "bash", signal, std::to_string(after_s), run_dir.string()} +
                     command(ranks, 1, words));
}

bool equal_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::string& group) {
  const ProcessResult result = lockstep_program(1, 1, {"checkpoint", "diff", "--under", group, a.string(), b.string()});
  require(result.exit_code == 0 || result.exit_code == 1, "comparing ", a, " and ", b, ": ", result.err);
  return result.exit_code == 0;
}

}  // namespace lockstep::test
