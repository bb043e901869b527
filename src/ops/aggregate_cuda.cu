#include "aggregate_cuda.hpp"
#include "aggregate_kernels.hpp"
#include "cuda_column_sums.hpp"
#include "cuda_map.hpp"
#include "cuda_philox.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::Pack;
constexpr int kRowsPerBlock = 8;

/// Element-wise over rows of `in` columns, N of them at a time: at(i, n, c) gets the position of a row, its node and the
/// first column.
template <int N, class F>
struct OverRows {
  RowSet rows;
  std::int64_t in;
  F f;
  template <int kUnused>
  __device__ void at(std::int64_t item) const {
    const std::int64_t packs = in / N, i = gpu::quotient(item, packs);
    f.template at<N>(i, rows[i], (item - i * packs) * N);
  }
};
template <int N, class F>
void launch_over_rows(const Stream& stream, const RowSet& rows, std::int64_t in, const F& f) {
  const std::int64_t items = rows.size() * (in / N);
  if (items == 0) return;
  gpu::launch(stream, gpu::grid_for(items), gpu::map_kernel<1, OverRows<N, F>>, items, OverRows<N, F>{rows, in, f});
}
/// Memory bound: f's arrays are read or written once, 16 bytes at a time when they are `packed`.
template <class T, class F>
void over_rows(const Stream& stream, const RowSet& rows, std::int64_t in, bool packed, const F& f) {
  constexpr int N = gpu::pack_size<T>();
  packed&& in % N == 0 ? launch_over_rows<N>(stream, rows, in, f) : launch_over_rows<1>(stream, rows, in, f);
}

template <class T>
struct Combine {
  Aggregator kind;
  std::int64_t in;
  T *a, *b;
  const T *x, *s;
  template <int N>
  __device__ void at(std::int64_t i, std::int64_t node, std::int64_t c) const {
    const Pack<T, N> p = gpu::load<N>(x + node * in + c), q = gpu::load<N>(s + node * in + c);
    if (kind == Aggregator::graphsage) {
      gpu::store(a + 2 * i * in + c, p);
      gpu::store(a + (2 * i + 1) * in + c, q);
      return;
    }
    Pack<T, N> sum, product;
#pragma unroll
    for (int l = 0; l < N; ++l) sum.at[l] = p.at[l] + q.at[l], product.at[l] = p.at[l] * q.at[l];
    gpu::store(a + i * in + c, sum);
    if (kind == Aggregator::bi_interaction) gpu::store(b + i * in + c, product);
  }
};

template <class T>
struct Split {
  Aggregator kind;
  std::int64_t in;
  T *dx, *ds;
  const T *da, *db, *x, *s;
  template <int N>
  __device__ void at(std::int64_t i, std::int64_t node, std::int64_t c) const {
    const std::int64_t to = node * in + c;
    if (kind == Aggregator::graphsage) {
      gpu::store(dx + to, gpu::load<N>(da + 2 * i * in + c));
      gpu::store(ds + to, gpu::load<N>(da + (2 * i + 1) * in + c));
      return;
    }
    Pack<T, N> of_x = gpu::load<N>(da + i * in + c), of_s = of_x;
    if (kind == Aggregator::bi_interaction) {
      const Pack<T, N> product = gpu::load<N>(db + i * in + c), p = gpu::load<N>(x + to), q = gpu::load<N>(s + to);
#pragma unroll
      for (int l = 0; l < N; ++l) of_x.at[l] += product.at[l] * q.at[l], of_s.at[l] += product.at[l] * p.at[l];
    }
    gpu::store(dx + to, of_x);
    gpu::store(ds + to, of_s);
  }
};

/// A warp per row: a lane has columns lane, lane + 32, ..., whose draws, four columns each, are one block of Philox. Memory
/// bound: reads both branches, writes the row and its marks.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    activate_kernel(RowSet rows, std::int64_t width, T* __restrict__ out, std::uint8_t* __restrict__ marks,
                    Branches<T> of, Dropout dropout, gpu::Drop<T> drop) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (i >= rows.size()) return;
  const std::int64_t node = rows[i];
  const Philox row_draws = dropout.draws(static_cast<std::uint64_t>(node));
  for (std::int64_t first = 0; first < width; first += gpu::kGroupDraws) {
    gpu::LaneDraws lane_draws;
    if (drop.threshold > 0)
      lane_draws = gpu::LaneDraws(row_draws, static_cast<std::uint64_t>(first / gpu::kGroupDraws),
                                  static_cast<int>(threadIdx.x));
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const std::int64_t c = first + word * kWarp + threadIdx.x;
      if (c >= width) break;
      const T p = of.z1[i * width + c] + of.bias1[c];
      T value = p > 0 ? p : p * of.slope;
      std::uint8_t mark = p > 0 ? cpu::kKept | cpu::kFirst : cpu::kKept;
      if (of.z2 != nullptr) {
        const T q = of.z2[i * width + c] + of.bias2[c];
        value += q > 0 ? q : q * of.slope;
        if (q > 0) mark |= cpu::kSecond;
      }
      if (drop.threshold > 0) {
        const std::uint32_t draw = lane_draws.at(word);
        value = drop(value, draw);
        if (draw < drop.threshold) mark = 0;
      }
      out[node * width + c] = value;
      if (marks != nullptr) marks[node * width + c] = mark;
    }
  }
}

/// The derivative on its way into the column sums: each element is read once.
template <class T>
struct Derive {
  RowSet rows;
  std::int64_t width;
  T *d1, *d2;
  const T* dout;
  const std::uint8_t* marks;
  T slope, scale;
  __device__ void add(std::int64_t i, std::int64_t c, T (&sum)[2]) const {
    const std::int64_t from = rows[i] * width + c, to = i * width + c;
    const std::uint8_t mark = marks[from];
    const T kept = mark & cpu::kKept ? dout[from] * scale : T{0};
    const T p = mark & cpu::kFirst ? kept : kept * slope;
    d1[to] = p, sum[0] += p;
    if (d2 == nullptr) return;
    const T q = mark & cpu::kSecond ? kept : kept * slope;
    d2[to] = q, sum[1] += q;
  }
};

}  // namespace

template <class T>
void combine(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const T* x,
             const T* s) {
  over_rows<T>(stream, rows, in, gpu::aligned(a, b, x, s), Combine<T>{kind, in, a, b, x, s});
}

template <class T>
void activate(const Stream& stream, const RowSet& rows, std::int64_t width, T* out, std::uint8_t* marks,
              const Branches<T>& branches, const AggregateLayer& layer) {
  if (rows.size() == 0) return;
  gpu::launch(stream,
              {.grid = static_cast<unsigned>(gpu::ceil_div<std::int64_t>(rows.size(), kRowsPerBlock)),
               .block = dim3(kWarp, kRowsPerBlock)},
              activate_kernel<T>, rows, width, out, marks, branches,
              Dropout{.rate = layer.dropout, .seed = layer.seed, .step = layer.step, .site = layer.site},
              gpu::Drop<T>(cpu::DropRate(layer.dropout)));
}

template <class T>
void derive(const Stream& stream, const RowSet& rows, std::int64_t width, T* d1, T* d2, T* dbias1, T* dbias2,
            const T* dout, const std::uint8_t* marks, T slope, T scale) {
  gpu::column_sums(stream, rows.size(), width, gpu::ColumnSums<T, 2>{{dbias1, dbias2}, {true, true}},
                   Derive<T>{rows, width, d1, d2, dout, marks, slope, scale});
}

template <class T>
void split(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* dx, T* ds, const T* da,
           const T* db, const T* x, const T* s) {
  over_rows<T>(stream, rows, in, gpu::aligned(dx, ds, da, db, x, s), Split<T>{kind, in, dx, ds, da, db, x, s});
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                      \
  template void combine(const Stream&, Aggregator, const RowSet&, std::int64_t, T*, T*, const T*, const T*);         \
  template void activate(const Stream&, const RowSet&, std::int64_t, T*, std::uint8_t*, const Branches<T>&,          \
                         const AggregateLayer&);                                                                     \
  template void derive(const Stream&, const RowSet&, std::int64_t, T*, T*, T*, T*, const T*, const std::uint8_t*, T, \
                       T);                                                                                           \
  template void split(const Stream&, Aggregator, const RowSet&, std::int64_t, T*, T*, const T*, const T*, const T*,  \
                      const T*);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
