#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/device/near_copy.hpp"

/// Adds many rows to the rows of a table that they name, in a fixed order: gradients of embeddings.
namespace lockstep::gpu {

inline constexpr int kScatterWarps = 8;
/// Columns that a lane holds in registers; wider rows take several passes.
inline constexpr int kScatterHeld = 4;

/// Two lists of ids, one after the other. Those of the second are `shift` rows further on.
struct ScatterIds {
  const std::int32_t *first, *second;
  std::int64_t count, shift;  ///< count: of the first list
  __device__ std::int64_t operator[](std::int64_t m) const { return m < count ? first[m] : second[m - count] + shift; }
};

/// A warp owns `per_warp` rows of the table, searches all ids for them, 32 at a time, and adds the matching rows in
/// ascending order. No atomics and no sorting: no other warp writes these rows. Runs of the same row are summed in
/// registers. Each warp reads all ids (from the second-level cache); each f.value(m, column) is read once.
template <class T, class F>
__global__ void __launch_bounds__(kWarp* kScatterWarps)
    scatter_rows_kernel(std::int64_t m, std::int64_t columns, std::int64_t rows, std::int64_t per_warp, T* table,
                        ScatterIds ids, std::int64_t padding, F f) {
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kScatterWarps + threadIdx.y) * per_warp;
  // mutant-equivalent: no id is beyond the last row
  const std::int64_t end = begin + per_warp < rows ? begin + per_warp : rows;
  if (begin >= end) return;  // the whole warp
  for (std::int64_t first = 0; first < m; first += kWarp) {
    const std::int64_t id = first + lane < m ? ids[first + lane] : -1;
    unsigned found = __ballot_sync(kWholeWarp, id >= begin && id < end && id != padding);
    while (found != 0) {
      const int source = __ffs(static_cast<int>(found)) - 1;
      const std::int64_t row = __shfl_sync(kWholeWarp, id, source);
      const unsigned same = __ballot_sync(kWholeWarp, id == row) & found;
      found &= ~same;
      T* to = table + row * columns;
      // mutant-equivalent: each column is checked again
      for (std::int64_t c = lane; c < columns; c += kWarp * kScatterHeld) {
        T sum[kScatterHeld];
#pragma unroll
        for (int k = 0; k < kScatterHeld; ++k) sum[k] = c + k * kWarp < columns ? to[c + k * kWarp] : T{0};
        for (unsigned rest = same; rest != 0; rest &= rest - 1) {
          const std::int64_t use = first + __ffs(static_cast<int>(rest)) - 1;
#pragma unroll
          for (int k = 0; k < kScatterHeld; ++k)
            if (c + k * kWarp < columns) sum[k] += f.value(use, c + k * kWarp);
        }
#pragma unroll
        for (int k = 0; k < kScatterHeld; ++k)
          if (c + k * kWarp < columns) to[c + k * kWarp] = sum[k];
      }
    }
  }
}

/// table[ids_m] += f.value(m, ...) for m ascending over both lists (R rows of C columns). ids that are neither in GPU
/// memory nor have a NearCopy are copied first. Rows with id `padding` are skipped. shift is added to the ids of the
/// second list.
template <class T, class F>
void scatter_rows(const Stream& stream, const std::array<std::span<const std::int32_t>, 2>& lists, std::int64_t columns,
                  std::int64_t rows, T* table, std::int64_t padding, const F& f, std::int64_t shift = 0) {
  const auto m = static_cast<std::int64_t>(lists[0].size() + lists[1].size());
  if (m == 0 || columns == 0 || rows == 0) return;
  const std::int32_t* near[] = {near_copy(lists[0].data()), near_copy(lists[1].data())};
  if (!in_gpu_memory(stream.device(), near[0])) {  // thousands of warps would read the ids over the bus
    std::byte* copy = scratch(stream, static_cast<std::size_t>(m) * sizeof(std::int32_t));
    for (const int i : {0, 1}) {
      copy_bytes(stream, copy, lists[i].data(), lists[i].size_bytes());
      near[i] = reinterpret_cast<const std::int32_t*>(copy);
      copy += lists[i].size_bytes();
    }
  }
  constexpr std::int64_t kWarps = 132 * 32;
  const std::int64_t per_warp = std::max<std::int64_t>(1, rows / kWarps);
  launch(stream,
         {.grid = static_cast<unsigned>(ceil_div<std::int64_t>(ceil_div(rows, per_warp), kScatterWarps)),
          .block = dim3(kWarp, kScatterWarps)},
         scatter_rows_kernel<T, F>, m, columns, rows, per_warp, table,
         ScatterIds{near[0], near[1], static_cast<std::int64_t>(lists[0].size()), shift}, padding, f);
}

}  // namespace lockstep::gpu
