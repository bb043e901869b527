#pragma once
#include <string>
#include <vector>

namespace lockstep::test {

using Words = std::vector<std::string>;
/// The words of a command line, which blanks separate.
Words words_of(const std::string& line);
inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal if a signal ended the process
  std::string out, err;
};

/// Runs a program without a shell and collects its output. `environment` entries "NAME=value" are added to this
/// process's.
ProcessResult run_process(const Words& words, const Words& environment = {});

/// Runs `lockstep` with these arguments, for several ranks under mpirun with oversubscription.
ProcessResult run_lockstep(const Words& words, int ranks = 1);

}  // namespace lockstep::test
