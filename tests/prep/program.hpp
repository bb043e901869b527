#pragma once
#include <sys/wait.h>

#include "support/test.hpp"

namespace lockstep::test {

struct Outcome {
  int status = -1;
  std::string text;  ///< standard output and error together
};

inline Outcome run_shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> block{};
  for (std::size_t n = 0; (n = fread(block.data(), 1, block.size(), pipe)) > 0;) outcome.text.append(block.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Runs `lockstep-prep` with these words, after other commands if need be.
inline Outcome run_prep(const std::string& words, const std::string& before = "") {
  return run_shell(before + " " + program_path("lockstep-prep") + " " + words);
}

/// Runs `lockstep-prep` with these words, requires this exit code and returns what it says.
inline std::string prepare(const std::string& words, int status = 0) {
  const Outcome run = run_prep(words);
  CAPTURE(words);
  CAPTURE(run.text);
  REQUIRE(run.status == status);
  return run.text;
}

/// Checks that `lockstep-prep` ends with this exit code and one line that holds all these parts.
void check_refused(const std::string& words, int status, const auto&... parts) {
  const std::string text = prepare(words, status);
  check_mentions(text, parts...);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

}  // namespace lockstep::test
