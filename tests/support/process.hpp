#pragma once
#include <string>
#include <vector>

namespace lockstep::test {

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal when one ended it
  std::string out, err;
};

/// Runs a program to its end, without a shell, and collects what it prints. `environment` entries "NAME=value" are added to ours.
ProcessResult run_process(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});

/// The same for `lockstep` with these words, under mpirun when there are several ranks, which share cores.
ProcessResult run_lockstep(std::vector<std::string> words, int ranks = 1);

}  // namespace lockstep::test
