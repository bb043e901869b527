#include <algorithm>

#include "ops/common/map_cuda.hpp"
#include "spmm_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::kWholeWarp;
using gpu::Pack;

/// Warps of a block, and the most rows that it computes.
constexpr int kWarps = 8, kMostRows = 8;
/// With fewer blocks than this, they have fewer rows each.
constexpr std::int64_t kEnoughBlocks = 1024;
/// The rows of a block are this far apart, because long rows are often adjacent.
constexpr std::int64_t kApart = 128;
/// Bytes of a row of y that a block computes: a line of the first-level cache.
constexpr int kLine = 128;
/// Rows of x that a lane requests at once.
constexpr int kRequests = 8;

__device__ bool has(const std::uint64_t* set, std::int32_t i) {
  const auto u = static_cast<std::uint32_t>(i);
  return (set[u / 64] >> (u % 64)) & 1;
}

template <class T>
struct Entry {
  T value;
  std::int32_t column;
};

/// A block computes some rows, columns [kColumns blockIdx.y, kColumns (blockIdx.y + 1)). Its warps take turns at all
/// chunks of entries of these rows: none waits for a longer row. A warp sums its chunks of a row, so chunks n,
/// n + kWarps, ... of a row are one sum wherever the row is, and these sums are added in the order of n. The next chunk
/// is on its way while a warp waits for rows of x, of which groups of lanes, a power of two, hold V columns per lane and
/// alternate over the entries. Adjacent blocks have adjacent rows, which have neighbours in common. Bound by the
/// second-level cache: for each entry a row of x, less what a first-level cache has kept of its narrow part.
template <class T, class X, int V, bool kMasked>
__global__ void __launch_bounds__(kWarps* kWarp, 4)
    spmm_kernel(gpu::Earlier earlier, cpu::SpmmArguments<T, X> a, RowSet rows, int block_rows, int lanes) {
  // A chunk has more entries if some of them do not count.
  constexpr int kColumns = kLine / sizeof(T), kLoads = kMasked ? 4 : 1, kChunk = kLoads * kWarp;
  static_assert(kMostRows * kColumns <= kWarps * kWarp);
  earlier.wait();
  alignas(16) __shared__ T sm_sums[kMostRows][kWarps][kColumns];
  __shared__ Entry<T> sm_entries[kWarps][kChunk];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / lanes, groups = kWarp / lanes, column_in_part = lane % lanes * V;
  const std::int64_t part = std::int64_t{blockIdx.y} * kColumns, column = part + column_in_part;
  const bool active = column < a.width;

  // In each warp, lane i knows the block's i-th row; others have none. Chunks are numbered through all rows.
  const std::int64_t first_index = blockIdx.x / kApart * kApart * block_rows, left = rows.size() - first_index;
  const std::int64_t fewest = gpu::ceil_div(left, block_rows), apart = fewest < kApart ? fewest : kApart;
  const std::int64_t index = first_index + lane * apart + blockIdx.x % kApart;
  const bool there = lane < block_rows && index < rows.size();
  const std::int64_t row = there ? rows[index] : 0;
  const std::int64_t begin = there ? a.indptr[row] : 0;
  const int entries = there ? static_cast<int>(a.indptr[row + 1] - begin) : 0, chunks = gpu::ceil_div(entries, kChunk);
  int last_chunk = chunks;  // and one
  for (int distance = 1; distance < kMostRows; distance *= 2) {
    const int before = __shfl_up_sync(kWholeWarp, last_chunk, static_cast<unsigned>(distance));
    if (lane >= distance) last_chunk += before;
  }
  const int first_chunk = last_chunk - chunks, all_chunks = __shfl_sync(kWholeWarp, last_chunk, kMostRows - 1);

  // The element of y that this thread stores in the end.
  const int to = static_cast<int>(threadIdx.x) / kColumns, to_column = static_cast<int>(threadIdx.x) % kColumns;
  const bool stores = __shfl_sync(kWholeWarp, there, to) && part + to_column < a.width;
  T* const y = a.y + __shfl_sync(kWholeWarp, row, to) * a.width + part + to_column;
  const T old = a.accumulate && stores ? *y : T{0};

  std::int32_t next_column[kLoads];
  T next_value[kLoads];
  // Loads a chunk and returns its row; beyond the last chunk, kMostRows and no entries.
  const auto load_next = [&](int chunk) {
    const int of = __popc(__ballot_sync(kWholeWarp, lane < kMostRows && last_chunk <= chunk));
    const std::int64_t row_begin = __shfl_sync(kWholeWarp, begin, of);
    const int at = (chunk - __shfl_sync(kWholeWarp, first_chunk, of)) * kChunk + lane;
    const int row_entries = __shfl_sync(kWholeWarp, entries, of);
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int e = at + l * kWarp;
      next_column[l] = e < row_entries ? a.column[row_begin + e] : -1;
      next_value[l] = e < row_entries ? a.values[row_begin + e] : T{0};
    }
    return of;
  };

  Pack<T, V> sum = {};
  int next = load_next(warp);
  for (int chunk = warp; chunk < all_chunks; chunk += kWarps) {
    int count = 0;
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const bool counts = next_column[l] >= 0 && (!kMasked || has(a.columns, next_column[l]));
      const unsigned set = __ballot_sync(kWholeWarp, counts);
      if (counts)
        sm_entries[warp][count + __popc(set & ((1u << lane) - 1))] = {.value = next_value[l], .column = next_column[l]};
      count += __popc(set);
    }
    __syncwarp();
    const int now = next;
    next = load_next(chunk + kWarps);
    for (int first = 0; first < count; first += kRequests * groups) {
      Pack<T, V> x[kRequests] = {};
      T value[kRequests] = {};
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
        const int e = first + k * groups + group;
        if (e >= count || !active) continue;
        const Entry<T> entry = sm_entries[warp][e];
        value[k] = entry.value;
        x[k] = gpu::load<V>(a.x + entry.column * a.width + column);
      }
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] = fma(value[k], x[k].at[v], sum.at[v]);
      }
    }
    __syncwarp();
    if (next == now) continue;
    for (int distance = lanes; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += __shfl_xor_sync(kWholeWarp, sum.at[v], distance);
    }
    const int chunk_of_row = chunk - __shfl_sync(kWholeWarp, first_chunk, now);
    if (group == 0) gpu::store<T, V>(&sm_sums[now][chunk_of_row % kWarps][column_in_part], sum);
    sum = {};
  }
  __syncthreads();
  const int parts = __shfl_sync(kWholeWarp, chunks, to);
  if (!stores) return;
  T total = 0;
  for (int n = 0; n < kWarps && n < parts; ++n) total += sm_sums[to][n][to_column];
  *y = total + old;
}

template <class T, class X, int V>
void start(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  constexpr int kColumns = kLine / sizeof(T);
  int lanes = 1;
  while (lanes * V < kColumns && lanes * V < a.width) lanes *= 2;
  const auto block_rows =
      static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(rows.size(), kEnoughBlocks), 1, kMostRows));
  const gpu::Grid grid = {.grid = {gpu::ceil_div(rows.size(), block_rows), gpu::ceil_div(a.width, kColumns)},
                          .block = kWarps * kWarp};
  if (a.columns != nullptr)
    gpu::launch(stream, grid, spmm_kernel<T, X, V, true>, a, rows, block_rows, lanes);
  else
    gpu::launch(stream, grid, spmm_kernel<T, X, V, false>, a, rows, block_rows, lanes);
}

}  // namespace

template <class Arguments>
void spmm(const Stream& stream, const Arguments& a, const RowSet& rows) {
  constexpr int V = 16 / sizeof(*a.y);
  if (a.width % V == 0 && gpu::aligned(a.x, a.y))
    start<std::remove_pointer_t<decltype(a.y)>, std::remove_const_t<std::remove_pointer_t<decltype(a.x)>>, V>(stream, a,
                                                                                                              rows);
  else
    start<std::remove_pointer_t<decltype(a.y)>, std::remove_const_t<std::remove_pointer_t<decltype(a.x)>>, 1>(stream, a,
                                                                                                              rows);
}

template void spmm(const Stream&, const cpu::SpmmArguments<float, float>&, const RowSet&);
template void spmm(const Stream&, const cpu::SpmmArguments<double, double>&, const RowSet&);
template void spmm(const Stream&, const cpu::SpmmArguments<float, bf16>&, const RowSet&);
template void spmm(const Stream&, const cpu::SpmmArguments<float, f16>&, const RowSet&);

}  // namespace lockstep::ops::cuda
