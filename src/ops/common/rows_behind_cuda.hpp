#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "lockstep/ops/sample_rows.hpp"

/// The rows after the samples, up to SampleRows::capacity.
namespace lockstep::gpu {

/// Blocks of a launch that fill these rows, besides the blocks of the samples.
inline constexpr unsigned kBlocksBehind = 8;
inline unsigned blocks_behind(const ops::SampleRows& rows) { return rows.capacity > 0 ? kBlocksBehind : 0; }

}  // namespace lockstep::gpu
