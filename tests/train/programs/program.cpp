#include "program.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/io/h5.hpp"
#include "support/paths.hpp"

namespace lockstep::test {

void write_emulator_data(const std::filesystem::path& path, std::int64_t rows) {
  const std::int64_t n = rows + 2 * (rows / 5), n_in = 3, n_out = 2;
  std::vector<float> x(static_cast<std::size_t>(n * n_in)), y(static_cast<std::size_t>(n * n_out));
  std::vector<std::uint8_t> split(static_cast<std::size_t>(n), 0);
  for (std::int64_t r = 0; r < n; ++r) {
    const Philox random(1, 0, "x", static_cast<std::uint64_t>(r));
    double v[3];
    for (std::uint64_t c = 0; c < 3; ++c)
      x[static_cast<std::size_t>(r * n_in) + c] = static_cast<float>(v[c] = random.normal(c));
    y[static_cast<std::size_t>(r * n_out)] = static_cast<float>(std::sin(v[0]) * v[1]);
    y[static_cast<std::size_t>(r * n_out) + 1] = static_cast<float>(10 + v[2] * v[2]);
    if (r >= rows) split[static_cast<std::size_t>(r)] = r < rows + rows / 5 ? 1 : 2;
  }
  H5File file = H5File::create(path);
  file.set_attribute("/", "format", std::string("lockstep-emulator-data"));
  for (const auto& [name, value] : {std::pair("version", std::int64_t{1}), std::pair("n", n), std::pair("n_in", n_in),
                                    std::pair("n_out", n_out), std::pair("seed", std::int64_t{1})})
    file.set_attribute("/", name, value);
  file.write<float>("/x", x, {n, n_in});
  file.write<float>("/y", y, {n, n_out});
  file.write<std::uint8_t>("/split", split, {n});
  const auto write = [&](const char* name, const std::vector<double>& values) {
    file.write<double>(std::string("/moments/") + name, values, {static_cast<std::int64_t>(values.size())});
  };
  write("input_mean", {0, 0, 0}), write("input_std", {1, 1, 1}), write("output_mean", {0, 11}),
      write("output_std", {0.7, 1.4});
  const std::vector<std::string> inputs = {"a", "b", "c"}, outputs = {"p", "q"}, none_in(3, ""), none_out(2, "");
  file.write_text("/vars/input_names", inputs), file.write_text("/vars/output_names", outputs);
  file.write_text("/vars/input_cf", none_in), file.write_text("/vars/output_cf", none_out);
  file.write_text("/vars/input_units", none_in), file.write_text("/vars/output_units", none_out);
  file.write<std::int32_t>("/vars/input_level", std::vector<std::int32_t>(3, 0), {3});
  file.write<std::int32_t>("/vars/output_level", std::vector<std::int32_t>(2, 0), {2});
  file.write_text("/vars/input_source", {"ocean"});
  file.close();
}

namespace {

std::vector<std::string> command(int ranks, int threads, std::vector<std::string> words) {
  words.insert(words.begin(), program_path("lockstep"));
  // More threads than cores, as here: a thread that waits must give way.
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
  // Seconds count from the first checkpoint of this start: how long a start takes is the machine's business. mpirun
  // passes SIGUSR1 on to its ranks.
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
