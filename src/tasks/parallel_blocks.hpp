#pragma once
#include <cstdint>
#include <functional>

#include "lockstep/device/device.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Cuts [0, count) into blocks of `block` and computes them on this rank's threads, each with a tape that does not
/// record: on a GPU one after another. The last bits of a result may depend on its place in its block, so `block` must
/// not depend on the number of threads or ranks.
/// errors  the last error of `work`, thrown after all blocks
void parallel_blocks(Device device, DType dtype, int threads, std::int64_t count, std::int64_t block,
                     const std::function<void(Tape& tape, std::int64_t first, std::int64_t count)>& work);

}  // namespace lockstep
