#pragma once

namespace lockstep::gpu {

/// A warp's tile of a product of matrices in shared memory: each lane has one row and one place across.
inline constexpr int kTileRows = 4, kTileColumns = 8;

/// A lane's place in a tile. Lanes that differ in bit 0 or in bit 1 read the same packs of one operand: shared memory
/// serves 16 lanes at once.
struct TileLane {
  int row, column;
  __device__ explicit TileLane(int lane) : row(lane % 2 + lane / 16 * 2), column(lane / 2 % kTileColumns) {}
};

}  // namespace lockstep::gpu
