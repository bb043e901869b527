#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

/// A small prepared data set: y = smooth function of x, `rows` training rows and a fifth of that for validation and test each.
void write_emulator_data(const std::filesystem::path& path, std::int64_t rows);

/// `lockstep WORDS...` on so many ranks with so many threads each. One rank is started without mpirun.
ProcessResult lockstep_program(int ranks, int threads, std::vector<std::string> words);
/// The same `lockstep train`, sent a signal ("KILL", "TERM", "USR1") so many seconds after its first checkpoint in `run_dir`.
ProcessResult interrupted_program(int ranks, const std::string& signal, double after_s,
                                  const std::filesystem::path& run_dir, std::vector<std::string> words);

/// Whether two checkpoints hold the same values below a group.
bool equal_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::string& group);

}  // namespace lockstep::test
