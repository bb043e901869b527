#pragma once

namespace lockstep {

/// Exit codes of the programs. 1, 2 and 3 are the values of Fault (error.hpp).
inline constexpr int kExitDone = 0;
inline constexpr int kExitInterrupted =
    85;  ///< stopped cleanly before the end, after a checkpoint; run again to continue

}  // namespace lockstep
