// Register tiles of R rows by V vectors: each element of the result is one chain of fused multiply-adds over k in
// ascending order, wherever the tile lies and however large it is, so that a row's bits depend on neither its
// neighbours nor the blocking.
#include "gemm_kernels.hpp"
#include "lockstep/ops/gemm.hpp"
#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// V vectors a row, R rows: R V sums, V vectors of b and one element of a in registers.
constexpr int kPanelVectors = 2;
constexpr int kTileRows = kVectorRegisters == 32 ? 14 : 6;
template <class T>
constexpr std::int64_t kPanel = kPanelVectors* kLanes<T>;
/// Steps of k for which a panel of b stays in the first-level cache (32 KiB) while rows of a pass by.
template <class T>
constexpr std::int64_t kDepth = 256 * 4 / static_cast<std::int64_t>(sizeof(T));
/// Rows of a that stay in the second-level cache while panels of b pass by.
constexpr std::int64_t kBlockRows = 8 * kTileRows;
/// A packed b up to this size stays in the first-level cache beside the rows that are worked on.
constexpr std::int64_t kSmallBytes = 24 << 10;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

enum class Begin { zero, bias, result };

template <class T>
struct Tile {
  std::int64_t k;
  const T* a;
  std::int64_t a_stride;  ///< between rows (kAlongK), or between steps of k (not kAlongK)
  const T* b;
  std::int64_t b_stride;  ///< between steps of k
  T* c;
  std::int64_t c_stride;
  const T* bias;
  std::int64_t tail;  ///< lanes of the last vector that exist
  Begin begin;
  bool add;  ///< the sum is added to c instead of stored
};

/// p + stride, computed one row at a time: seen as one expression the compiler would hold every row's address in a
/// register.
template <class P>
LOCKSTEP_INLINE P step(P p, std::int64_t stride) {
  p += stride;
  asm("" : "+r"(p));
  return p;
}

/// kAlongK: a's elements for one row are contiguous (a layer's input); otherwise those for one k are (a packed, or a
/// gradient read down its columns). kMaskB: b's last vector is incomplete, too (b as the caller keeps it).
template <class T, int R, int V, bool kAlongK, bool kMaskB>
void tile(const Tile<T>& t) {
  const Lanes<T> lanes(t.tail);
  const std::int64_t c_stride = t.c_stride;
  Vec<T> sum[R][V];
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
    // Three rows a pointer: base, base + s and base + 2 s are one address each.
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
#if defined(LOCKSTEP_ISA_avx512)
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

template <class T, bool kAlongK, bool kMaskB>
void run_tile(std::int64_t rows, std::int64_t columns, Tile<T>& t) {
  const std::int64_t vectors = ceil_div(columns, kLanes<T>);
  t.tail = columns - (vectors - 1) * kLanes<T>;
  (vectors == 1 ? tile_of_rows<T, 1, kAlongK, kMaskB>(rows) : tile_of_rows<T, 2, kAlongK, kMaskB>(rows))(t);
}

/// Panels lie one after another, each K steps of kPanel columns (the last one of as many vectors as it needs), filled
/// up with zeros.
template <class T>
std::int64_t panel_stride(std::int64_t n, std::int64_t first) {
  return smaller(ceil_div(n - first, kLanes<T>), kPanelVectors) * kLanes<T>;
}

template <class T>
std::int64_t packed_size(std::int64_t n, std::int64_t k) {
  return ceil_div(n, kLanes<T>) * kLanes<T> * k;
}

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

/// Transposes squares of kLanes by kLanes in registers.
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
          for (int r = 0; r < kL; ++r) v[r] = load(from + r * ldb + i);
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

/// a_mk at a[m lda + k] to groups of kTileRows rows (the last of as many as are left), k by k.
template <class T>
void pack_rows(T* out, const T* a, std::int64_t lda, std::int64_t m, std::int64_t tile_rows, std::int64_t depth) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t first = 0; first < m; first += tile_rows) {
    const std::int64_t rows = smaller(tile_rows, m - first);
    for (std::int64_t r0 = 0; r0 < rows; r0 += kL) {
      const std::int64_t count = smaller(kL, rows - r0);
      const Lanes<T> write(count);
      for (std::int64_t i = 0; i < depth; i += kL) {
        Vec<T> v[kL];
        const std::int64_t left = smaller(kL, depth - i);
        const Lanes<T> read(left);
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r) v[r] = r < count ? load(a + (first + r0 + r) * lda + i, read) : Vec<T>{};
        transpose<T>(v);
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r)
          if (r < left) store(out + first * depth + (i + r) * rows + r0, v[r], write);
      }
    }
  }
}

/// Runs on rows of c that have just been completed.
template <class T>
void finish_rows(std::int64_t m, std::int64_t n, T* c, std::int64_t first, const Epilogue<T>& e) {
  const std::int64_t at = first * n, count = m * n;
  if (e.factor) {
    for (std::int64_t i = 0; i < count; i += kLanes<T>) {
      const T* f = e.factor + at + i;
      T* y = c + at + i;
      if (count - i >= kLanes<T>) {
        store(y, load(y) * load(f));
      } else {
        const Lanes<T> lanes(count - i);
        store(y, load(y, lanes) * load(f, lanes), lanes);
      }
    }
  }
  if (e.activate) e.activate(count, c + at, e.derivative ? e.derivative + at : nullptr, c + at);
}

template <class T>
void rows(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* packed, bool accumulate,
          const Epilogue<T>& epilogue) {
  if (m == 0 || n == 0) return;
  const bool small = packed_size<T>(n, k) * static_cast<std::int64_t>(sizeof(T)) <= kSmallBytes;
  const bool pack_a = k > kDepth<T>;
  // Tiles of nearly equal height: a last tile of one or two rows would leave most of the pipeline empty.
  const std::int64_t block_rows = small ? kTileRows : kBlockRows;
  const std::int64_t blocks = ceil_div(m, block_rows);
  T* packed_a = pack_a ? static_cast<T*>(thread_scratch(Scratch::packed_a,
                                                        static_cast<std::size_t>(kBlockRows * kDepth<T>) * sizeof(T)))
                       : nullptr;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * m / blocks, end = (block + 1) * m / blocks;
    const std::int64_t tile_rows = ceil_div(end - begin, ceil_div(end - begin, kTileRows));
    std::int64_t k0 = 0;
    do {  // once even for k = 0: the result is then the bias, or zero
      const std::int64_t depth = smaller(kDepth<T>, k - k0);
      if (pack_a) pack_rows(packed_a, a + begin * k + k0, k, end - begin, tile_rows, depth);
      for (std::int64_t j = 0; j < n; j += kPanel<T>) {
        const std::int64_t columns = smaller(kPanel<T>, n - j), stride = panel_stride<T>(n, j);
        for (std::int64_t i = begin; i < end; i += tile_rows) {
          const std::int64_t count = smaller(tile_rows, end - i);
          Tile<T> t;
          t.k = depth;
          t.b = packed + j * k + k0 * stride;
          t.b_stride = stride;
          t.c = c + i * n + j;
          t.c_stride = n;
          t.bias = epilogue.bias ? epilogue.bias + j : nullptr;
          t.begin = k0 > 0 || accumulate ? Begin::result : epilogue.bias ? Begin::bias : Begin::zero;
          t.add = false;
          if (pack_a) {
            t.a = packed_a + (i - begin) * depth;
            t.a_stride = count;
            run_tile<T, false, false>(count, columns, t);
          } else {
            t.a = a + i * k + k0;
            t.a_stride = k;
            run_tile<T, true, false>(count, columns, t);
          }
        }
      }
      k0 += kDepth<T>;
    } while (k0 < k);
    if (epilogue.factor || epilogue.activate) finish_rows(end - begin, n, c, begin, epilogue);
  }
}

/// Dot products along k, one row a vector, kLanes rows at a time: with one to four columns the tiles would leave most
/// lanes empty.
template <class T>
void few_columns(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate,
                 const Epilogue<T>& epilogue) {
  constexpr std::int64_t kL = kLanes<T>;
  const std::int64_t whole = k / kL * kL;
  const Lanes<T> lanes(k - whole > 0 ? k - whole : kL);
  for (std::int64_t i = 0; i < m; i += kL) {
    const std::int64_t count = smaller(kL, m - i);
    for (std::int64_t j = 0; j < n; ++j) {
      Vec<T> v[kL];
#pragma GCC unroll 16
      for (int r = 0; r < kL; ++r) v[r] = Vec<T>{};
      const T* bj = b + j * k;
      for (std::int64_t q = 0; q < whole; q += kL) {
        const Vec<T> bv = load(bj + q);
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r)
          if (r < count) v[r] = fma(load(a + (i + r) * k + q), bv, v[r]);
      }
      if (whole < k) {
        const Vec<T> bv = load(bj + whole, lanes);
#pragma GCC unroll 16
        for (int r = 0; r < kL; ++r)
          if (r < count) v[r] = fma(load(a + (i + r) * k + whole, lanes), bv, v[r]);
      }
      const Vec<T> sums = sum_each<T>(v) + splat(epilogue.bias ? epilogue.bias[j] : T{});
      for (std::int64_t r = 0; r < count; ++r) {
        T& at = c[(i + r) * n + j];
        at = accumulate ? at + sums[r] : sums[r];
      }
    }
  }
  if (epilogue.factor || epilogue.activate) finish_rows(m, n, c, 0, epilogue);
}

/// Columns of b whose packed block of kTnRows rows stays in the second-level cache.
constexpr std::int64_t kTnColumnsBytes = 2048;
/// From this row length on b is packed: its rows, far apart by a power of two, would compete for the same cache sets.
constexpr std::int64_t kTnPackBytes = 257;

template <class T>
void tn(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate,
        std::int64_t first, std::int64_t count) {
  if (count == 0 || n == 0) return;
  constexpr std::int64_t kSize = static_cast<std::int64_t>(sizeof(T)), kColumns = kTnColumnsBytes / kSize;
  const std::int64_t tile_rows = ceil_div(count, ceil_div(count, kTileRows));
  const bool pack = n * kSize >= kTnPackBytes || m * kSize >= 4 * kTnPackBytes;
  T* packed_b =
      pack ? static_cast<T*>(thread_scratch(Scratch::packed_b, static_cast<std::size_t>(kTnColumnsBytes * kTnRows)))
           : nullptr;
  T* packed_a =
      pack ? static_cast<T*>(thread_scratch(Scratch::packed_a, static_cast<std::size_t>(kTileRows * kTnRows * kSize)))
           : nullptr;
  std::int64_t k0 = 0;
  do {  // once even for k = 0: the result is then zero, or what it was
    const std::int64_t depth = smaller(kTnRows, k - k0);
    const bool add = accumulate || k0 > 0;
    for (std::int64_t block = 0; block < n; block += kColumns) {
      const std::int64_t width = smaller(kColumns, n - block);
      if (pack) pack_plain(packed_b, b + k0 * n + block, n, width, depth, std::int64_t{0}, width);
      for (std::int64_t i = first; i < first + count; i += tile_rows) {
        const std::int64_t rows = smaller(tile_rows, first + count - i);
        if (pack) {
          for (std::int64_t r = 0; r < rows; r += kLanes<T>) {
            const Lanes<T> lanes(smaller(kLanes<T>, rows - r));
            for (std::int64_t q = 0; q < depth; ++q)
              store(packed_a + q * rows + r, load(a + (k0 + q) * m + i + r, lanes), lanes);
          }
        }
        for (std::int64_t j = 0; j < width; j += kPanel<T>) {
          const std::int64_t columns = smaller(kPanel<T>, width - j);
          Tile<T> t;
          t.k = depth;
          t.a = pack ? packed_a : a + k0 * m + i;
          t.a_stride = pack ? rows : m;
          t.b = pack ? packed_b + j * depth : b + k0 * n + j;
          t.b_stride = pack ? panel_stride<T>(width, j) : n;
          t.c = c + i * n + block + j;
          t.c_stride = n;
          t.bias = nullptr;
          t.begin = Begin::zero;
          t.add = add;
          if (pack)
            run_tile<T, false, false>(rows, columns, t);
          else
            run_tile<T, false, true>(rows, columns, t);
        }
      }
    }
    k0 += kTnRows;
  } while (k0 < k);
}

/// Columns of V vectors: as many independent chains of additions, each over the rows in ascending order.
template <class T, int V>
void scale_and_sum_columns(std::int64_t m, std::int64_t n, T* dy, const T* derivative, T* sums, Lanes<T> lanes) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> sum[V] = {};
  for (std::int64_t i = 0; i < m; ++i, dy += n) {
    Vec<T> v[V];
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) v[c] = c + 1 < V ? load(dy + c * kL) : load(dy + c * kL, lanes);
    if (derivative) {
#pragma GCC unroll 4
      for (int c = 0; c < V; ++c) {
        v[c] *= c + 1 < V ? load(derivative + c * kL) : load(derivative + c * kL, lanes);
        if (c + 1 < V)
          store(dy + c * kL, v[c]);
        else
          store(dy + c * kL, v[c], lanes);
      }
      derivative += n;
    }
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) sum[c] += v[c];
  }
  if (!sums) return;
#pragma GCC unroll 4
  for (int c = 0; c < V; ++c) {
    if (c + 1 < V)
      store(sums + c * kL, sum[c]);
    else
      store(sums + c * kL, sum[c], lanes);
  }
}

template <class T>
void scale_and_sum(std::int64_t m, std::int64_t n, T* dy, const T* derivative, T* sums) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t j = 0; j < n; j += 4 * kL) {
    const std::int64_t left = smaller(4 * kL, n - j), vectors = ceil_div(left, kL);
    const Lanes<T> lanes(left - (vectors - 1) * kL);
    const auto run = vectors == 1   ? scale_and_sum_columns<T, 1>
                     : vectors == 2 ? scale_and_sum_columns<T, 2>
                     : vectors == 3 ? scale_and_sum_columns<T, 3>
                                    : scale_and_sum_columns<T, 4>;
    run(m, n, dy + j, derivative ? derivative + j : nullptr, sums ? sums + j : nullptr, lanes);
  }
}

}  // namespace

template <class T>
const GemmKernels<T>& gemm_kernels() {
  static constexpr GemmKernels<T> kKernels = {kPanel<T>, packed_size<T>, pack_plain<T>, pack_transposed<T>,
                                              rows<T>,   few_columns<T>, tn<T>,         scale_and_sum<T>};
  return kKernels;
}
template const GemmKernels<float>& gemm_kernels();
template const GemmKernels<double>& gemm_kernels();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
