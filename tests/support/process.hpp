#pragma once
#include <string>
#include <vector>

namespace lockstep::test {

/// The words of a command line, which blanks separate.
std::vector<std::string> words_of(const std::string& line);

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal if a signal ended the process
  std::string out, err;
};

/// Runs a program without a shell and collects its output. `environment` entries "NAME=value" are added to this
/// process's.
ProcessResult run_process(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});

/// Runs `lockstep` with these arguments, for several ranks under mpirun with oversubscription.
ProcessResult run_lockstep(std::vector<std::string> words, int ranks = 1);

}  // namespace lockstep::test
