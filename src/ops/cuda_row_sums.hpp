#pragma once
#include <algorithm>

#include "device/cuda_launch.hpp"

/// Gradients of tables whose rows are looked up: each row gets the sum of what comes from the places where it stands, in
/// their order, without atomics.
namespace lockstep::gpu {

inline constexpr int kRowSumWarps = 8;
/// Blocks that share the rows of a table: enough for any GPU, few enough that each may look at all numbers.
inline constexpr std::int64_t kRowSumBlocks = 528;

/// A block owns a range of rows. It looks at the numbers of all places, 256 at a time (from L2: 4 bytes each), and queues
/// those of its rows in their order; then each warp adds what belongs to every eighth row, a lane per column. Work is
/// even as long as numbers are spread over the table.
template <class T, class F>
__global__ void __launch_bounds__(kWarp * kRowSumWarps)
    row_sums_kernel(std::int64_t rows, std::int64_t columns, T* table, std::int64_t places, F f) {
  constexpr int kThreads = kWarp * kRowSumWarps, kQueue = 1024;
  __shared__ std::int32_t sm_places[kQueue], sm_rows[kQueue], sm_found[kRowSumWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const std::int64_t first = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  int queued = 0;
  for (std::int64_t base = 0; base < places; base += kThreads) {
    const std::int64_t place = base + thread, row = place < places ? f.row(place) : -1;
    const bool mine = row >= first && row < end;
    const unsigned found = __ballot_sync(kWholeWarp, mine);
    if (lane == 0) sm_found[warp] = __popc(found);
    __syncthreads();
    int before = queued + __popc(found & ((1u << lane) - 1u));
    for (int w = 0; w < kRowSumWarps; ++w) {
      if (w < warp) before += sm_found[w];
      queued += sm_found[w];
    }
    if (mine) sm_places[before] = static_cast<std::int32_t>(place), sm_rows[before] = static_cast<std::int32_t>(row);
    __syncthreads();
    if (queued <= kQueue - kThreads && base + kThreads < places) continue;
    for (int q = 0; q < queued; ++q) {
      const std::int64_t to = sm_rows[q];
      if (to % kRowSumWarps != warp) continue;
      for (std::int64_t c = lane; c < columns; c += kWarp) table[to * columns + c] += f.value(sm_places[q], c);
    }
    queued = 0;
    __syncthreads();
  }
}

/// table_row(p) += f.value(p, column) for p ascending from 0 to places - 1; f.row(p) < 0: for none.
template <class T, class F>
void row_sums(const Stream& stream, std::int64_t rows, std::int64_t columns, T* table, std::int64_t places, const F& f) {
  if (places == 0 || rows == 0) return;
  launch(stream, {.grid = static_cast<unsigned>(std::min(rows, kRowSumBlocks)), .block = kWarp * kRowSumWarps},
         row_sums_kernel<T, F>, rows, columns, table, places, f);
}

}  // namespace lockstep::gpu
