#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

/// A folder with `data.h5`, a small prepared data set for the emulator: `rows` training rows, and a fifth of that for
/// validation and for test.
class DataDir : public TempDir {
 public:
  explicit DataDir(std::int64_t rows);
  /// Replaces the data set.
  void write_data(std::int64_t rows) const;
};

/// Runs `lockstep WORDS...` on this many ranks with this many threads each; one rank without mpirun.
ProcessResult lockstep_program(int ranks, int threads, std::vector<std::string> words);
/// Runs `lockstep train` and sends it a signal ("KILL", "TERM", "USR1") this many seconds after its first checkpoint.
ProcessResult interrupted_program(int ranks, const std::string& signal, double after_s,
                                  const std::filesystem::path& run_dir, std::vector<std::string> words);

/// Checks the exit code of a program, and that its messages contain all these texts.
template <class... Texts>
void check_ended(const ProcessResult& result, int exit_code, const Texts&... texts) {
  CAPTURE(result.err);
  CHECK(result.exit_code == exit_code);
  if constexpr (sizeof...(texts) > 0) check_mentions(result.err, texts...);
}

/// Whether two checkpoints hold the same values below a group.
bool equal_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::string& group);

}  // namespace lockstep::test
