#pragma once
#include <string>

namespace lockstep::test {

/// Says that the test case which calls it cannot run here, and why; the case then returns. Its suite's ctest entry is reported
/// as skipped, so a case of this kind has a suite of its own.
void skip(const std::string& reason);

/// The program's exit code for doctest's: 77, which ctest shows as skipped, when nothing failed and a test case was skipped or
/// none was selected; 1 when a test case belongs to no suite, since no ctest entry would run it.
int exit_code(int failed);

}  // namespace lockstep::test
