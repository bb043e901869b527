#include "aggregate_kernels.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/philox_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::Pack;

/// An element-wise pass over rows of `in` columns, N columns at a time. at(i, n, c) receives the index of a row, its
/// node and the first column.
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
  gpu::map<1>(stream, rows.size() * (in / N), false, OverRows<N, F>{rows, in, f});
}
/// Memory bound: each array of f is read or written once, 16 bytes at a time if `packed`.
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
  const real_t<T>*x, *s;
  template <int N>
  __device__ void at(std::int64_t i, std::int64_t node, std::int64_t c) const {
    const Pack<real_t<T>, N> p = gpu::load<N>(x + node * in + c), q = gpu::load<N>(s + node * in + c);
    if (kind == Aggregator::graphsage) {
      gpu::store(a + 2 * i * in + c, p);
      gpu::store(a + (2 * i + 1) * in + c, q);
      return;
    }
    Pack<real_t<T>, N> sum, product;
#pragma unroll
    for (int l = 0; l < N; ++l) {
      sum.at[l] = p.at[l] + q.at[l];
      product.at[l] = p.at[l] * q.at[l];
    }
    gpu::store(a + i * in + c, sum);
    if (kind == Aggregator::bi_interaction) gpu::store(b + i * in + c, product);
  }
};

template <class T>
struct Split {
  using R = real_t<T>;
  Aggregator kind;
  std::int64_t in;
  R *dx, *ds;
  const T *da, *db;
  const R *x, *s;
  /// Loads gradients and removes the factor kGradientScale.
  template <int N>
  __device__ static Pack<R, N> scaled_down(const T* p) {
    Pack<R, N> d = gpu::load<N>(p);
    if constexpr (kGradientScale<T> != 1) {
#pragma unroll
      for (int l = 0; l < N; ++l) d.at[l] *= 1 / kGradientScale<T>;
    }
    return d;
  }
  template <int N>
  __device__ void at(std::int64_t i, std::int64_t node, std::int64_t c) const {
    const std::int64_t to = node * in + c;
    if (kind == Aggregator::graphsage) {
      gpu::store(dx + to, scaled_down<N>(da + 2 * i * in + c));
      gpu::store(ds + to, scaled_down<N>(da + (2 * i + 1) * in + c));
      return;
    }
    Pack<R, N> of_x = scaled_down<N>(da + i * in + c), of_s = of_x;
    if (kind == Aggregator::bi_interaction) {
      const Pack<R, N> product = scaled_down<N>(db + i * in + c), p = gpu::load<N>(x + to), q = gpu::load<N>(s + to);
#pragma unroll
      for (int l = 0; l < N; ++l) {
        of_x.at[l] += product.at[l] * q.at[l];
        of_s.at[l] += product.at[l] * p.at[l];
      }
    }
    gpu::store(dx + to, of_x);
    gpu::store(ds + to, of_s);
  }
};

/// One warp per row. A lane has columns lane, lane + 32, ...; four of its columns share one Philox block. Memory bound:
/// reads both branches, writes the row and its marks.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps)
    activate_kernel(gpu::Earlier earlier, RowSet rows, std::int64_t width, real_t<T>* __restrict__ out,
                    std::uint8_t* __restrict__ marks, Branches<T> of, Dropout dropout, gpu::Drop<real_t<T>> drop) {
  earlier.wait();
  using R = real_t<T>;
  const std::int64_t i = gpu::warp_row();
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
      const R p = gpu::load(of.z1 + i * width + c) + of.bias1[c];
      R value = p > 0 ? p : p * of.slope;
      std::uint8_t mark = p > 0 ? cpu::kKept | cpu::kFirst : cpu::kKept;
      if (of.z2 != nullptr) {
        const R q = gpu::load(of.z2 + i * width + c) + of.bias2[c];
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

/// Computes the derivative inside the column sums, so that each element is read once.
template <class T>
struct Derive {
  using R = real_t<T>;
  RowSet rows;
  std::int64_t width;
  T *d1, *d2;
  const R* dout;
  const std::uint8_t* marks;
  R slope, scale;
  struct Value {
    R dout;
    std::uint8_t mark;
  };
  __device__ Value read(std::int64_t i, std::int64_t c) const {
    const std::int64_t from = rows[i] * width + c;
    return {dout[from], marks[from]};
  }
  __device__ void add(std::int64_t i, std::int64_t c, const Value& value, R (&sum)[2]) const {
    const std::int64_t to = i * width + c;
    const std::uint8_t mark = value.mark;
    const R kept = mark & cpu::kKept ? value.dout * scale : R{0};
    const R p = mark & cpu::kFirst ? kept : kept * slope;
    gpu::store(d1 + to, p * kGradientScale<T>), sum[0] += p;
    if (d2 == nullptr) return;
    const R q = mark & cpu::kSecond ? kept : kept * slope;
    gpu::store(d2 + to, q * kGradientScale<T>), sum[1] += q;
  }
};

/// Whether all arrays are aligned for packs of their types.
template <class T>
bool all_aligned(const T* a, const T* b, const real_t<T>* p, const real_t<T>* q, const real_t<T>* r = nullptr,
                 const real_t<T>* s = nullptr) {
  return gpu::aligned_for<gpu::pack_size<real_t<T>>()>(a, b, p, q, r, s);
}

}  // namespace

template <class T>
void combine(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const real_t<T>* x,
             const real_t<T>* s) {
  over_rows<real_t<T>>(stream, rows, in, all_aligned(a, b, x, s), Combine<T>{kind, in, a, b, x, s});
}

template <class T>
void activate(const Stream& stream, const RowSet& rows, std::int64_t width, real_t<T>* out, std::uint8_t* marks,
              const Branches<T>& branches, const AggregateLayer& layer) {
  gpu::launch(stream, gpu::warp_per_row(rows.size()), activate_kernel<T>, rows, width, out, marks, branches,
              Dropout{.rate = layer.dropout,
                      .seed = layer.seed,
                      .step = layer.step,
                      .site = layer.site,
                      .step_on_gpu = layer.step_on_gpu},
              gpu::Drop<real_t<T>>(cpu::DropRate(layer.dropout)));
}

template <class T>
void derive(const Stream& stream, const RowSet& rows, std::int64_t width, T* d1, T* d2, real_t<T>* dbias1,
            real_t<T>* dbias2, const real_t<T>* dout, const std::uint8_t* marks, real_t<T> slope, real_t<T> scale) {
  gpu::column_sums(stream, rows.size(), width, gpu::ColumnSums<real_t<T>, 2>{{dbias1, dbias2}, {true, true}},
                   Derive<T>{rows, width, d1, d2, dout, marks, slope, scale});
}

template <class T>
void split(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, real_t<T>* dx, real_t<T>* ds,
           const T* da, const T* db, const real_t<T>* x, const real_t<T>* s) {
  over_rows<real_t<T>>(stream, rows, in, all_aligned(da, db, dx, ds, x, s), Split<T>{kind, in, dx, ds, da, db, x, s});
}

LOCKSTEP_EACH_STORAGE(combine, activate, derive, split)

}  // namespace lockstep::ops::cuda
