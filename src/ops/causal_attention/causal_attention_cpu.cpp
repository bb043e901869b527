// Works on blocks of queries: one small product gives the scores of a block with all its keys, then the softmax of each
// row and the products with values or gradients follow while the scores are in cache.
#include <cmath>

#include "causal_attention_kernels.hpp"
#include "ops/common/vecmath.hpp"
#include "ops/dropout/dropout_rows.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "time_clipping.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Queries in a block, a multiple of the tile height: large enough for efficient products, small enough that two blocks
/// of scores fit in the second-level cache.
constexpr std::int64_t kBlock = kVectorRegisters == 32 ? 56 : 60;

/// The largest element. NaNs may be skipped: they show up in the sum of exponentials.
template <class T>
LOCKSTEP_INLINE T largest(const T* s, std::int64_t n) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> v = splat(s[0]);
  std::int64_t j = 0;
  for (; j + kL <= n; j += kL) v = max(v, load(s + j));
  if (j < n) v = max(v, first_lanes<T>(load(s + j), n - j, s[0]));
  return largest_lane<T>(v);
}

/// s_j <- exp(scale s_j - shift) for j < n, and 0 up to the next whole vector; returns the sum.
template <class T>
LOCKSTEP_INLINE T exponentials(T* s, std::int64_t n, T scale, T shift) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> sum{};
  for (std::int64_t j = 0; j < n; j += kL) {
    Vec<T> e = exp(fma(load(s + j), splat(scale), splat(-shift)));
    if (n - j < kL) e = first_lanes<T>(e, n - j, T{0});
    store(s + j, e);
    sum += e;
  }
  return total<T>(sum);
}

/// Clears the elements after a row of n (padded to a whole vector) that tiles at the diagonal read.
template <class T>
LOCKSTEP_INLINE void clear_after(T* s, std::int64_t n) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t j = round_up(n, kL); j < n + kMostTileRows; j += kL) store(s + j, Vec<T>{});
}

/// out_cn = a_nc: converts n rows of E channels to E rows of `out_stride` elements.
template <class T>
void transpose_rows(T* out, std::int64_t out_stride, const T* a, std::int64_t stride, std::int64_t n,
                    std::int64_t width) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t i = 0; i < n; i += kL) {
    const std::int64_t rows = n - i < kL ? n - i : kL;
    for (std::int64_t c = 0; c < width; c += kL) {
      const std::int64_t columns = width - c < kL ? width - c : kL;
      const T* from = a + i * stride + c;
      Vec<T> v[kL];
      if (rows == kL && columns == kL) {
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r) v[r] = load(from + r * stride);
        transpose<T>(v);
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r) store(out + (c + r) * out_stride + i, v[r]);
        continue;
      }
      const Lanes<T> lanes(columns);
#pragma GCC unroll 16
      for (int r = 0; r < kL; ++r) v[r] = r < rows ? load(from + r * stride, lanes) : Vec<T>{};
      transpose<T>(v);
#pragma GCC unroll 16
      for (int r = 0; r < kL; ++r)
        if (r < columns) store(out + (c + r) * out_stride + i, v[r]);
    }
  }
}

/// Copies a row's channels and pads it with zeros to `padded` channels: the width itself, or whole vectors.
template <class T>
LOCKSTEP_INLINE void copy_row(T* out, std::int64_t padded, const T* row, std::int64_t width) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t c = 0;
  for (; c + kL <= width; c += kL) store(out + c, load(row + c));
  if (c < width) {
    const Vec<T> rest = load(row + c, Lanes<T>(width - c));
    padded > width ? store(out + c, rest) : store(out + c, rest, Lanes<T>(width - c));
    c += kL;
  }
  for (; c < padded; c += kL) store(out + c, Vec<T>{});
}
template <class T>
LOCKSTEP_INLINE void add_row(T* out, const T* row, std::int64_t width) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t c = 0; c < width; c += kL) {
    const Lanes<T> lanes(width - c < kL ? width - c : kL);
    store(out + c, load(out + c, lanes) + load(row + c, lanes), lanes);
  }
}

/// Stride of the rows of scores: the length, the elements that tiles write beyond the diagonal, and padding to an odd
/// number of cache lines, so that elements of one column do not compete for the same cache sets.
template <class T>
std::int64_t score_stride(std::int64_t length) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  return (round_up(length + kMostTileRows + kLanes<T>, kLine) / kLine | 1) * kLine;
}

/// Scratch memory of one head, for both passes: the transposed keys, the scores of a block, and its time terms.
template <class T, int NV>
struct Workspace {
  std::int64_t columns;         ///< see score_stride()
  T *kt, *vt, *scores, *grads;  ///< (E, columns) twice, (kBlock, columns) twice
  T* sum;                       ///< one row of channels
  T *rows, *drows;              ///< kTogether rows of channels each
  std::uint16_t* draws;         ///< of the dropout of kTogether rows
  std::int64_t padded;          ///< channels in a row
  TimeRows<T, NV> time;

  Workspace(const CausalHead<T>& h, bool backward) : Workspace(h, backward, score_stride<T>(h.length)) {}

 private:
  Workspace(const CausalHead<T>& h, bool backward, std::int64_t cols)
      : Workspace(h, backward, cols,
                  static_cast<char*>(thread_scratch(Scratch::attention,
                                                    static_cast<std::size_t>(floats(h, backward, cols)) * sizeof(T) +
                                                        static_cast<std::size_t>(time_bytes(h))))) {}
  Workspace(const CausalHead<T>& h, bool backward, std::int64_t cols, char* memory)
      : columns(cols), time(h, memory + floats(h, backward, cols) * static_cast<std::int64_t>(sizeof(T))) {
    T* at = reinterpret_cast<T*>(memory);
    const auto take = [&](std::int64_t n) { return at += n, at - n; };
    kt = take(h.width * cols);
    scores = take(kBlock * cols);
    vt = backward ? take(h.width * cols) : nullptr;
    grads = backward ? take(kBlock * cols) : nullptr;
    padded = round_up(h.width, 64 * NV);
    sum = take(padded);
    rows = take(kTogether * padded);
    drows = take(kTogether * padded);
    draws = reinterpret_cast<std::uint16_t*>(at);
  }
  static std::int64_t floats(const CausalHead<T>& h, bool backward, std::int64_t cols) {
    return (backward ? 2 : 1) * (h.width + kBlock) * cols + (2 * kTogether + 1) * round_up(h.width, 64 * NV) +
           kTogether * draw_floats(cols);
  }
  static std::int64_t draw_floats(std::int64_t cols) { return round_up(cols, 2 * kGroupWords); }

 public:
  std::uint16_t* draws_of(std::int64_t slot) const { return draws + slot * 2 * draw_floats(columns); }
  T* row(std::int64_t slot) const { return rows + slot * padded; }
  T* drow(std::int64_t slot) const { return drows + slot * padded; }
  /// Rows of a block that go through the same steps together.
  std::int64_t together(const CausalHead<T>& h) const { return h.time.keys ? time.together() : kTogether; }

 private:
  static std::int64_t time_bytes(const CausalHead<T>& h) {
    return h.time.keys ? TimeRows<T, NV>::scratch_bytes(h.length, h.width) : 0;
  }
};

/// The products of rows [first, end) of a with all keys that any of them sees: (end - first, columns).
template <class T>
void block_scores(const CausalHead<T>& h, std::int64_t first, std::int64_t end, std::int64_t keys, T* out,
                  std::int64_t columns, const T* a, std::int64_t stride, const T* transposed) {
  strided_product<T>({.m = end - first,
                      .n = round_up(keys, kLanes<T>),
                      .k = h.width,
                      .c = out,
                      .c_stride = columns,
                      .a = a + first * stride,
                      .a_stride = stride,
                      .a_by_columns = false,
                      .b = transposed,
                      .b_stride = columns,
                      .add = false,
                      .triangle = h.filled ? Triangle::none : Triangle::lower_c,
                      .diagonal = first});
}

/// Adds the time terms to the row's scores, then fills or excludes the later keys. Returns how many keys count. Scores
/// are not yet scaled.
template <class T, int NV>
LOCKSTEP_INLINE std::int64_t finish_scores(const CausalHead<T>& h, Workspace<T, NV>& w, std::int64_t i,
                                           std::int64_t slot, T* s, T scale) {
  if (h.time.keys) {
    copy_row(w.row(slot), w.time.width(), h.q + i * h.stride, h.width);
    w.time.begin(i, slot);
    w.time.template add_products<0>(h.time.keys, w.row(slot), s);
  }
  const std::int64_t count = h.filled ? h.length : i + 1;
  for (std::int64_t j = i + 1; j < count; ++j) s[j] = h.fill / scale;
  return count;
}

/// The draws of query i's dropout.
template <class T>
LOCKSTEP_INLINE void draw_row(const CausalHead<T>& h, std::int64_t i, std::int64_t count, std::uint16_t* draws) {
  std::uint64_t group = static_cast<std::uint64_t>(i) << 28;
  for (std::int64_t j = 0; j < count; j += 2 * kGroupWords, ++group)
    philox_group(h.draws, group, reinterpret_cast<std::uint32_t*>(draws + j));
  asm volatile("" : : : "memory");  // the words are read as 16-bit numbers
}

template <class T, int NV>
void forward(const CausalHead<T>& h) {
  constexpr std::int64_t kL = kLanes<T>;
  Workspace<T, NV> w(h, false);
  const T scale = 1 / root(static_cast<T>(h.width));
  transpose_rows(w.kt, w.columns, h.k, h.kv_stride, h.length, h.width);
  for (std::int64_t i = 0; i < h.first_query; ++i)
    for (std::int64_t c = 0; c < h.width; ++c) h.y[i * h.y_stride + c] = 0;
  for (std::int64_t first = h.first_query; first < h.length; first += kBlock) {
    const std::int64_t end = first + kBlock < h.length ? first + kBlock : h.length;
    const std::int64_t keys = h.filled ? h.length : end;
    block_scores(h, first, end, keys, w.scores, w.columns, h.q, h.stride, w.kt);
    for (std::int64_t begin = first, rows = w.together(h); begin < end; begin += rows) {
      const std::int64_t these = begin + rows < end ? rows : end - begin;
      T* const scores = w.scores + (begin - first) * w.columns;
      std::int64_t count[kTogether];
      T top[kTogether], sum[kTogether];
      for (std::int64_t r = 0; r < these; ++r)
        count[r] = finish_scores(h, w, begin + r, r, scores + r * w.columns, scale);
      for (std::int64_t r = 0; r < these; ++r) top[r] = scale * largest(scores + r * w.columns, count[r]);
      for (std::int64_t r = 0; r < these && h.drop; ++r) draw_row(h, begin + r, count[r], w.draws_of(r));
      for (std::int64_t r = 0; r < these; ++r) sum[r] = exponentials(scores + r * w.columns, count[r], scale, top[r]);
      for (std::int64_t r = 0; r < these; ++r) {
        T* s = scores + r * w.columns;
        if (h.logsum) h.logsum[(begin + r) * h.logsum_stride] = top[r] + std::log(sum[r]);
        if (h.drop) {
          const Vec<T> factor = splat(static_cast<T>(h.rate.scale) / sum[r]);
          for (std::int64_t j = 0; j < count[r]; j += kL)
            store(s + j, keep(load(s + j) * factor, w.draws_of(r) + j, h.rate.threshold));
        } else {
          const Vec<T> factor = splat(1 / sum[r]);
          for (std::int64_t j = 0; j < count[r]; j += kL) store(s + j, load(s + j) * factor);
        }
        clear_after(s, count[r]);
      }
      for (std::int64_t r = 0; r < these && h.time.keys; ++r) {
        w.time.resume(r);
        w.time.sum_values(scores + r * w.columns, h.time.values, w.sum);
        copy_row(h.y + (begin + r) * h.y_stride, h.width, w.sum, h.width);
      }
    }
    strided_product<T>({.m = end - first,
                        .n = h.width,
                        .k = keys,
                        .c = h.y + first * h.y_stride,
                        .c_stride = h.y_stride,
                        .a = w.scores,
                        .a_stride = w.columns,
                        .a_by_columns = false,
                        .b = h.v,
                        .b_stride = h.kv_stride,
                        .add = h.time.keys != nullptr,
                        .triangle = h.filled ? Triangle::none : Triangle::lower_a,
                        .diagonal = first});
  }
}

/// Replaces scores s by weights, and dp, the gradients of dropped weights, by gradients of weights; returns the sum of
/// their products.
template <class T>
LOCKSTEP_INLINE T weight_gradients(const CausalHead<T>& h, std::int64_t count, T* s, T* dp, T scale, T logsum,
                                   const std::uint16_t* draws) {
  constexpr std::int64_t kL = kLanes<T>;
  const Vec<T> kept = splat(static_cast<T>(h.rate.scale));
  Vec<T> products{};
  for (std::int64_t j = 0; j < count; j += kL) {
    Vec<T> p = exp(fma(load(s + j), splat(scale), splat(-logsum))), d = load(dp + j);
    if (h.drop) d = keep(d * kept, draws + j, h.rate.threshold);
    if (count - j < kL) {
      p = first_lanes<T>(p, count - j, T{0});
      d = first_lanes<T>(d, count - j, T{0});
    }
    products = fma(p, d, products);
    store(s + j, p);
    store(dp + j, d);
  }
  return total<T>(products);
}

/// Replaces weights s by dropped weights, and their gradients dp by gradients of the scores. weight_gradients() and
/// this function use the same draws.
template <class T>
LOCKSTEP_INLINE void score_gradients(const CausalHead<T>& h, std::int64_t count, T* s, T* dp, T scale, T products,
                                     const std::uint16_t* draws) {
  constexpr std::int64_t kL = kLanes<T>;
  const Vec<T> kept = splat(static_cast<T>(h.rate.scale)), mean = splat(products);
  for (std::int64_t j = 0; j < count; j += kL) {
    const Vec<T> p = load(s + j);
    store(dp + j, p * (load(dp + j) - mean) * splat(scale));
    if (h.drop) store(s + j, keep(p * kept, draws + j, h.rate.threshold));
  }
}

template <class T, int NV>
void backward(const CausalHead<T>& h) {
  Workspace<T, NV> w(h, true);
  const T scale = 1 / root(static_cast<T>(h.width));
  transpose_rows(w.kt, w.columns, h.k, h.kv_stride, h.length, h.width);
  transpose_rows(w.vt, w.columns, h.v, h.kv_stride, h.length, h.width);
  for (std::int64_t first = h.first_query; first < h.length; first += kBlock) {
    const std::int64_t end = first + kBlock < h.length ? first + kBlock : h.length;
    const std::int64_t keys = h.filled ? h.length : end;
    block_scores(h, first, end, keys, w.scores, w.columns, h.q, h.stride, w.kt);
    block_scores(h, first, end, keys, w.grads, w.columns, h.dy, h.y_stride, w.vt);
    for (std::int64_t begin = first, rows = w.together(h); begin < end; begin += rows) {
      const std::int64_t these = begin + rows < end ? rows : end - begin, at = (begin - first) * w.columns;
      T *const scores = w.scores + at, *const grads = w.grads + at;
      std::int64_t count[kTogether];
      T products[kTogether];
      for (std::int64_t r = 0; r < these; ++r) {
        count[r] = finish_scores(h, w, begin + r, r, scores + r * w.columns, scale);
        if (!h.time.keys) continue;
        copy_row(w.drow(r), w.time.width(), h.dy + (begin + r) * h.y_stride, h.width);
        w.time.template add_products<1>(h.time.values, w.drow(r), grads + r * w.columns);
      }
      for (std::int64_t r = 0; r < these && h.drop; ++r) draw_row(h, begin + r, count[r], w.draws_of(r));
      for (std::int64_t r = 0; r < these; ++r)
        products[r] = weight_gradients(h, count[r], scores + r * w.columns, grads + r * w.columns, scale,
                                       h.logsum[(begin + r) * h.logsum_stride], w.draws_of(r));
      for (std::int64_t r = 0; r < these; ++r) {
        T *p = scores + r * w.columns, *dp = grads + r * w.columns;
        score_gradients(h, count[r], p, dp, scale, products[r], w.draws_of(r));
        for (std::int64_t j = begin + r + 1; j < count[r]; ++j) dp[j] = 0;  // a filled score has no gradient
        clear_after(p, count[r]);
        clear_after(dp, count[r]);
      }
      for (std::int64_t r = 0; r < these && h.time.keys; ++r) {
        w.time.resume(r);
        w.time.gradients(grads + r * w.columns, scores + r * w.columns, h.time.keys, w.sum, w.row(r), h.time.dkeys,
                         w.drow(r), h.time.dvalues);
        add_row(h.dq + (begin + r) * h.stride, w.sum, h.width);
      }
    }
    const auto add_product = [&](T* c, std::int64_t c_stride, std::int64_t m, std::int64_t k, const T* a,
                                 bool by_columns, const T* b, std::int64_t b_stride) {
      const Triangle triangle = by_columns ? Triangle::upper_a : Triangle::lower_a;
      strided_product<T>({.m = m,
                          .n = h.width,
                          .k = k,
                          .c = c,
                          .c_stride = c_stride,
                          .a = a,
                          .a_stride = w.columns,
                          .a_by_columns = by_columns,
                          .b = b,
                          .b_stride = b_stride,
                          .add = true,
                          .triangle = h.filled ? Triangle::none : triangle,
                          .diagonal = first});
    };
    add_product(h.dq + first * h.stride, h.stride, end - first, keys, w.grads, false, h.k, h.kv_stride);
    add_product(h.dk, h.kv_stride, keys, end - first, w.grads, true, h.q + first * h.stride, h.stride);
    add_product(h.dv, h.kv_stride, keys, end - first, w.scores, true, h.dy + first * h.y_stride, h.y_stride);
  }
}

template <class T>
void draw_kept(std::int64_t n, std::uint64_t* kept, const PhiloxKey& key, const DropRate& rate) {
  GroupDraws drawn;
  for (std::int64_t first = 0, group = 0; first < n; first += 2 * kGroupWords, ++group, kept += 2) {
    drawn.draw(key, static_cast<std::uint64_t>(group));
    for (int word = 0; word < 2; ++word) kept[word] = at_least(drawn.draws() + 64 * word, rate.threshold);
  }
}

/// Calls f(at, in_heads, lanes, bits) for each vector of a table's used rows: its first element in the table and in the
/// layout of the heads, the lanes that exist, and which of them are kept.
template <class T, class F>
LOCKSTEP_INLINE void each_table_vector(const TimeLayout& l, const F& f) {
  constexpr std::int64_t kL = kLanes<T>;
  const std::int64_t padded = time_width<T>(l.width);
  for (std::int64_t r = 0; r < l.rows; ++r) {
    if (l.used && l.used[r] == 0) continue;
    for (std::int64_t h = 0; h < l.heads; ++h)
      for (std::int64_t c = 0; c < l.width; c += kL) {
        const std::int64_t at = (r * l.heads + h) * l.width + c, left = l.width - c;
        std::uint32_t bits = ~0u;
        if (l.kept) {
          __builtin_memcpy(&bits, reinterpret_cast<const char*>(l.kept) + at / 8, sizeof(bits));
          bits >>= at % 8;
        }
        f(at, (h * l.rows + r) * padded + c, Lanes<T>(left < kL ? left : kL), bits);
      }
  }
}

template <class T>
LOCKSTEP_INLINE Vec<T> scaled_if_kept(Vec<T> v, Vec<T> scale, std::uint32_t bits) {
  return (Vec<T>)((Vec<IntOf<T>>)(v * scale) & lanes_set<T>(bits));
}

template <class T>
void split_table(const TimeLayout& l, T* heads, T* gradients, const T* table) {
  const Vec<T> scale = splat(static_cast<T>(l.scale));
  const std::int64_t padded = time_width<T>(l.width);
  each_table_vector<T>(l, [&](std::int64_t at, std::int64_t to, Lanes<T> lanes, std::uint32_t bits) {
    store(heads + to, scaled_if_kept<T>(load(table + at, lanes), scale, bits));
    if (gradients) store(gradients + to, Vec<T>{});
  });
  // Pads each row with zeros to whole groups of vectors.
  for (std::int64_t c = round_up(l.width, kLanes<T>); c < padded; c += kLanes<T>)
    for (std::int64_t row = 0; row < l.heads * l.rows; ++row) {
      store(heads + row * padded + c, Vec<T>{});
      if (gradients) store(gradients + row * padded + c, Vec<T>{});
    }
}

template <class T>
void add_to_table(const TimeLayout& l, T* table, const T* heads) {
  const Vec<T> scale = splat(static_cast<T>(l.scale));
  each_table_vector<T>(l, [&](std::int64_t at, std::int64_t from, Lanes<T> lanes, std::uint32_t bits) {
    store(table + at, load(table + at, lanes) + scaled_if_kept<T>(load(heads + from), scale, bits), lanes);
  });
}

}  // namespace

template <class T>
const CausalAttentionKernels<T>& causal_attention_kernels() {
  static constexpr CausalAttentionKernels<T> kKernels = {
      [](std::int64_t width) { return time_width<T>(width); },
      draw_kept<T>,
      split_table<T>,
      add_to_table<T>,
      [](const CausalHead<T>& h) { (time_vectors<T>(h.width) == 2 ? forward<T, 2> : forward<T, 4>)(h); },
      [](const CausalHead<T>& h) { (time_vectors<T>(h.width) == 2 ? backward<T, 2> : backward<T, 4>)(h); }};
  return kKernels;
}
LOCKSTEP_EACH_FLOAT(causal_attention_kernels)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
