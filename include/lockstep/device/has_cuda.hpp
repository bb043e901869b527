#pragma once

namespace lockstep {

/// Whether this build has the CUDA path. For the files that call it (device, comm, ops, optim) and no others: all the rest
/// is compiled once and linked with either kind of them. Elsewhere ask built_with_cuda().
inline constexpr bool kHasCuda = LOCKSTEP_HAS_CUDA != 0;

}  // namespace lockstep
