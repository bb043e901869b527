#include "lockstep/ops/aggregate.hpp"

#include "lockstep/ops/dispatch.hpp"
#include "ops/common/philox_group.hpp"

namespace lockstep::ops::cpu {

/// Bits of AggregateRows::marks.
enum Mark : std::uint8_t { kFirst = 1, kSecond = 2, kKept = 4 };

/// The element-wise kernels around the matrix products of a layer. Row i of a, b, z and d belongs to node rows[i].
template <class T>
struct AggregateKernels {
  /// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s].
  void (*combine)(Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const T* x, const T* s);
  /// Draws groups 0 .. groups-1 of a stream; see philox_group.hpp.
  void (*draw)(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words);
  /// out = (f(z1 + bias1) + f(z2 + bias2)) keep scale; a null z2 is left out. The draws of row i start at draws + i
  /// stride; null draws keep everything.
  void (*activate)(const RowSet& rows, std::int64_t width, T* out, std::uint8_t* marks, const T* z1, const T* bias1,
                   const T* z2, const T* bias2, T slope, const std::uint16_t* draws, std::int64_t stride,
                   std::int32_t threshold, T scale);
  /// d1 = dout keep scale f'(z1), and d2 likewise. Adds their column sums to dbias1 and dbias2.
  void (*derive)(const RowSet& rows, std::int64_t width, T* d1, T* d2, T* dbias1, T* dbias2, const T* dout,
                 const std::uint8_t* marks, T slope, T scale);
  /// Stores the gradients of x and s, computed from da (and db).
  void (*split)(Aggregator kind, const RowSet& rows, std::int64_t in, T* dx, T* ds, const T* da, const T* db,
                const T* x, const T* s);
};

LOCKSTEP_KERNELS(AggregateKernels, aggregate_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/philox_simd.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Prefetch distance in rows. The rows of a chunk come from memory: without prefetches, half of a kernel's time is
/// spent waiting for them.
constexpr std::int64_t kPrefetch = 8, kLine = 64;

/// Prefetches the row of a table that is needed kPrefetch rows after row i.
template <class T>
LOCKSTEP_INLINE void prefetch(const RowSet& rows, std::int64_t i, const T* table, std::int64_t width) {
  if (i + kPrefetch >= rows.size()) return;
  const char* row = reinterpret_cast<const char*>(table + rows[i + kPrefetch] * width);
  for (std::int64_t b = 0; b < width * static_cast<std::int64_t>(sizeof(T)); b += kLine) __builtin_prefetch(row + b);
}

template <class T>
void combine(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ a, T* __restrict__ b,
             const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const T *xi = x + rows[i] * in, *si = s + rows[i] * in;
    prefetch(rows, i, x, in);
    prefetch(rows, i, s, in);
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        for (std::int64_t c = 0; c < in; ++c) b[i * in + c] = xi[c] * si[c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) a[i * in + c] = xi[c] + si[c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) a[2 * i * in + c] = xi[c];
        for (std::int64_t c = 0; c < in; ++c) a[(2 * i + 1) * in + c] = si[c];
        break;
    }
  }
}

void draw(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words) {
  for (std::int64_t g = 0; g < groups; ++g) philox_group(key, static_cast<std::uint64_t>(g), words + g * kGroupWords);
}

/// A vector of U with as many elements as a vector of T.
template <class U, int kCount>
struct NarrowOf {
  typedef U type __attribute__((vector_size(kCount * sizeof(U))));
  typedef U unaligned __attribute__((vector_size(kCount * sizeof(U)), aligned(alignof(U)), may_alias));
};

/// Loads `count` elements of U into the lanes of a vector. `count` is below the number of lanes only at the end of a
/// row.
template <class T, class U>
LOCKSTEP_INLINE Vec<IntOf<T>> widened(const U* p, std::int64_t count) {
  using Narrow = typename NarrowOf<U, kLanes<T>>::unaligned;
  if (count == kLanes<T>) {
#if defined(LOCKSTEP_ISA_avx512)
    // GCC 12 converts a vector of bytes element by element, and warns about the intrinsic without a mask.
    if constexpr (std::is_same_v<T, float> && sizeof(U) == 1)
      return (Vec<IntOf<T>>)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(LOCKSTEP_ISA_avx2)
    if constexpr (std::is_same_v<T, float> && sizeof(U) == 1)
      return (Vec<IntOf<T>>)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#endif
    return __builtin_convertvector(*reinterpret_cast<const Narrow*>(p), Vec<IntOf<T>>);
  }
  Vec<IntOf<T>> v{};
  for (std::int64_t i = 0; i < count; ++i) v[i] = static_cast<IntOf<T>>(p[i]);
  return v;
}
template <class T>
LOCKSTEP_INLINE void store_bytes(std::uint8_t* p, Vec<IntOf<T>> v, std::int64_t count) {
  using Narrow = NarrowOf<std::uint8_t, kLanes<T>>;
  const auto bytes = __builtin_convertvector(v, typename Narrow::type);
  if (count == kLanes<T>) {
    *reinterpret_cast<typename Narrow::unaligned*>(p) = bytes;
  } else {
    for (std::int64_t i = 0; i < count; ++i) p[i] = bytes[i];
  }
}
template <class T>
LOCKSTEP_INLINE Vec<T> load_first(const T* p, std::int64_t count) {
  return count == kLanes<T> ? load(p) : load(p, Lanes<T>(count));
}
template <class T>
LOCKSTEP_INLINE void store_first(T* p, Vec<T> v, std::int64_t count) {
  count == kLanes<T> ? store(p, v) : store(p, v, Lanes<T>(count));
}
/// Calls f(column, columns) for each vector of a row; only the last one may be partial.
template <class T, class F>
LOCKSTEP_INLINE void in_vectors(std::int64_t width, const F& f) {
  std::int64_t c = 0;
  for (; c + kLanes<T> <= width; c += kLanes<T>) f(c, std::int64_t{kLanes<T>});
  if (c < width) f(c, width - c);
}

template <class T>
void activate(const RowSet& rows, std::int64_t width, T* __restrict__ out, std::uint8_t* __restrict__ marks,
              const T* __restrict__ z1, const T* __restrict__ bias1, const T* __restrict__ z2,
              const T* __restrict__ bias2, T slope, const std::uint16_t* __restrict__ draws, std::int64_t stride,
              std::int32_t threshold, T scale) {
  using I = Vec<IntOf<T>>;
  const Vec<T> zero{}, factor = splat(scale), below = splat(slope);
  const I limit = splat<IntOf<T>>(threshold), first = splat<IntOf<T>>(kFirst), second = splat<IntOf<T>>(kSecond),
          kept = splat<IntOf<T>>(kKept);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::int64_t to = rows[i] * width, from = i * width;
    in_vectors<T>(
        width, [&](std::int64_t c, std::int64_t count) __attribute__((always_inline)) {
          const Vec<T> p = load_first(z1 + from + c, count) + load_first(bias1 + c, count);
          Vec<T> o = p > zero ? p : p * below;
          I mark = kept | (first & (p > zero));
          if (z2 != nullptr) {
            const Vec<T> q = load_first(z2 + from + c, count) + load_first(bias2 + c, count);
            o += q > zero ? q : q * below;
            mark |= second & (q > zero);
          }
          if (draws != nullptr) {
            const I keep = widened<T>(draws + i * stride + c, count) >= limit;
            o = keep ? o * factor : zero;
            mark &= keep;
          }
          store_first(out + to + c, o, count);
          if (marks != nullptr) store_bytes<T>(marks + to + c, mark, count);
        });
  }
}

template <class T>
void derive(const RowSet& rows, std::int64_t width, T* __restrict__ d1, T* __restrict__ d2, T* __restrict__ dbias1,
            T* __restrict__ dbias2, const T* __restrict__ dout, const std::uint8_t* __restrict__ marks, T slope,
            T scale) {
  using I = Vec<IntOf<T>>;
  const Vec<T> zero{}, factor = splat(scale), below = splat(slope);
  const I none{}, first = splat<IntOf<T>>(kFirst), second = splat<IntOf<T>>(kSecond), kept = splat<IntOf<T>>(kKept);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::int64_t from = rows[i] * width, to = i * width;
    prefetch(rows, i, dout, width);
    prefetch(rows, i, marks, width);
    in_vectors<T>(
        width, [&](std::int64_t c, std::int64_t count) __attribute__((always_inline)) {
          const I mark = widened<T>(marks + from + c, count);
          const Vec<T> g = (mark & kept) != none ? load_first(dout + from + c, count) * factor : zero;
          const Vec<T> p = (mark & first) != none ? g : g * below;
          store_first(d1 + to + c, p, count);
          store_first(dbias1 + c, load_first(dbias1 + c, count) + p, count);
          if (d2 == nullptr) return;
          const Vec<T> q = (mark & second) != none ? g : g * below;
          store_first(d2 + to + c, q, count);
          store_first(dbias2 + c, load_first(dbias2 + c, count) + q, count);
        });
  }
}

template <class T>
void split(Aggregator kind, const RowSet& rows, std::int64_t in, T* __restrict__ dx, T* __restrict__ ds,
           const T* __restrict__ da, const T* __restrict__ db, const T* __restrict__ x, const T* __restrict__ s) {
  const std::int64_t count = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = rows[i] * in;
    switch (kind) {
      case Aggregator::bi_interaction:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[i * in + c] + db[i * in + c] * x[at + c];
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[i * in + c] + db[i * in + c] * s[at + c];
        break;
      case Aggregator::gcn:
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = dx[at + c] = da[i * in + c];
        break;
      case Aggregator::graphsage:
        for (std::int64_t c = 0; c < in; ++c) dx[at + c] = da[2 * i * in + c];
        for (std::int64_t c = 0; c < in; ++c) ds[at + c] = da[(2 * i + 1) * in + c];
        break;
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(AggregateKernels, aggregate_kernels, combine<T>, draw, activate<T>, derive<T>, split<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/philox_cuda.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;
using gpu::Pack;

/// Factor of d1, d2 and everything computed from them. Without it, in f16 the gradients of a mean over a batch would
/// fall below the smallest numbers.
template <class T>
inline constexpr real_t<T> kGradientScale = 1;
template <>
inline constexpr float kGradientScale<f16> = 4096;

template <class T>
struct Branches {
  const T* z1;
  const real_t<T>* bias1;
  const T* z2;
  const real_t<T>* bias2;
  real_t<T> slope;
};
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

/// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s]. Row i of a and b is that of node
/// rows[i].
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

/// The gradients of x and s from da (and db), which are kGradientScale times too large.
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

/// out = (f(z1 + bias1) + f(z2 + bias2)) keep / (1 - p). Stores marks unless null. A null z2 is left out.
///
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

/// d1 = dout keep f'(z1) / (1 - p) kGradientScale, and d2 likewise; the sums are without kGradientScale.
///
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

struct Extents {
  std::int64_t in, out, mixed;  ///< mixed: columns of the first product's operand
  bool two;                     ///< whether the layer has two branches
  Extents(const AggregateLayer& layer, const AggregateRows& rows)
      : in(rows.x.columns()),
        out(rows.out.columns()),
        mixed(layer.kind == Aggregator::graphsage ? 2 * in : in),
        two(layer.kind == Aggregator::bi_interaction) {
    const bool fits = layer.weight1.shape() == Shape{out, mixed} && layer.bias1.size() == out &&
                      rows.s.shape() == rows.x.shape() && rows.out.rows() == rows.x.rows() &&
                      (!two || (layer.weight2.shape() == Shape{out, in} && layer.bias2.size() == out));
    if (!fits)
      throw Error(Fault::internal,
                  join("aggregate: x ", rows.x.shape(), ", s ", rows.s.shape(), ", weights ", layer.weight1.shape(),
                       " and ", layer.weight2.shape(), ", out ", rows.out.shape(), " do not fit"));
  }
};

/// Operands (a, b; in the backward d1, d2) and results (z1, z2) of the products, one row for each row of the block. b,
/// z2 and d2 exist only if the layer has two branches.
struct Operands {
  Tensor a, b, z1, z2;
  Operands(Arena& scratch, DType dtype, std::int64_t rows, const Extents& e)
      : a(allocate(scratch, dtype, {rows, e.mixed})),
        b(e.two ? allocate(scratch, dtype, {rows, e.in}) : Tensor()),
        z1(allocate(scratch, dtype, {rows, e.out})),
        z2(e.two ? allocate(scratch, dtype, {rows, e.out}) : Tensor()) {}
};

template <class T>
void combine(const Stream& stream, Aggregator kind, const RowSet& block, const Operands& o, const AggregateRows& rows) {
  over_rows<real_t<T>>(stream, block, rows.x.columns(), all_aligned<T>(o.a, o.b, rows.x, rows.s),
                       Combine<T>{kind, rows.x.columns(), o.a, o.b, rows.x, rows.s});
}

/// T: the operand type of the products.
template <class T>
void forward_on_gpu(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                    const RowSet& block, const Extents& e) {
  using R = real_t<T>;
  const Operands o(scratch, dtype_of<T>::value, block.size(), e);
  combine<T>(stream, layer.kind, block, o, rows);
  gemm_nt(stream, {o.z1}, o.a, layer.weight1);
  if (e.two) gemm_nt(stream, {o.z2}, o.b, layer.weight2);
  const Branches<T> branches = {o.z1, layer.bias1, o.z2, e.two ? layer.bias2.data<R>() : nullptr,
                                static_cast<R>(layer.slope)};
  gpu::launch(stream, gpu::warp_per_row(block.size()), activate_kernel<T>, block, e.out, rows.out.data<R>(),
              rows.marks.data<std::uint8_t>(), branches,
              Dropout{.rate = layer.dropout,
                      .seed = layer.seed,
                      .step = layer.step,
                      .site = layer.site,
                      .step_on_gpu = layer.step_on_gpu},
              gpu::Drop<R>(cpu::DropRate(layer.dropout)));
}

/// dweight += d' a / kGradientScale<T>.
template <class T>
void add_product(Stream& stream, Arena& scratch, const Tensor& dweight, const Tensor& d, const Tensor& a) {
  constexpr auto kScale = static_cast<double>(kGradientScale<T>);
  if constexpr (kScale == 1) {
    gemm_tn(stream, {dweight, true}, d, a);
  } else {
    const Tensor product = allocate(scratch, dweight.dtype(), dweight.shape());
    gemm_tn(stream, {product}, d, a);
    scale(stream, {dweight, true}, product, 1 / kScale);
  }
}

template <class T>
void backward_on_gpu(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                     const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                     const AggregateLayer& gradient, const Extents& e) {
  using R = real_t<T>;
  const Operands o(scratch, dtype_of<T>::value, block.size(), e);
  gpu::column_sums(stream, block.size(), e.out,
                   gpu::ColumnSums<R, 2>{{gradient.bias1, e.two ? gradient.bias2.data<R>() : nullptr}, {true, true}},
                   Derive<T>{block, e.out, o.z1, o.z2, dout, rows.marks, static_cast<R>(layer.slope),
                             static_cast<R>(cpu::DropRate(layer.dropout).scale)});
  combine<T>(stream, layer.kind, block, o, rows);
  add_product<T>(stream, scratch, gradient.weight1, o.z1, o.a);
  if (e.two) add_product<T>(stream, scratch, gradient.weight2, o.z2, o.b);
  gemm_nn(stream, {o.a}, o.z1, layer.weight1);
  if (e.two) gemm_nn(stream, {o.b}, o.z2, layer.weight2);
  over_rows<R>(stream, block, e.in, all_aligned<T>(o.a, o.b, dx, ds, rows.x, rows.s),
               Split<T>{layer.kind, e.in, dx, ds, o.a, o.b, rows.x, rows.s});
}

}  // namespace

void aggregate_forward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                       const RowSet& block) {
  const Extents e(layer, rows);
  const std::int64_t m = block.size();
  on_gpu(layer.weight1, [&]<class T>() { forward_on_gpu<T>(stream, scratch, layer, rows, block, e); });
  on_cpu(rows.x, [&]<class T>() {
    const auto kernels = cpu::active_aggregate_kernels<T>();
    const Operands o(scratch, dtype_of<T>::value, m, e);
    kernels.combine(layer.kind, block, e.in, o.a, o.b, rows.x, rows.s);
    gemm_nt(stream, {o.z1}, o.a, layer.weight1);
    if (e.two) gemm_nt(stream, {o.z2}, o.b, layer.weight2);
    // A row starts with a new group of Philox words.
    const std::int64_t groups = (e.out + 2 * cpu::kGroupWords - 1) / (2 * cpu::kGroupWords);
    std::uint32_t* words = nullptr;
    if (layer.dropout > 0) {
      words = scratch.array<std::uint32_t>(m * groups * cpu::kGroupWords).data();
      for (std::int64_t i = 0; i < m; ++i) {
        const Philox draws(layer.seed, layer.step, layer.site, static_cast<std::uint64_t>(block[i]));
        kernels.draw(cpu::PhiloxKey(draws), groups, words + i * groups * cpu::kGroupWords);
      }
    }
    const cpu::DropRate rate(layer.dropout);
    kernels.activate(block, e.out, rows.out, rows.marks, o.z1, layer.bias1, o.z2,
                     e.two ? layer.bias2.data<T>() : nullptr, static_cast<T>(layer.slope),
                     reinterpret_cast<const std::uint16_t*>(words), 2 * groups * cpu::kGroupWords, rate.threshold,
                     static_cast<T>(rate.scale));
  });
}

void aggregate_backward(Stream& stream, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                        const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                        const AggregateLayer& gradient) {
  const Extents e(layer, rows);
  on_gpu(layer.weight1,
         [&]<class T>() { backward_on_gpu<T>(stream, scratch, layer, rows, block, dout, ds, dx, gradient, e); });
  on_cpu(rows.x, [&]<class T>() {
    const auto kernels = cpu::active_aggregate_kernels<T>();
    const Operands o(scratch, dtype_of<T>::value, block.size(), e);
    const T *x = rows.x.data<const T>(), *s = rows.s.data<const T>();
    kernels.derive(block, e.out, o.z1, o.z2, gradient.bias1, e.two ? gradient.bias2.data<T>() : nullptr, dout,
                   rows.marks, static_cast<T>(layer.slope), static_cast<T>(cpu::DropRate(layer.dropout).scale));
    kernels.combine(layer.kind, block, e.in, o.a, o.b, x, s);
    gemm_tn(stream, {gradient.weight1, true}, o.z1, o.a);
    if (e.two) gemm_tn(stream, {gradient.weight2, true}, o.z2, o.b);
    gemm_nn(stream, {o.a}, o.z1, layer.weight1);
    if (e.two) gemm_nn(stream, {o.b}, o.z2, layer.weight2);
    kernels.split(layer.kind, block, e.in, dx, ds, o.a, o.b, x, s);
  });
}

}  // namespace lockstep::ops
#endif
