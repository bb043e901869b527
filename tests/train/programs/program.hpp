#pragma once
#include "support/test.hpp"

namespace lockstep::test {

/// Writes `data.h5`, a small prepared data set for the emulator: `rows` training rows, and a fifth of that for
/// validation and for test.
void write_data(std::int64_t rows);

/// Runs `lockstep WORDS...` on this many ranks with this many threads each; one rank without mpirun.
ProcessResult lockstep_program(int ranks, int threads, const Words& words);
/// Runs `lockstep train` and sends it a signal ("KILL", "TERM", "USR1") this many seconds after its first checkpoint.
ProcessResult interrupted_program(int ranks, const std::string& signal, double after_s,
                                  const std::filesystem::path& run_dir, const Words& words);

/// Whether two checkpoints hold the same values below a group.
bool equal_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const std::string& group);

}  // namespace lockstep::test
