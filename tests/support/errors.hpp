#pragma once
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "support/process.hpp"

namespace lockstep::test {

/// The message of the Error that `action` throws, "no error" when it throws none; the fault is checked.
template <class Action>
std::string error_of(Fault expected, Action action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.fault() == expected);
    return error.what();
  }
  return "no error";
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// How often a text occurs.
inline int occurrences(const std::string& text, std::string_view part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Checks that a message holds all these parts, and prints it when it does not.
template <class... Parts>
void check_mentions(const std::string& message, const Parts&... parts) {
  CAPTURE(message);
  for (const std::string_view part : {std::string_view(parts)...}) {
    CAPTURE(part);
    CHECK(contains(message, part));
  }
}

/// Checks the exit code of a program, and that its messages hold all these parts.
template <class... Parts>
void check_ended(const ProcessResult& result, int exit_code, const Parts&... parts) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == exit_code);
  if constexpr (sizeof...(parts) > 0) check_mentions(result.err, parts...);
}
/// Requires that a program succeeded, and returns its result.
inline ProcessResult succeeded(ProcessResult result) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return result;
}

}  // namespace lockstep::test
