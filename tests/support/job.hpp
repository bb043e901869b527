#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "support/errors.hpp"

namespace lockstep::test {

/// A job of several processes that has ended. The checks print its output when they fail.
struct Job {
  int code = -1;
  std::string output;  ///< of stderr, then of stdout
  double seconds = 0;
  std::size_t left_behind = 0;  ///< processes

  /// The job ended in time with this exit code and left no process behind.
  void check_ended(int expected) const {
    constexpr double kBound_s = 40;  // deadline 1 or 2 s, mpirun about 1 s, the rest for a busy machine
    CAPTURE(output);
    CHECK(seconds < kBound_s);
    CHECK(code == expected);
    CHECK(left_behind == 0);
  }
  /// The same with any exit code that says that it failed.
  void check_failed() const {
    CAPTURE(output);
    CHECK(code != 0);
    check_ended(code);
  }
  void check_says(const auto&... texts) const { check_mentions(output, texts...); }
  void check_says_once(const auto&... texts) const {
    CAPTURE(output);
    for (const std::string_view text : {std::string_view(texts)...}) {
      CAPTURE(text);
      CHECK(occurrences(output, text) == 1);
    }
  }
  void check_lacks(const std::string& text) const {
    CAPTURE(output);
    CHECK_FALSE(contains(output, text));
  }
};

/// Runs a job, which is killed after 60 s.
Job run_job(const Words& words);

}  // namespace lockstep::test
