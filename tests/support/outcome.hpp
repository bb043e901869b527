#pragma once
#include <string>

namespace lockstep::test {

/// Reports that the calling test case cannot run here, with the reason; the case then returns. ctest shows its whole
/// suite as skipped, so a case that often cannot run has its own suite.
void skip(const std::string& reason);

/// The program's exit code for doctest's: 77, which ctest shows as skipped, if nothing failed and a test case was
/// skipped or none was selected; 1 if a test case belongs to no suite, because no ctest entry would run it.
int exit_code(int failed);

}  // namespace lockstep::test
