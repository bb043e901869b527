#pragma once
#include <string>
#include <vector>

/// Paths of the source tree and the build. The build writes them into one source file, so that all other objects are
/// the same in every checkout and a compiler cache serves them all.
namespace lockstep::test {

/// A file below the project's root.
std::string source_path(const std::string& name = "");
/// A file of tests/golden.
std::string golden_path(const std::string& name = "");
/// A program of the build: `lockstep`, `lockstep-prep`, or a test's own.
std::string program_path(const std::string& name);
/// The folder of the build's programs.
std::string program_folder();
/// mpirun with the options for more ranks than cores, without `-n`.
std::vector<std::string> mpirun_command();

}  // namespace lockstep::test
