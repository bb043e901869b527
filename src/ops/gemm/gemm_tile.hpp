#pragma once
// Register tiles of R rows by V vectors. Each element of the result is one chain of fused multiply-adds over k in
// ascending order, whatever the position and size of the tile, so the bits of a row depend on neither its neighbours
// nor the blocking.
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// A tile of R rows by V vectors keeps R V sums, V vectors of b and one element of a in registers.
constexpr int kPanelVectors = 2;
constexpr int kTileRows = kVectorRegisters == 32 ? 14 : 6;
template <class T>
constexpr std::int64_t kPanel = kPanelVectors* kLanes<T>;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

enum class Begin { zero, bias, result };

/// From this many steps of k on, a tile that adds to c prefetches c before it multiplies; a tile that stores c does so
/// from twice as many on.
constexpr std::int64_t kPrefetchSteps = 256;

template <class T>
struct Tile {
  std::int64_t k;
  const T* a;
  std::int64_t a_stride;  ///< between rows (kAlongK), or between steps of k (not kAlongK)
  const T* b;
  std::int64_t b_stride;  ///< between steps of k
  T* c;
  std::int64_t c_stride;
  Begin begin = Begin::zero;
  const T* bias = nullptr;
  bool add = false;       ///< the sum is added to c instead of stored
  std::int64_t tail = 0;  ///< lanes of the last vector that exist
};

/// p + stride, one row at a time. As one expression, the compiler would keep every row's address in a register.
template <class P>
LOCKSTEP_INLINE P step(P p, std::int64_t stride) {
  p += stride;
  asm("" : "+r"(p));
  return p;
}

/// kAlongK: a's elements for one row are contiguous (a layer's input); otherwise those for one k are (a packed matrix,
/// or a gradient read down its columns). kMaskB: the last vector of b is also partial (b is the caller's array).
template <class T, int R, int V, bool kAlongK, bool kMaskB>
void tile(const Tile<T>& t) {
  const Lanes<T> lanes(t.tail);
  const std::int64_t c_stride = t.c_stride;
  Vec<T> sum[R][V];
  if (t.k >= (t.add ? kPrefetchSteps : 2 * kPrefetchSteps)) {
    // The tile's work hides the latency of c, whose rows are too far apart for hardware prefetchers.
    const T* c = t.c;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_prefetch(c + v * kLanes<T>, 1);
      c = step(c, c_stride);
    }
  }
  if (t.begin == Begin::zero) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = Vec<T>{};
  } else {
    const T* from = t.begin == Begin::bias ? t.bias : t.c;
    const std::int64_t stride = t.begin == Begin::bias ? 0 : c_stride;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v + 1 < V; ++v) sum[r][v] = load(from + v * kLanes<T>);
      sum[r][V - 1] = load(from + (V - 1) * kLanes<T>, lanes);
      from = step(from, stride);
    }
  }
  const T* b = t.b;
  const auto b_vectors = [&](Vec<T>(&out)[V]) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      out[v] = kMaskB && v + 1 == V ? load(b + v * kLanes<T>, lanes) : load(b + v * kLanes<T>);
  };
  if constexpr (kAlongK) {
    // Three rows per pointer: base, base + s and base + 2 s are one address each.
    constexpr int kPointers = (R + 2) / 3;
    const T* a[kPointers];
#pragma GCC unroll 16
    for (int i = 0; i < kPointers; ++i) a[i] = t.a + 3 * i * t.a_stride;
    const std::int64_t s = t.a_stride;
    for (std::int64_t k = 0; k < t.k; ++k) {
      Vec<T> bv[V];
      b_vectors(bv);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec<T> av = splat(a[r / 3][(r % 3) * s]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = fma(av, bv[v], sum[r][v]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) ++a[i];
      b += t.b_stride;
    }
  } else {
    const T* a = t.a;
    for (std::int64_t k = 0; k < t.k; ++k) {
      Vec<T> bv[V];
      b_vectors(bv);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec<T> av = splat(a[r]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = fma(av, bv[v], sum[r][v]);
      }
      a += t.a_stride;
      b += t.b_stride;
    }
  }
  if (t.add) {
    const T* c = t.c;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v + 1 < V; ++v) sum[r][v] += load(c + v * kLanes<T>);
      sum[r][V - 1] += load(c + (V - 1) * kLanes<T>, lanes);
      c = step(c, c_stride);
    }
  }
  T* c = t.c;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < V; ++v) store(c + v * kLanes<T>, sum[r][v]);
    store(c + (V - 1) * kLanes<T>, sum[r][V - 1], lanes);
    c = step(c, c_stride);
  }
}

template <class T>
using TileFunction = void (*)(const Tile<T>&);

template <class T, int V, bool kAlongK, bool kMaskB>
TileFunction<T> tile_of_rows(std::int64_t rows) {
  static constexpr TileFunction<T> kTiles[] = {
    tile<T, 1, V, kAlongK, kMaskB>,
    tile<T, 2, V, kAlongK, kMaskB>,
    tile<T, 3, V, kAlongK, kMaskB>,
    tile<T, 4, V, kAlongK, kMaskB>,
    tile<T, 5, V, kAlongK, kMaskB>,
    tile<T, 6, V, kAlongK, kMaskB>,
#if defined(LOCKSTEP_ISA_avx512) || defined(LOCKSTEP_ISA_asimd)
    tile<T, 7, V, kAlongK, kMaskB>,
    tile<T, 8, V, kAlongK, kMaskB>,
    tile<T, 9, V, kAlongK, kMaskB>,
    tile<T, 10, V, kAlongK, kMaskB>,
    tile<T, 11, V, kAlongK, kMaskB>,
    tile<T, 12, V, kAlongK, kMaskB>,
    tile<T, 13, V, kAlongK, kMaskB>,
    tile<T, 14, V, kAlongK, kMaskB>,
#endif
  };
  return kTiles[rows - 1];
}

/// Chooses the tile of this height and width and sets t.tail. columns is at most kPanel.
template <class T, bool kAlongK, bool kMaskB>
void run_tile(std::int64_t rows, std::int64_t columns, Tile<T>& t) {
  const std::int64_t vectors = ceil_div(columns, kLanes<T>);
  t.tail = columns - (vectors - 1) * kLanes<T>;
  (vectors == 1 ? tile_of_rows<T, 1, kAlongK, kMaskB>(rows) : tile_of_rows<T, 2, kAlongK, kMaskB>(rows))(t);
}

/// If at most this many last columns of c do not fill a vector, thin_tile() computes them with the rows of c in the
/// lanes. tile() would leave most lanes empty.
template <class T>
constexpr int kThinColumns = (kLanes<T> + 3) / 4;
/// Rows per block of thin_tile(): two vectors, so that one computes while the additions of the other are in flight.
template <class T>
constexpr int kThinRows = 2 * kLanes<T>;

/// The number of last columns that thin_tile() computes in a product with c (rows, columns).
template <class T>
constexpr std::int64_t thin_columns(std::int64_t rows, std::int64_t columns) {
  const std::int64_t rest = columns % kLanes<T>;
  return rest <= kThinColumns<T> && 2 * rows >= kLanes<T> ? rest : 0;
}

/// Computes t.tail columns in V vectors of rows, of which the first `rows` exist.
template <class T, int V, bool kAlongK>
void thin_rows(std::int64_t rows, const Tile<T>& t) {
  constexpr int kL = kLanes<T>, kColumns = kThinColumns<T>;
  const Lanes<T> of_row(t.tail), of_last(rows - (V - 1) * kL);
  // Rows and columns that do not exist are not read: the last row and the first column replace them.
  std::int64_t column[kColumns];
  for (int j = 0; j < kColumns; ++j) column[j] = j < t.tail ? j : 0;
  const auto each_row = [&](int v, auto* p, std::int64_t stride, const auto& f) __attribute__((always_inline)) {
    p += v * kL * stride;
#pragma GCC unroll 16
    for (int r = 0; r < kL; ++r) {
      f(r, p);
      p = step(p, v * kL + r + 1 < rows ? stride : 0);
    }
  };
  Vec<T> sum[V][kColumns];
  const auto add_c = [&](bool replace) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      Vec<T> c[kL];
      each_row(
          v, t.c, t.c_stride, [&](int r, const T* p) __attribute__((always_inline)) { c[r] = load(p, of_row); });
      transpose<T>(c);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) sum[v][j] = replace ? c[j] : sum[v][j] + c[j];
    }
  };
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) sum[v][j] = t.begin == Begin::bias ? splat(t.bias[column[j]]) : Vec<T>{};
  if (t.begin == Begin::result) add_c(true);
  const T *a = t.a, *b = t.b;
  const auto add_products = [&](Vec<T> av, Vec<T>(&to)[kColumns], const T* of_b) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) to[j] = fma(av, splat(of_b[column[j]]), to[j]);
  };
  if constexpr (kAlongK) {
    const auto steps = [&](std::int64_t count, Lanes<T> lanes) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        Vec<T> x[kL];
        each_row(
            v, a, t.a_stride, [&](int r, const T* p) __attribute__((always_inline)) { x[r] = load(p, lanes); });
        transpose<T>(x);
        const T* of_b = b;
#pragma GCC unroll 16
        for (int k = 0; k < kL; ++k)
          if (k < count) {
            add_products(x[k], sum[v], of_b);
            of_b = step(of_b, t.b_stride);
          }
      }
    };
    std::int64_t k = 0;
    for (; k + kL <= t.k; k += kL, a += kL, b += kL * t.b_stride) steps(kL, Lanes<T>(kL));
    if (k < t.k) steps(t.k - k, Lanes<T>(t.k - k));
  } else {
    for (std::int64_t k = 0; k < t.k; ++k, a += t.a_stride, b += t.b_stride)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) add_products(v + 1 < V ? load(a + v * kL) : load(a + v * kL, of_last), sum[v], b);
  }
  if (t.add) add_c(false);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    Vec<T> c[kL];
#pragma GCC unroll 16
    for (int j = 0; j < kL; ++j) c[j] = j < kColumns ? sum[v][j < kColumns ? j : 0] : Vec<T>{};
    transpose<T>(c);
    each_row(
        v, t.c, t.c_stride, [&](int r, T* p) __attribute__((always_inline)) {
          if (v * kL + r < rows) store(p, c[r], of_row);
        });
  }
}

/// The last `columns` columns of c, see thin_columns(), in `rows` rows, from their first elements t.b and t.c on. They
/// have the bits of tile().
template <class T, bool kAlongK>
void thin_tile(std::int64_t rows, std::int64_t columns, Tile<T> t) {
  t.tail = columns;
  for (; rows > 0; rows -= kThinRows<T>) {
    rows > kLanes<T> ? thin_rows<T, 2, kAlongK>(smaller(rows, kThinRows<T>), t) : thin_rows<T, 1, kAlongK>(rows, t);
    t.a += kThinRows<T> * (kAlongK ? t.a_stride : 1);
    t.c += kThinRows<T> * t.c_stride;
  }
}

/// Panels are stored one after another, each with K steps of kPanel columns (the last one with as many vectors as it
/// needs), filled up with zeros.
template <class T>
std::int64_t panel_stride(std::int64_t n, std::int64_t first) {
  return smaller(ceil_div(n - first, kLanes<T>), kPanelVectors) * kLanes<T>;
}

/// Elements of all panels of a matrix with N columns and inner extent K.
template <class T>
std::int64_t packed_size(std::int64_t n, std::int64_t k) {
  return ceil_div(n, kLanes<T>) * kLanes<T> * k;
}

/// Packs columns [first, first + count) of b_kn at b[k ldb + n] into panels.
template <class T>
void pack_plain(T* packed, const T* b, std::int64_t ldb, std::int64_t n, std::int64_t k, std::int64_t first,
                std::int64_t count) {
  for (std::int64_t j = first; j < smaller(n, first + count); j += kPanel<T>) {
    T* out = packed + j * k;
    const std::int64_t columns = smaller(kPanel<T>, n - j);
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t c = 0; c < columns; c += kLanes<T>, out += kLanes<T>) {
        const std::int64_t left = columns - c;
        store(out, left >= kLanes<T> ? load(b + i * ldb + j + c) : load(b + i * ldb + j + c, Lanes<T>(left)));
      }
  }
}

/// The same for b_kn at b[n ldb + k]. Transposes squares of kLanes by kLanes in registers. The processor does not
/// foresee so many rows side by side, so each is requested kPrefetchBytes ahead.
constexpr std::int64_t kPrefetchBytes = 256;
template <class T>
void pack_transposed(T* packed, const T* b, std::int64_t ldb, std::int64_t n, std::int64_t k, std::int64_t first,
                     std::int64_t count) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t j = first; j < smaller(n, first + count); j += kPanel<T>) {
    const std::int64_t stride = panel_stride<T>(n, j);
    for (std::int64_t c = 0; c < stride; c += kL) {
      const T* from = b + (j + c) * ldb;
      T* out = packed + j * k + c;
      const std::int64_t rows = smaller(kL, n - j - c);
      for (std::int64_t i = 0; i < k; i += kL) {
        Vec<T> v[kL];
        const std::int64_t left = k - i;
        if (left >= kL && rows == kL) {
#pragma GCC unroll 16
          for (int r = 0; r < kL; ++r) {
            __builtin_prefetch(from + r * ldb + i + kPrefetchBytes / sizeof(T));
            v[r] = load(from + r * ldb + i);
          }
        } else {
          const Lanes<T> lanes(smaller(left, kL));
#pragma GCC unroll 16
          for (int r = 0; r < kL; ++r) v[r] = r < rows ? load(from + r * ldb + i, lanes) : Vec<T>{};
        }
        transpose<T>(v);
        if (left >= kL) {
#pragma GCC unroll 16
          for (int r = 0; r < kL; ++r) store(out + (i + r) * stride, v[r]);
        } else {
#pragma GCC unroll 16
          for (int r = 0; r < kL; ++r)
            if (r < left) store(out + (i + r) * stride, v[r]);
        }
      }
    }
  }
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
