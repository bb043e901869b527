#include "lockstep/base/build_info.hpp"

#include "lockstep_git_id.hpp"

namespace lockstep {

const BuildInfo& build_info() {
  static const BuildInfo info{.version = LOCKSTEP_VERSION,
                              .git = LOCKSTEP_GIT_ID,
                              .compiler = LOCKSTEP_COMPILER,
                              .type = LOCKSTEP_BUILD_TYPE,
                              .mpi = LOCKSTEP_MPI_NAME,
                              .hdf5 = LOCKSTEP_HDF5_VERSION,
                              .boost = LOCKSTEP_BOOST_VERSION};
  return info;
}

std::string version_line() {
  const BuildInfo& b = build_info();
  return "lockstep " + b.version + " (git " + b.git + "), " + b.compiler + " " + b.type + ", " + b.mpi + ", HDF5 " +
         b.hdf5 + ", Boost " + b.boost;
}

}  // namespace lockstep
