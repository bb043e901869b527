#pragma once
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "support/paths.hpp"

namespace lockstep::test {

struct Outcome {
  int status = -1;
  std::string text;  ///< standard output and error together
};

/// Runs a shell command in a directory.
inline Outcome run_shell(const std::filesystem::path& directory, const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("cd '" + directory.string() + "' && { " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> block{};
  for (std::size_t n = 0; (n = fread(block.data(), 1, block.size(), pipe)) > 0;) outcome.text.append(block.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Runs `lockstep-prep` with these words, after other commands if need be.
inline Outcome run_prep(const std::filesystem::path& directory, const std::string& words,
                        const std::string& before = "") {
  return run_shell(directory, before + " " + program_path("lockstep-prep") + " " + words);
}

}  // namespace lockstep::test
