#pragma once

namespace lockstep {

/// Exit codes of the programs. 1, 2 and 3 are the values of Fault (error.hpp).
inline constexpr int kExitDone = 0;
/// Stopped cleanly before the end, after a checkpoint or before the first step; run again to continue.
inline constexpr int kExitInterrupted = 85;
/// A rank was lost, and another one has saved the state of the last finished step; run again to continue.
inline constexpr int kExitRescued = 86;

}  // namespace lockstep
