#include "ops/common/map_cuda.hpp"
#include "spmm_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::kWholeWarp;
using gpu::Pack;

/// Rows of a block, one warp each.
constexpr int kRows = 8;
/// Rows with more entries than this are summed by all warps of their block.
constexpr std::int64_t kLong = 256;

__device__ bool has(const std::uint64_t* set, std::int32_t i) { return (set[i / 64] >> (i % 64)) & 1; }

/// How the lanes of a warp share the columns of a row: groups of lanes, a power of two, hold V columns per lane from
/// `column` on, and the groups alternate over the entries.
struct Layout {
  int lane, group, groups;
  std::int64_t column;
  bool active;  ///< whether this lane's columns exist
};

/// The sum of this lane's columns over the chunks of 32 entries `first`, first + step, ... of a row's entries [begin,
/// end). Each lane loads column number and value of one entry, and shuffles pass them around. Every group has its own
/// sum.
template <bool kMasked, int V, class T, class X>
__device__ Pack<T, V> sum_entries(const cpu::SpmmArguments<T, X>& a, const Layout& at, std::int64_t begin,
                                  std::int64_t end, int first, int step) {
  Pack<T, V> sum = {};
  for (std::int64_t chunk = begin + first * kWarp; chunk < end; chunk += step * kWarp) {
    const std::int64_t mine = chunk + at.lane;
    std::int32_t column = mine < end ? a.column[mine] : -1;
    const T value = mine < end ? a.values[mine] : T{0};
    if (kMasked && column >= 0 && !has(a.columns, column)) column = -1;
    if (kMasked && !__any_sync(kWholeWarp, column >= 0)) continue;
    // mutant-equivalent: entries beyond a row's end are skipped
    const int entries = end - chunk < kWarp ? static_cast<int>(end - chunk) : kWarp;
#pragma unroll 4
    for (int e = 0; e < entries; e += at.groups) {
      const std::int32_t c = __shfl_sync(kWholeWarp, column, e + at.group);
      const T w = __shfl_sync(kWholeWarp, value, e + at.group);
      if (c < 0 || !at.active) continue;
      const Pack<T, V> x = gpu::load<V>(a.x + c * a.width + at.column);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] = fma(w, x.at[v], sum.at[v]);
    }
  }
  return sum;
}

template <int V, class T, class X>
__device__ void put(const cpu::SpmmArguments<T, X>& a, const Layout& at, std::int64_t row, Pack<T, V> sum) {
  if (at.group != 0 || !at.active) return;
  T* y = a.y + row * a.width + at.column;
  if (a.accumulate) {
    const Pack<T, V> before = gpu::load<V>(y);
#pragma unroll
    for (int v = 0; v < V; ++v) sum.at[v] += before.at[v];
  }
  gpu::store<T, V>(y, sum);
}

/// The sum over the groups of a warp, in every lane.
template <int V, class T>
__device__ Pack<T, V> over_groups(Pack<T, V> sum, int lanes) {
  for (int distance = lanes; distance < kWarp; distance *= 2) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum.at[v] += __shfl_xor_sync(kWholeWarp, sum.at[v], distance);
  }
  return sum;
}

/// One warp per row, 16 bytes of x per lane: 64 columns of f32 take half a warp, so two entries are in flight at once
/// in each of four unrolled iterations, 2 KiB. All warps of a block share its long rows, chunk by chunk, and their sums
/// are added in the order of the warps. Rows of one block are far apart, so that adjacent long rows are in different
/// blocks. Memory bound: 12 bytes per entry from device memory, and a row of x, mostly from the second-level cache.
template <class T, class X, int V, bool kMasked>
__global__ void __launch_bounds__(kRows* kWarp, 4)
    spmm_kernel(gpu::Earlier earlier, cpu::SpmmArguments<T, X> a, RowSet rows, int lanes) {
  earlier.wait();
  __shared__ T sm_sums[kRows][kWarp * V];
  __shared__ bool sm_long[kRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  Layout at = {.lane = lane, .group = lane / lanes, .groups = kWarp / lanes, .column = 0, .active = true};
  const auto row_number = [&](int w) { return std::int64_t{w} * gridDim.x + blockIdx.x; };
  const auto columns_from = [&](std::int64_t first) {
    at.column = first + lane % lanes * V;
    at.active = at.column < a.width;
  };

  const bool there = row_number(warp) < rows.size();
  const std::int64_t row = there ? rows[row_number(warp)] : 0;
  const std::int64_t begin = there ? a.indptr[row] : 0, end = there ? a.indptr[row + 1] : 0;
  const bool is_long = end - begin > kLong;  // mutant-equivalent: any warps may sum a row
  if (lane == 0) sm_long[warp] = is_long;
  if (there && !is_long) {
    for (std::int64_t first = 0; first < a.width; first += lanes * V) {
      columns_from(first);
      put<V>(a, at, row, over_groups<V>(sum_entries<kMasked, V>(a, at, begin, end, 0, 1), lanes));
    }
  }
  __syncthreads();
  for (int w = 0; w < kRows; ++w) {
    if (!sm_long[w]) continue;
    const std::int64_t hub = rows[row_number(w)], from = a.indptr[hub], to = a.indptr[hub + 1];
    for (std::int64_t first = 0; first < a.width; first += lanes * V) {
      columns_from(first);
      const Pack<T, V> part = over_groups<V>(sum_entries<kMasked, V>(a, at, from, to, warp, kRows), lanes);
#pragma unroll
      for (int v = 0; v < V; ++v) sm_sums[warp][v * kWarp + lane] = part.at[v];
      __syncthreads();
      if (warp == 0) {
        Pack<T, V> sum = {};
        for (int part_of = 0; part_of < kRows; ++part_of) {
#pragma unroll
          for (int v = 0; v < V; ++v) sum.at[v] += sm_sums[part_of][v * kWarp + lane];
        }
        put<V>(a, at, hub, sum);
      }
      __syncthreads();
    }
  }
}

template <class T, class X, int V>
void start(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  int lanes = 1;
  while (lanes < kWarp && lanes * V < a.width) lanes *= 2;
  const gpu::Grid grid = {.grid = gpu::ceil_div(rows.size(), kRows), .block = kRows * kWarp};
  if (a.columns != nullptr)
    gpu::launch(stream, grid, spmm_kernel<T, X, V, true>, a, rows, lanes);
  else
    gpu::launch(stream, grid, spmm_kernel<T, X, V, false>, a, rows, lanes);
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
