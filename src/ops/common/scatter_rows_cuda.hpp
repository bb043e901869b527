#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/device/near_copy.hpp"

/// Adds many rows to rows of a table, chosen by ids, in a fixed order: gradients of embeddings.
namespace lockstep::gpu {

inline constexpr int kScatterWarps = 16;
/// Ids that a lane loads at once, and columns that it holds in registers; wider rows take several passes.
inline constexpr int kScatterIds = 4, kScatterHeld = 4;

/// Two lists of ids, one after the other. `shift` is added to the ids of the second.
struct ScatterIds {
  const std::int32_t *first, *second;
  std::int64_t count, all, shift;  ///< count: of the first list
  /// Entries m to m + 3, by one load if their address allows it; -1 after the last entry.
  __device__ void load(std::int64_t m, std::int32_t (&to)[kScatterIds]) const {
    const bool in_first = m < count;
    const auto by = static_cast<std::int32_t>(shift);
    const std::int32_t* from = in_first ? first + m : second + (m - count);
    // mutant-equivalent: one by one, the last entries are the same
    if (m + kScatterIds <= (in_first ? count : all) && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
      const auto pack = *reinterpret_cast<const Pack<std::int32_t, kScatterIds>*>(from);
#pragma unroll
      for (int k = 0; k < kScatterIds; ++k) to[k] = pack.at[k] + (in_first ? 0 : by);
      return;
    }
#pragma unroll
    for (int k = 0; k < kScatterIds; ++k)
      to[k] = m + k < count ? first[m + k] : m + k < all ? second[m + k - count] + by : -1;
  }
};

/// A warp owns `per_warp` rows of the table, searches all ids for them, 128 at a time, and adds the matching rows in
/// ascending order. No other warp writes these rows, so neither atomics nor sorting are needed. The current row stays
/// in registers: a warp that owns one row reads and writes it once. Each block reads all ids (from the second-level
/// cache); each f.value(m, column) is read once.
template <class T, class F>
__global__ void __launch_bounds__(kWarp* kScatterWarps)
    scatter_rows_kernel(std::int64_t columns, std::int64_t rows, std::int64_t per_warp, T* table, ScatterIds ids,
                        std::int64_t padding, F f) {
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kScatterWarps + threadIdx.y) * per_warp;
  if (begin >= rows) return;  // the whole warp
  const auto own = [begin = static_cast<std::uint32_t>(begin), count = static_cast<std::uint32_t>(per_warp),
                    padding = static_cast<std::int32_t>(padding)](std::int32_t id) {
    return static_cast<std::uint32_t>(id) - begin < count && id != padding;
  };
  for (std::int64_t c = lane; c - lane < columns; c += kWarp * kScatterHeld) {
    std::int32_t row = -1;
    T sum[kScatterHeld];
    const auto change_to = [&](std::int32_t next) {
#pragma unroll
      for (int k = 0; k < kScatterHeld; ++k) {
        const std::int64_t column = c + k * kWarp;
        if (column >= columns) continue;
        if (row >= 0) table[row * columns + column] = sum[k];
        if (next >= 0) sum[k] = table[next * columns + column];
      }
      row = next;
    };
    for (std::int64_t first = 0; first < ids.all; first += kWarp * kScatterIds) {
      std::int32_t id[kScatterIds];
      ids.load(first + lane * kScatterIds, id);
      bool any = false;
#pragma unroll
      for (int n = 0; n < kScatterIds; ++n) any = any || own(id[n]);
      for (unsigned found = __ballot_sync(kWholeWarp, any); found != 0; found &= found - 1) {
        const int source = __ffs(static_cast<int>(found)) - 1;
#pragma unroll
        for (int n = 0; n < kScatterIds; ++n) {
          const std::int32_t next = __shfl_sync(kWholeWarp, id[n], source);
          if (!own(next)) continue;
          if (next != row) change_to(next);
#pragma unroll
          for (int k = 0; k < kScatterHeld; ++k)
            if (c + k * kWarp < columns) sum[k] += f.value(first + source * kScatterIds + n, c + k * kWarp);
        }
      }
    }
    change_to(-1);
  }
}

/// table[ids_m] += f.value(m, ...) for m ascending over both lists (R rows of C columns). Ids in host memory without a
/// NearCopy are copied first. Rows with id `padding` are skipped. shift is added to the ids of the second list.
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
  launch(stream, {.grid = ceil_div(ceil_div(rows, per_warp), kScatterWarps), .block = {kWarp, kScatterWarps}},
         scatter_rows_kernel<T, F>, columns, rows, per_warp, table,
         ScatterIds{near[0], near[1], static_cast<std::int64_t>(lists[0].size()), m, shift}, padding, f);
}

}  // namespace lockstep::gpu
