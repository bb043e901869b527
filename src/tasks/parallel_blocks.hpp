#pragma once
#include <cstdint>
#include <functional>

#include "lockstep/device/device.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Cuts [0, count) into blocks and computes them on this rank's threads, each with a tape that does not record: on a GPU
/// one after another. `block` is at most `most`, and smaller when there would otherwise be threads without one.
/// errors  the last one of `work`, after all blocks
void parallel_blocks(Device device, DType dtype, int threads, std::int64_t count, std::int64_t most,
                     const std::function<void(Tape& tape, std::int64_t first, std::int64_t count)>& work);

}  // namespace lockstep
