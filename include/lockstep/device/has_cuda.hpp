#pragma once

namespace lockstep {

/// Whether this build has the CUDA path. Only files that are compiled per variant (device, comm, ops, optim) may use
/// it. All other files are compiled once and linked with either variant; they call built_with_cuda().
inline constexpr bool kHasCuda = LOCKSTEP_HAS_CUDA != 0;

}  // namespace lockstep
