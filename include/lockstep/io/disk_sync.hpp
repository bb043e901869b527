#pragma once
#include <atomic>

namespace lockstep {

/// Whether files wait until the disk has them, and checkpoints are read back from it. Without, a crash of the machine,
/// not of the program, can lose what the last seconds have written; checkpoints that it cuts are recognised by their
/// hashes.
inline std::atomic<bool> waits_for_disk = true;

}  // namespace lockstep
