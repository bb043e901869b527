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

/// A row that a block computes. Chunks of entries are numbered through all its rows.
struct Row {
  std::int64_t at, begin;  ///< its number, or -1; its first entry
  int entries, first_chunk, end_chunk;
};

template <class T>
struct Entry {
  T value;
  std::int32_t column;
};

/// A block computes some rows, columns [kColumns blockIdx.y, kColumns (blockIdx.y + 1)). Its warps take turns at all
/// chunks of entries of these rows: none waits for a longer row. A warp sums its chunks of a row, so chunks n,
/// n + kWarps, ... of a row are one sum wherever the row is, and these sums are added in the order of n. While a warp
/// waits for rows of x, of which groups of lanes hold V columns per lane and alternate over the entries, its next chunk
/// is on its way. Adjacent blocks have adjacent rows, which have neighbours in common. Bound by the second-level cache:
/// each entry reads a row of x, except where a first-level cache still holds these columns.
template <class T, class X, int V, bool kMasked>
__global__ void __launch_bounds__(kWarps* kWarp, 4)
    spmm_kernel(gpu::Earlier earlier, cpu::SpmmArguments<T, X> a, RowSet rows, int block_rows) {
  earlier.wait();
  // A chunk has more entries if some of them do not count.
  constexpr int kColumns = kLine / sizeof(T), kLoads = kMasked ? 3 : 1, kChunk = kLoads * kWarp;
  constexpr int kLanes = kColumns / V, kGroups = kWarp / kLanes;
  static_assert(kMostRows * kColumns <= kWarps * kWarp && kWarp % (kRequests * kGroups) == 0);
  alignas(16) __shared__ T sm_sums[kMostRows][kWarps][kColumns];
  __shared__ Entry<T> sm_entries[kWarps][kChunk];
  __shared__ Row sm_rows[kMostRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / kLanes, column_in_part = lane % kLanes * V;
  const std::int64_t part = std::int64_t{blockIdx.y} * kColumns;

  if (warp == 0) {
    const std::int64_t first_index = blockIdx.x / kApart * kApart * block_rows, left = rows.size() - first_index;
    const std::int64_t fewest = gpu::ceil_div(left, block_rows), apart = fewest < kApart ? fewest : kApart;
    const std::int64_t index = first_index + lane * apart + blockIdx.x % kApart;
    const bool there = lane < block_rows && index < rows.size();
    const std::int64_t at = there ? rows[index] : -1, begin = there ? a.indptr[at] : 0;
    const int entries = there ? static_cast<int>(a.indptr[at + 1] - begin) : 0, chunks = gpu::ceil_div(entries, kChunk);
    int end_chunk = chunks;
    for (int distance = 1; distance < kMostRows; distance *= 2) {
      const int before = __shfl_up_sync(kWholeWarp, end_chunk, static_cast<unsigned>(distance));
      if (lane >= distance) end_chunk += before;
    }
    if (lane < kMostRows) sm_rows[lane] = {at, begin, entries, end_chunk - chunks, end_chunk};
  }
  __syncthreads();
  const int chunks = sm_rows[kMostRows - 1].end_chunk;

  // The element of y that this thread stores in the end.
  const int to = static_cast<int>(threadIdx.x) / kColumns, to_column = static_cast<int>(threadIdx.x) % kColumns;
  const bool stores = to < kMostRows && sm_rows[to].at >= 0 && part + to_column < a.width;
  const auto y = [&] { return a.y + sm_rows[to].at * a.width + part + to_column; };
  const T old = a.accumulate && stores ? *y() : T{0};

  // Lanes beyond the last column compute it, too, but do not store.
  const std::int64_t column = part + column_in_part < a.width ? part + column_in_part : a.width - V;
  const auto* const x_column = reinterpret_cast<const std::byte*>(a.x + column);
  const auto row_bytes = static_cast<int>(a.width * sizeof(X));  // 32 bits: an address takes one instruction
  std::int32_t next_column[kLoads];
  T next_value[kLoads];
  // Loads a chunk, whose row is of_row or a later one, and returns its row. Where the row has ended, x is read as for
  // its last entry and counts as 0.
  const auto load_next = [&](int chunk, int of_row) {
    if (chunk >= chunks) return kMostRows;
    while (chunk >= sm_rows[of_row].end_chunk) ++of_row;
    const Row& of = sm_rows[of_row];
    const int at = (chunk - of.first_chunk) * kChunk + lane;
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const bool there = at + l * kWarp < of.entries;
      const std::int64_t e = of.begin + (there ? at + l * kWarp : of.entries - 1);
      next_column[l] = there || !kMasked ? a.column[e] : -1;
      next_value[l] = there ? a.values[e] : T{0};
    }
    return of_row;
  };

  Pack<T, V> sum = {};
  int next = load_next(warp, 0);
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    int count = 0;
    if constexpr (kMasked) {
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const bool counts = next_column[l] >= 0 && has(a.columns, next_column[l]);
        const unsigned set = __ballot_sync(kWholeWarp, counts);
        if (counts) sm_entries[warp][count + __popc(set & ((1u << lane) - 1))] = {next_value[l], next_column[l]};
        count += __popc(set);
      }
      __syncwarp();
      if (count % kWarp != 0 && lane >= count % kWarp)
        sm_entries[warp][count / kWarp * kWarp + lane] = {T{0}, sm_entries[warp][0].column};
    } else {
      count = kWarp;
      sm_entries[warp][lane] = {next_value[0], next_column[0]};
    }
    __syncwarp();
    const int now = next;
    next = load_next(chunk + kWarps, now);
#pragma unroll 1
    for (int first = 0; first < count; first += kRequests * kGroups) {
      Pack<T, V> x[kRequests];
      T value[kRequests];
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
        const Entry<T> entry = sm_entries[warp][first + k * kGroups + group];
        value[k] = entry.value;
        x[k] = gpu::load<V>(reinterpret_cast<const X*>(x_column + std::int64_t{entry.column} * row_bytes));
      }
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] = fma(value[k], x[k].at[v], sum.at[v]);
      }
    }
    __syncwarp();
    if (next == now) continue;
#pragma unroll
    for (int distance = kLanes; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += __shfl_xor_sync(kWholeWarp, sum.at[v], distance);
    }
    if (group == 0) gpu::store<T, V>(&sm_sums[now][(chunk - sm_rows[now].first_chunk) % kWarps][column_in_part], sum);
    sum = {};
  }
  __syncthreads();
  if (!stores) return;
  // mutant-equivalent: either of two equal values
  const int of_row = sm_rows[to].end_chunk - sm_rows[to].first_chunk, sums = of_row < kWarps ? of_row : kWarps;
  T total = 0;
  for (int n = 0; n < sums; ++n) total += sm_sums[to][n][to_column];
  *y() = total + old;
}

template <class T, class X, int V>
void start(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  const auto block_rows =
      static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(rows.size(), kEnoughBlocks), 1, kMostRows));
  const gpu::Grid grid = {.grid = {gpu::ceil_div(rows.size(), block_rows), gpu::ceil_div(a.width * sizeof(T), kLine)},
                          .block = kWarps * kWarp};
  if (a.columns != nullptr)
    gpu::launch(stream, grid, spmm_kernel<T, X, V, true>, a, rows, block_rows);
  else
    gpu::launch(stream, grid, spmm_kernel<T, X, V, false>, a, rows, block_rows);
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
LOCKSTEP_FP64(template void spmm(const Stream&, const cpu::SpmmArguments<double, double>&, const RowSet&);)
LOCKSTEP_BF16(template void spmm(const Stream&, const cpu::SpmmArguments<float, bf16>&, const RowSet&);)
LOCKSTEP_FP16(template void spmm(const Stream&, const cpu::SpmmArguments<float, f16>&, const RowSet&);)

}  // namespace lockstep::ops::cuda
