#include "embedding_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "ops/common/drawn_map_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/scatter_rows_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

template <class T>
__device__ real_t<T> value(const FromTable<T>& from, std::int64_t row, std::int64_t columns, std::int64_t column) {
  return from.scale * gpu::load(from.table + from.ids[row] * columns + column);
}

/// One warp per row. Memory bound.
template <class T>
__global__ void __launch_bounds__(gpu::kWarp* gpu::kRowWarps)
    embedding_sum_kernel(gpu::Earlier earlier, std::int64_t m, std::int64_t c, T* __restrict__ y, FromTable<T> a,
                         FromTable<T> b) {
  earlier.wait();
  const std::int64_t row = gpu::warp_row();
  if (row >= m) return;
  for (std::int64_t column = threadIdx.x; column < c; column += gpu::kWarp) {
    real_t<T> sum = value(a, row, c, column);
    if (b.table != nullptr) sum += value(b, row, c, column);
    gpu::store(y + row * c + column, sum);
  }
}

/// The same with dropout, for drawn_map(), which draws for many elements at once. Rows of tables come from L2.
template <class T>
struct DroppedSum {
  T *y, *derivative;  ///< derivative may be null
  FromTable<T> a, b;
  std::int64_t columns;
  using R = real_t<T>;
  template <int N>
  __device__ gpu::Pack<R, N> read(std::int64_t i) const {
    const std::int64_t row = gpu::quotient(i, columns), column = gpu::remainder(i, columns);
    const auto pack = [&](const FromTable<T>& from) {
      gpu::Pack<R, N> x = gpu::load<N>(from.table + from.ids[row] * columns + column);
#pragma unroll
      for (int k = 0; k < N; ++k) x.at[k] *= from.scale;
      return x;
    };
    gpu::Pack<R, N> sum = pack(a), second{};
    if (b.table != nullptr) second = pack(b);
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += second.at[k];
    return sum;
  }
  template <int N>
  __device__ void write(std::int64_t i, gpu::Pack<R, N> sum, const gpu::Keep<R>& keep) const {
    gpu::Pack<R, N> kept;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sum.at[k] = keep(k, sum.at[k]);
      kept.at[k] = keep(k, R{1});
    }
    gpu::store(y + i, sum);
    if (derivative != nullptr) gpu::store(derivative + i, kept);
  }
  __device__ void behind(std::int64_t i) const {
    gpu::store(y + i, R{0});
    if (derivative != nullptr) gpu::store(derivative + i, R{0});
  }
};

/// Rows of two tables side by side, with or without dropout. Rows come from L2.
template <class T>
struct Pair {
  T* y;
  const T* tables;
  const std::int32_t* ids;
  std::int64_t columns, table_rows;
  using R = real_t<T>;
  template <int N>
  __device__ void at(std::int64_t i) const {
    gpu::store(y + i, read<N>(i));
  }
  template <int N>
  __device__ void write(std::int64_t i, gpu::Pack<R, N> x, const gpu::Keep<R>& keep) const {
#pragma unroll
    for (int k = 0; k < N; ++k) x.at[k] = keep(k, x.at[k]);
    gpu::store(y + i, x);
  }
  __device__ void behind(std::int64_t i) const { gpu::store(y + i, R{0}); }
  template <int N>
  __device__ gpu::Pack<R, N> read(std::int64_t i) const {
    const std::int64_t half = gpu::quotient(i, columns), column = gpu::remainder(i, columns);
    return gpu::load<N>(tables + ((half % 2) * table_rows + ids[half / 2]) * columns + column);
  }
};

/// The gradients of both tables: those of the first for all rows, then those of the second.
template <class R>
struct Halves {
  std::int64_t rows;
  __device__ gpu::RowUse<R> operator()(std::int64_t m) const { return {m < rows ? 2 * m : 2 * (m - rows) + 1, R{1}}; }
};

template <class R>
struct Scaled {
  R scale;
  __device__ gpu::RowUse<R> operator()(std::int64_t m) const { return {m, scale}; }
};

}  // namespace

template <class T>
void embedding_sum(const Stream& stream, std::int64_t m, std::int64_t c, T* y, FromTable<T> a, FromTable<T> b,
                   const Dropout& dropout, const SampleRows& rows, T* derivative) {
  a.ids = staged_copy(a.ids);
  b.ids = staged_copy(b.ids);
  if (dropout)
    gpu::drawn_map<real_t<T>>(stream, c, c, dropout, rows, DroppedSum<T>{y, derivative, a, b, c}, y, derivative,
                              a.table, b.table);
  else
    gpu::launch(stream, gpu::warp_per_row(m), embedding_sum_kernel<T>, m, c, y, a, b);
}

template <class T>
void embedding_pair(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, T* y, const T* tables,
                    const std::int32_t* ids, const Dropout& dropout, const SampleRows& rows) {
  const Pair<T> pair{y, tables, staged_copy(ids), c, r};
  if (dropout)
    gpu::drawn_map<real_t<T>>(stream, 2 * c, c, dropout, rows, pair, y, tables);
  else
    gpu::map<T>(stream, 2 * m * c, c % gpu::pack_size<T>() == 0 && gpu::aligned(y, tables), pair);
}

template <class T>
void embedding_pair_backward(const Stream& stream, std::int64_t c, std::int64_t r, real_t<T>* dtables, const T* dy,
                             std::span<const std::int32_t> ids, const SampleRows& rows) {
  gpu::scatter_rows(stream, {ids, ids}, c, 2 * r, dtables, -1, dy, Halves<real_t<T>>{std::ssize(ids)}, r,
                    rows.capacity > 0 ? staged_copy(rows.offsets.data() + rows.count()) : nullptr);
}

template <class T>
void embedding_backward(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, real_t<T>* dtable,
                        const T* dy, const std::int32_t* ids, real_t<T> scale, std::int64_t padding) {
  gpu::scatter_rows(stream, {std::span(ids, static_cast<std::size_t>(m)), {}}, c, r, dtable, padding, dy,
                    Scaled<real_t<T>>{scale});
}

LOCKSTEP_EACH_STORAGE(embedding_sum, embedding_pair, embedding_pair_backward, embedding_backward)

}  // namespace lockstep::ops::cuda
