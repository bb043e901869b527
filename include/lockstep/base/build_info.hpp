#pragma once
#include <string>

namespace lockstep {

/// Version, commit, compiler and libraries of this binary, for `--version`, banners and the provenance of files.
struct BuildInfo {
  std::string version;   ///< "0.1.0"
  std::string git;       ///< "1a2b3c4d5e6f"; with "-dirty" if changes were uncommitted; without git "unknown,
                         ///< sources " and a hash of src and include
  std::string compiler;  ///< "GNU 12.2.0"
  std::string type;      ///< "Release"
  std::string mpi, hdf5, boost;
};
const BuildInfo& build_info();

/// "lockstep 0.1.0 (git 1a2b3c4d5e6f), GNU 12.2.0 Release, MPI ..., HDF5 1.10.8, Boost 1.74.0".
std::string version_line();

}  // namespace lockstep
