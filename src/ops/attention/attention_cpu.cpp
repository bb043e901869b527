// Works on one head of one sequence at a time, on blocks of query rows whose scores stay in cache. All products use the
// register tiles of gemm_tile.hpp.
#include <cmath>

#include "attention_kernels.hpp"
#include "ops/common/vecmath.hpp"
#include "ops/dropout/dropout_rows.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "ops/gemm/gemm_tile.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Query rows whose scores the backward keeps at a time: whole tiles, about 64.
constexpr std::int64_t kQueries = 64 / kTileRows * kTileRows;

template <class T>
constexpr std::int64_t padded(std::int64_t n) {
  return ceil_div(n, kLanes<T>) * kLanes<T>;
}

/// Packed panels of a matrix with `columns` columns and inner extent `depth`.
template <class T>
struct Panels {
  const T* data;
  std::int64_t columns, depth;
};

/// Allocates aligned arrays from the thread's scratch memory.
template <class T>
class Memory {
 public:
  explicit Memory(std::int64_t elements)
      : next_(static_cast<T*>(thread_scratch(Scratch::partial, static_cast<std::size_t>(elements) * sizeof(T)))) {}
  T* take(std::int64_t elements) {
    next_ += elements;
    return next_ - elements;
  }
  /// Packs x (rows, columns) as panels for products that sum over the rows.
  Panels<T> plain(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    T* out = take(packed_size<T>(columns, rows));
    pack_plain(out, x, stride, columns, rows, std::int64_t{0}, columns);
    return {out, columns, rows};
  }
  /// Packs x as panels for products that sum over the columns.
  Panels<T> transposed(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    T* out = take(packed_size<T>(rows, columns));
    pack_transposed(out, x, stride, rows, columns, std::int64_t{0}, rows);
    return {out, rows, columns};
  }

 private:
  T* next_;
};

/// c (rows, b.columns) (+)= a b. a is (rows, depth), or (depth, rows) read down its columns.
template <class T, bool kDown>
void multiply(std::int64_t rows, T* c, std::int64_t c_stride, const T* a, std::int64_t a_stride, const Panels<T>& b,
              bool add) {
  const std::int64_t height = ceil_div(rows, ceil_div(rows, kTileRows));
  for (std::int64_t i = 0; i < rows; i += height) {
    for (std::int64_t j = 0; j < b.columns; j += kPanel<T>) {
      Tile<T> t = {.k = b.depth,
                   .a = kDown ? a + i : a + i * a_stride,
                   .a_stride = a_stride,
                   .b = b.data + j * b.depth,
                   .b_stride = panel_stride<T>(b.columns, j),
                   .c = c + i * c_stride + j,
                   .c_stride = c_stride,
                   .add = add};
      run_tile<T, !kDown, false>(smaller(height, rows - i), smaller(kPanel<T>, b.columns - j), t);
    }
  }
}

/// Prefetches the first cache line of each of this head's rows in the next sequence, if the rows are few: hardware
/// prefetchers do not predict short rows far apart.
template <class T>
void prefetch_next(const T* rows, std::int64_t stride, std::int64_t time) {
  if (time > kVectorBytes) return;
  for (std::int64_t r = time; r < 2 * time; ++r) __builtin_prefetch(rows + r * stride);
}

/// s_j <- exp(scale (s_j - max)) for j < n, and 0 up to the next whole vector. Returns the sum and stores max in
/// `largest`.
template <class T>
T exponentials(T* s, std::int64_t n, T scale, T& largest) {
  constexpr std::int64_t kL = kLanes<T>;
  const std::int64_t last = padded<T>(n) - kL;
  const Vec<T> end = first_lanes<T>(load(s + last), n - last, s[0]);
  Vec<T> most = end;
  for (std::int64_t j = 0; j < last; j += kL) most = max(load(s + j), most);
  const T top = largest_lane<T>(most);
  Vec<T> sum{};
  for (std::int64_t j = 0; j < last; j += kL) {
    const Vec<T> e = exp(splat(scale) * (load(s + j) - splat(top)));
    store(s + j, e);
    sum += e;
  }
  const Vec<T> e = first_lanes<T>(exp(splat(scale) * (end - splat(top))), n - last, T{});
  store(s + last, e);
  largest = top;
  return total<T>(sum + e);
}

/// Drops elements of a head's weights, or of their gradient.
template <class T>
class WeightDropout {
 public:
  explicit WeightDropout(const AttentionHead<T>& head)
      : head_(head),
        shift_(__builtin_ctzll(head.group_rows)),
        in_group_(static_cast<std::int64_t>(head.group_rows) - 1) {}
  /// The rows from i on that share a group of draws; without dropout all.
  std::int64_t together(std::int64_t i) const { return head_.drop ? in_group_ + 1 - (i & in_group_) : head_.time; }
  void rows(std::int64_t i, std::int64_t count, T* row, std::int64_t stride) {
    if (!head_.drop) return;
    for (const std::int64_t end = i + count; i < end; ++i, row += stride) {
      const auto at = static_cast<std::uint64_t>(i), group = at >> shift_;
      if (in_group_ == 0) {
        dropout_row<T>(head_.time, row, nullptr, row, head_.key, head_.first_group + at * head_.row_groups, head_.rate);
        continue;
      }
      if (group != held_) {
        drawn_.draw(head_.key, head_.first_group + group);
        held_ = group;
      }
      drop_by<T>(drawn_.draws() + ((i & in_group_) * 2 * kGroupWords >> shift_), head_.time, row, nullptr, row,
                 head_.rate);
    }
  }

 private:
  const AttentionHead<T>& head_;
  const int shift_;  ///< group_rows is a power of two
  const std::int64_t in_group_;
  GroupDraws drawn_;
  std::uint64_t held_ = ~std::uint64_t{0};
};

template <class T>
void forward(const AttentionHead<T>& head) {
  const std::int64_t time = head.time, width = head.width, score_stride = padded<T>(time);
  prefetch_next(head.q, head.stride, time);
  prefetch_next(head.k, head.stride, time);
  prefetch_next(head.v, head.stride, time);
  Memory<T> memory(score_stride * kTileRows + packed_size<T>(time, width) + packed_size<T>(width, time));
  T* scores = memory.take(score_stride * kTileRows);
  const Panels<T> keys = memory.transposed(head.k, head.stride, time, width);
  const Panels<T> values = memory.plain(head.v, head.stride, time, width);
  const std::int64_t height = ceil_div(time, ceil_div(time, kTileRows));
  WeightDropout<T> dropout(head);
  for (std::int64_t first = 0; first < time; first += height) {
    const std::int64_t rows = smaller(height, time - first);
    multiply<T, false>(rows, scores, score_stride, head.q + first * head.stride, head.stride, keys, false);
    // Step by step for all rows, so that the processor overlaps their sums and quotients.
    T sum[kTileRows], largest[kTileRows];
    for (std::int64_t r = 0; r < rows; ++r)
      sum[r] = exponentials(scores + r * score_stride, time, head.scale, largest[r]);
    dropout.rows(first, rows, scores, score_stride);
    for (std::int64_t r = 0; r < rows && head.lse; ++r)
      head.lse[first + r] = head.scale * largest[r] + std::log(sum[r]);
    multiply<T, false>(rows, head.y + first * head.y_stride, head.y_stride, scores, score_stride, values, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      T* y = head.y + (first + r) * head.y_stride;
      const Vec<T> inverse = splat(1 / sum[r]);
      for (std::int64_t c = 0; c < width; c += kLanes<T>) {
        const Lanes<T> lanes(smaller(kLanes<T>, width - c));
        store(y + c, load(y + c, lanes) * inverse, lanes);
      }
    }
  }
}

template <class T>
LOCKSTEP_INLINE T dot(const T* a, const T* b, std::int64_t n) {
  Vec<T> sum{};
  for (std::int64_t c = 0; c < n; c += kLanes<T>) {
    const Lanes<T> lanes(smaller(kLanes<T>, n - c));
    sum = fma(load(a + c, lanes), load(b + c, lanes), sum);
  }
  return total<T>(sum);
}

/// Replaces scores by weights, s <- p, and products dp_ij by gradients, dp <- ds, over n columns.
template <class T>
void score_gradients(T* s, T* dp, std::int64_t n, T scale, T lse, T mean) {
  for (std::int64_t j = 0; j < n; j += kLanes<T>) {
    const Vec<T> p = exp(fma(splat(scale), load(s + j), splat(-lse)));
    store(s + j, p);
    store(dp + j, p * (load(dp + j) - splat(mean)) * splat(scale));
  }
}

/// to (rows, width) (+)= from.
template <class T>
void put_rows(T* to, std::int64_t stride, const T* from, std::int64_t rows, std::int64_t width, bool add) {
  for (std::int64_t r = 0; r < rows; ++r, to += stride, from += width)
    for (std::int64_t c = 0; c < width; c += kLanes<T>) {
      const Lanes<T> lanes(smaller(kLanes<T>, width - c));
      const Vec<T> v = load(from + c, lanes);
      store(to + c, add ? load(to + c, lanes) + v : v, lanes);
    }
}

template <class T>
void backward(const AttentionHead<T>& head) {
  const std::int64_t time = head.time, width = head.width, score_stride = padded<T>(time),
                     block = smaller(kQueries, time);
  prefetch_next(head.q, head.stride, time);
  prefetch_next(head.k, head.stride, time);
  prefetch_next(head.v, head.stride, time);
  prefetch_next(static_cast<const T*>(head.y), head.y_stride, time);
  prefetch_next(head.dy, head.y_stride, time);
  const bool whole = time <= block;  // with one block dk and dv are written once, directly to the output
  Memory<T> memory(2 * block * score_stride + 2 * packed_size<T>(time, width) + packed_size<T>(width, time) +
                   2 * packed_size<T>(width, block) + (whole ? 0 : 2 * padded<T>(time * width)));
  T* scores = memory.take(block * score_stride);
  T* products = memory.take(block * score_stride);
  const Panels<T> keys = memory.transposed(head.k, head.stride, time, width);
  const Panels<T> values = memory.transposed(head.v, head.stride, time, width);
  const Panels<T> key_rows = memory.plain(head.k, head.stride, time, width);
  T* dk = whole ? head.dk : memory.take(padded<T>(time * width));
  T* dv = whole ? head.dv : memory.take(padded<T>(time * width));
  const std::int64_t d_stride = whole ? head.stride : width;
  const Memory<T> rest = memory;
  WeightDropout<T> dropout(head);
  for (std::int64_t first = 0; first < time; first += block) {
    const std::int64_t rows = smaller(block, time - first);
    const T* q = head.q + first * head.stride;
    const T* y = head.y + first * head.y_stride;
    const T* dy = head.dy + first * head.y_stride;
    const std::int64_t height = ceil_div(rows, ceil_div(rows, kTileRows));
    for (std::int64_t i = 0; i < rows; i += height) {
      const std::int64_t count = smaller(height, rows - i);
      T* s = scores + i * score_stride;
      T* dp = products + i * score_stride;
      multiply<T, false>(count, s, score_stride, q + i * head.stride, head.stride, keys, false);
      multiply<T, false>(count, dp, score_stride, dy + i * head.y_stride, head.y_stride, values, false);
      for (std::int64_t r = 0, these = 0; r < count; r += these) {  // rows with the same draws, step by step
        these = smaller(count - r, dropout.together(first + i + r));
        T *const at = s + r * score_stride, *const dat = dp + r * score_stride;
        dropout.rows(first + i + r, these, dat, score_stride);
        for (std::int64_t j = 0; j < these; ++j) {
          const std::int64_t row = (i + r + j) * head.y_stride;
          score_gradients(at + j * score_stride, dat + j * score_stride, score_stride, head.scale,
                          head.lse[first + i + r + j], dot(dy + row, y + row, width));
        }
        dropout.rows(first + i + r, these, at, score_stride);
      }
      multiply<T, false>(count, head.dq + (first + i) * head.stride, head.stride, dp, score_stride, key_rows, head.add);
    }
    Memory<T> again = rest;  // each block reuses this memory
    const bool add = whole ? head.add : first > 0;
    multiply<T, true>(time, dk, d_stride, products, score_stride, again.plain(q, head.stride, rows, width), add);
    multiply<T, true>(time, dv, d_stride, scores, score_stride, again.plain(dy, head.y_stride, rows, width), add);
  }
  if (whole) return;
  put_rows(head.dk, head.stride, dk, time, width, head.add);
  put_rows(head.dv, head.stride, dv, time, width, head.add);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(AttentionKernels, attention_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
