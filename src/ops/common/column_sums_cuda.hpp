#pragma once
#include <algorithm>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_last_block.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"

/// Column sums in a fixed order, for gradients of biases, of the scales of norms, and of tables that are added to every
/// sequence.
namespace lockstep::gpu {

/// The destinations of K sums of n columns each. A null sum is not computed.
template <class T, int K>
struct ColumnSums {
  T* to[K];
  /// Not 0: add. As wide as a pointer: tests/cuda_host/ checks arguments word by word and could take the bytes after a
  /// bool for a host pointer.
  std::int64_t accumulate[K];
  __device__ void put(int k, std::int64_t column, T sum) const {
    if (to[k] != nullptr) to[k][column] = accumulate[k] ? to[k][column] + sum : sum;
  }
  /// The same for a k that is not known at compile time, without copying the arrays to local memory.
  __device__ void put_at(int k, std::int64_t column, T sum) const {
#pragma unroll
    for (int known = 0; known < K; ++known)
      if (known == k) put(known, column, sum);
  }
};

/// Adds `count` neighbouring columns of partials, whose chunks are `stride` elements apart, in f64, and calls put(i,
/// sum) for each. All threads of a block of kWarps warps call it; count is at most their number. Neighbouring threads
/// have neighbouring columns, so that loads are whole cache lines, with many in flight; of the P threads of a column,
/// number p adds chunks p, p + P, ..., and one then adds the P sums. Partial sums of 0 after the last one change no
/// bit.
template <int kWarps, class T, class F>
__device__ void add_partials(std::int64_t chunks, int count, const T* partials, std::int64_t stride, const F& put) {
  constexpr int kThreads = kWarps * kWarp, kInFlight = 16;
  __shared__ double sm_sums[kThreads];
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const int parts = kThreads / count, part = thread / count;
  double sum = 0;
  for (std::int64_t first = part; part < parts && first < chunks; first += parts * kInFlight) {
    T values[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const std::int64_t chunk = first + j * parts;
      values[j] = chunk < chunks ? partials[chunk * stride + thread % count] : T{0};
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) sum += static_cast<double>(values[j]);
  }
  __syncthreads();  // the previous call's sums have been read
  sm_sums[thread] = sum;
  __syncthreads();
  if (thread >= count) return;
  double total = 0;
#pragma unroll 8
  for (int p = 0; p < parts; ++p) total += sm_sums[p * count + thread];
  put(thread, static_cast<T>(total));
}
/// Adds columns first .. first + 31 of sum k of partials (chunks, K, n).
template <int kWarps, class T, int K>
__device__ void add_partials(std::int64_t chunks, std::int64_t n, std::int64_t first, int k,
                             const ColumnSums<T, K>& sums, const T* partials, std::int64_t stride) {
  const int count = static_cast<int>(n - first < kWarp ? n - first : kWarp);
  add_partials<kWarps>(chunks, count, partials + k * n + first, stride,
                       [&](int i, T sum) { sums.put_at(k, first + i, sum); });
}
/// A block of 32 warps adds 32 columns of one sum.
template <class T, int K>
__global__ void __launch_bounds__(kWarp* kWarp)
    add_partials_kernel(gpu::Earlier earlier, std::int64_t chunks, std::int64_t n, ColumnSums<T, K> sums,
                        const T* __restrict__ partials, std::int64_t stride) {
  earlier.wait();
  add_partials<kWarp>(chunks, n, std::int64_t{blockIdx.x} * kWarp, static_cast<int>(blockIdx.y), sums, partials,
                      stride);
}
template <class T, int K>
void add_partials(const Stream& stream, std::int64_t chunks, std::int64_t n, const ColumnSums<T, K>& sums,
                  const T* partials, std::int64_t stride) {
  launch(stream, {.grid = {ceil_div(n, kWarp), K}, .block = {kWarp, kWarp}}, add_partials_kernel<T, K>, chunks, n, sums,
         partials, stride);
}

inline constexpr int kSumWarps = 8;
inline constexpr std::int64_t kSumRows = 64;  ///< of a group of rows
/// Enough blocks to keep any GPU busy.
inline constexpr std::int64_t kManyBlocks = 512;

/// A block sums 32 columns of every gridDim.y-th group of 64 rows: one lane per column, so loads are whole cache lines,
/// and one warp per eighth of the rows. The last block of a column adds the partial sums. Memory bound: f reads each
/// element once. The order of additions depends on the shape alone; rows of 0 after the last one change no bit.
template <class T, int K, class F>
__global__ void __launch_bounds__(kWarp* kSumWarps)
    column_sums_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t n, ColumnSums<T, K> sums, T* partials,
                       unsigned* arrived, F f) {
  earlier.wait();
  __shared__ T sm_sums[K][kSumWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kWarp, column = first_column + lane;
  T sum[K] = {};
  if (column < n) {
    for (std::int64_t first = blockIdx.y * kSumRows; first < rows; first += gridDim.y * kSumRows) {
      const std::int64_t last = first + kSumRows < rows ? first + kSumRows : rows;
      constexpr int kRows = kSumRows / kSumWarps;
      if constexpr (requires { f.read(first, column); }) {
        decltype(f.read(first, column)) values[kRows];
#pragma unroll
        for (int j = 0; j < kRows; ++j)
          if (first + warp + j * kSumWarps < last) values[j] = f.read(first + warp + j * kSumWarps, column);
#pragma unroll
        for (int j = 0; j < kRows; ++j)
          if (first + warp + j * kSumWarps < last) f.add(first + warp + j * kSumWarps, column, values[j], sum);
      } else {
#pragma unroll kRows
        for (std::int64_t row = first + warp; row < last; row += kSumWarps) f.add(row, column, sum);
      }
    }
  }
  for (int k = 0; k < K; ++k) sm_sums[k][warp][lane] = sum[k];
  __syncthreads();
  if (warp == 0 && column < n) {
    for (int k = 0; k < K; ++k) {
      T total = 0;
      for (int w = 0; w < kSumWarps; ++w) total += sm_sums[k][w][lane];
      if (partials != nullptr)
        partials[(std::int64_t{blockIdx.y} * K + k) * n + column] = total;
      else
        sums.put(k, column, total);
    }
  }
  if (partials == nullptr || !is_last_block(arrived + blockIdx.x, gridDim.y)) return;
  for (int k = 0; k < K; ++k)
    add_partials<kSumWarps>(gridDim.y, n, first_column, k, sums, static_cast<const T*>(partials), K * n);
}

/// The number of blocks of a column. Depends on the shape alone.
inline std::int64_t column_sum_chunks(std::int64_t rows, std::int64_t n) {
  return std::clamp<std::int64_t>(kManyBlocks / std::max<std::int64_t>(1, ceil_div(n, kWarp)), 1,
                                  std::max<std::int64_t>(1, ceil_div(rows, kSumRows)));
}
/// Bytes of scratch memory for column_sums().
template <class T, int K>
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t n) {
  return static_cast<std::size_t>(column_sum_chunks(rows, n) * K * n) * sizeof(T);
}
/// sums_k,c (+)= sum over rows of the value that f.add(row, c, sum) adds to sum[k]. f is called once for each element.
/// If f also writes, f.add(row, c, f.read(row, c), sum): all rows of a thread are then read before it writes any.
template <class T, int K, class F>
void column_sums(const Stream& stream, std::int64_t rows, std::int64_t n, const ColumnSums<T, K>& sums, const F& f,
                 std::byte* scratch) {
  const std::int64_t chunks = column_sum_chunks(rows, n);
  T* partials = chunks > 1 ? reinterpret_cast<T*>(scratch) : nullptr;
  launch(stream, {.grid = {ceil_div(n, kWarp), chunks}, .block = {kWarp, kSumWarps}}, column_sums_kernel<T, K, F>, rows,
         n, sums, partials, block_counters(stream), f);
}
/// The same, with the calling thread's scratch memory.
template <class T, int K, class F>
void column_sums(const Stream& stream, std::int64_t rows, std::int64_t n, const ColumnSums<T, K>& sums, const F& f) {
  column_sums(stream, rows, n, sums, f, scratch(stream, column_sums_bytes<T, K>(rows, n)));
}

/// Sums the values of an array (rows, n). Sums have type real_t<T>.
template <class T>
struct Plain {
  const T* x;
  std::int64_t n;
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> (&sum)[1]) const {
    sum[0] += load(x + row * n + column);
  }
};

}  // namespace lockstep::gpu
