#include "gemm_kernels.hpp"
#include "gemm_tile.hpp"
#include "lockstep/ops/gemm.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Steps of k before the next panel of b. With the many registers of AVX-512 a tile needs few bytes of b per operation:
/// panels come from the second-level cache, and c is seldom read again. Elsewhere a panel stays in the first-level
/// cache while the rows of a are multiplied with it.
template <class T>
constexpr std::int64_t kDepth = (kVectorBytes == 64 ? 1536 : 256) * 4 / static_cast<std::int64_t>(sizeof(T));
/// Rows of a this many bytes apart compete for the same sets of the first-level cache.
constexpr std::int64_t kCacheWay = 4096;
/// Rows of a that stay in the second-level cache while the panels of b are multiplied with them.
constexpr std::int64_t kBlockRows = (kTileRows < 8 ? 24 : 8) * kTileRows;
/// A packed b up to this size stays in the first-level cache beside the current rows.
constexpr std::int64_t kSmallBytes = 24 << 10;

/// Packs a_mk at a[m lda + k] into groups of kTileRows rows (the last group holds the rest), k by k.
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

/// Applies the activation to freshly computed rows of c and adds the residual.
template <class T>
void finish_rows(std::int64_t m, std::int64_t n, T* c, std::int64_t first, const Epilogue<T>& e) {
  const std::int64_t at = first * n, count = m * n;
  if (e.activate) e.activate(count, c + at, e.derivative ? e.derivative + at : nullptr, c + at);
  for (std::int64_t i = 0; e.residual && i < count; i += kLanes<T>) {
    const Lanes<T> lanes(smaller(kLanes<T>, count - i));
    store(c + at + i, load(e.residual + at + i, lanes) + load(c + at + i, lanes), lanes);
  }
}

template <class T>
void rows(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* packed, bool accumulate,
          const Epilogue<T>& epilogue) {
  if (m == 0 || n == 0) return;
  const bool small = packed_size<T>(n, k) * static_cast<std::int64_t>(sizeof(T)) <= kSmallBytes;
  // With one panel each element of a is read once, so packing it saves nothing.
  const bool pack_a =
      n > kPanel<T> && (k > kDepth<T> || (k > 0 && k * static_cast<std::int64_t>(sizeof(T)) % kCacheWay == 0));
  // Tiles of nearly equal height: a last tile of one or two rows would leave most of the pipeline idle.
  const std::int64_t block_rows = !small ? kBlockRows : thin_columns<T>(m, n) > 0 ? 2 * kTileRows : kTileRows;
  const std::int64_t blocks = ceil_div(m, block_rows);
  T* packed_a = pack_a ? static_cast<T*>(thread_scratch(Scratch::packed_a,
                                                        static_cast<std::size_t>(kBlockRows * kDepth<T>) * sizeof(T)))
                       : nullptr;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * m / blocks, end = (block + 1) * m / blocks;
    const std::int64_t tile_rows = ceil_div(end - begin, ceil_div(end - begin, kTileRows));
    std::int64_t k0 = 0;
    do {  // runs once even for k = 0: the result is then the bias, or zero
      const std::int64_t depth = smaller(kDepth<T>, k - k0);
      if (pack_a) pack_rows(packed_a, a + begin * k + k0, k, end - begin, tile_rows, depth);
      const auto tile_at = [&](std::int64_t i, std::int64_t j) {
        const std::int64_t panel = j / kPanel<T> * kPanel<T>, stride = panel_stride<T>(n, panel);
        return Tile<T>{.k = depth,
                       .a = a + i * k + k0,
                       .a_stride = k,
                       .b = packed + panel * k + k0 * stride + j - panel,
                       .b_stride = stride,
                       .c = c + i * n + j,
                       .c_stride = n,
                       .begin = k0 > 0 || accumulate ? Begin::result
                                : epilogue.bias      ? Begin::bias
                                                     : Begin::zero,
                       .bias = epilogue.bias ? epilogue.bias + j : nullptr};
      };
      const std::int64_t thin = thin_columns<T>(end - begin, n), wide = n - thin;
      for (std::int64_t j = 0; j < wide; j += kPanel<T>) {
        const std::int64_t columns = smaller(kPanel<T>, wide - j);
        for (std::int64_t i = begin; i < end; i += tile_rows) {
          const std::int64_t count = smaller(tile_rows, end - i);
          Tile<T> t = tile_at(i, j);
          if (pack_a) {
            t.a = packed_a + (i - begin) * depth;
            t.a_stride = count;
            run_tile<T, false, false>(count, columns, t);
          } else {
            run_tile<T, true, false>(count, columns, t);
          }
        }
      }
      if (thin > 0) thin_tile<T, true>(end - begin, thin, tile_at(begin, wide));
      k0 += kDepth<T>;
    } while (k0 < k);
    finish_rows(end - begin, n, c, begin, epilogue);
  }
}

/// Dot products along k, kLanes rows at a time: with one to four columns, tiles would leave most lanes empty.
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
      const Vec<T> sums = sum_of<kLanes<T>, T>(v) + splat(epilogue.bias ? epilogue.bias[j] : T{});
      for (std::int64_t r = 0; r < count; ++r) {
        T& at = c[(i + r) * n + j];
        at = accumulate ? at + sums[r] : sums[r];
      }
    }
  }
  finish_rows(m, n, c, 0, epilogue);
}

/// Columns of b whose packed block of kTnRows rows stays in the second-level cache.
constexpr std::int64_t kTnColumnsBytes = 2048;
/// a and b are packed if their rows are a multiple of this apart, or longer than kTnLongRow: rows a large power of two
/// apart compete for the same cache sets, and long rows for entries of the address translation. Otherwise packing costs
/// more than it saves, as it does for rows of at most kTnShortA and kTnShortB bytes.
constexpr std::int64_t kTnPackMultiple = 512, kTnLongRow = 2048, kTnShortA = 1024, kTnShortB = 256;

/// Elements of a packed group of tile_rows columns of a, with the vector that the last store may exceed it by.
template <class T>
constexpr std::int64_t group_size(std::int64_t tile_rows, std::int64_t depth) {
  return tile_rows * depth + kLanes<T>;
}

/// Packs `count` columns of a_km at a[k lda + m] into groups of tile_rows columns, k by k. Reads whole rows of a block,
/// so each cache line and page of a is visited once.
template <class T>
void pack_columns(T* out, const T* a, std::int64_t lda, std::int64_t count, std::int64_t tile_rows,
                  std::int64_t depth) {
  constexpr std::int64_t kRowsAhead = 4;
  const std::int64_t size = group_size<T>(tile_rows, depth), equal = count / tile_rows * tile_rows;
  const auto pack = [=](std::int64_t first, std::int64_t end, std::int64_t columns) {
    const std::int64_t whole = (columns - 1) / kLanes<T> * kLanes<T>;
    const Lanes<T> lanes(columns - whole);
    for (std::int64_t q = 0; q < depth; ++q) {
      const T* from = a + q * lda;
      T* to = out + first / tile_rows * size + q * columns;
      for (std::int64_t i = first; i < end; i += tile_rows, to += size) {
        __builtin_prefetch(from + kRowsAhead * lda + i);
        // Whole vectors are stored: the next step overwrites what lies after the columns of this step.
        for (std::int64_t r = 0; r < whole; r += kLanes<T>) store(to + r, load(from + i + r));
        store(to + whole, load(from + i + whole, lanes));
      }
    }
  };
  pack(0, equal, tile_rows);
  if (equal < count) pack(equal, count, count - equal);
}

template <class T>
void tn(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate,
        std::int64_t first, std::int64_t count) {
  if (count == 0 || n == 0) return;
  constexpr std::int64_t kSize = static_cast<std::int64_t>(sizeof(T)), kColumns = kTnColumnsBytes / kSize;
  const std::int64_t tile_rows = ceil_div(count, ceil_div(count, kTileRows));
  const auto packs = [](std::int64_t bytes, std::int64_t most) {
    return bytes > most && (bytes % kTnPackMultiple == 0 || bytes > kTnLongRow);
  };
  const bool pack = packs(m * kSize, kTnShortA) || packs(n * kSize, kTnShortB);
  // While a panel of b is in the first-level cache, it is multiplied with all packed columns of a.
  constexpr std::int64_t kTiles = kBlockRows / kTileRows;
  const std::int64_t block_rows = pack ? kTiles * tile_rows : tile_rows;
  const auto scratch = [&](Scratch purpose, std::int64_t bytes) {
    return pack ? static_cast<T*>(thread_scratch(purpose, static_cast<std::size_t>(bytes))) : nullptr;
  };
  T* packed_b = scratch(Scratch::packed_b, kTnColumnsBytes * kTnRows);
  T* packed_a = scratch(Scratch::packed_a, kTiles * group_size<T>(kTileRows, kTnRows) * kSize);
  std::int64_t k0 = 0;
  do {  // runs once even for k = 0: the result is then zero, or unchanged
    const std::int64_t depth = smaller(kTnRows, k - k0);
    for (std::int64_t j0 = 0; j0 < n; j0 += kColumns) {
      const std::int64_t width = smaller(kColumns, n - j0), thin = thin_columns<T>(count, width), wide = width - thin;
      if (pack) pack_plain(packed_b, b + k0 * n + j0, n, width, depth, std::int64_t{0}, width);
      for (std::int64_t i0 = first; i0 < first + count; i0 += block_rows) {
        const std::int64_t height = smaller(block_rows, first + count - i0);
        if (pack) pack_columns(packed_a, a + k0 * m + i0, m, height, tile_rows, depth);
        for (std::int64_t j = 0; j < wide; j += kPanel<T>) {
          const std::int64_t columns = smaller(kPanel<T>, wide - j);
          for (std::int64_t i = 0; i < height; i += tile_rows) {
            const std::int64_t rows = smaller(tile_rows, height - i);
            Tile<T> t = {.k = depth,
                         .a = pack ? packed_a + i / tile_rows * group_size<T>(tile_rows, depth) : a + k0 * m + i0 + i,
                         .a_stride = pack ? rows : m,
                         .b = pack ? packed_b + j * depth : b + k0 * n + j0 + j,
                         .b_stride = pack ? panel_stride<T>(width, j) : n,
                         .c = c + (i0 + i) * n + j0 + j,
                         .c_stride = n,
                         .add = accumulate || k0 > 0};
            if (pack)
              run_tile<T, false, false>(rows, columns, t);
            else
              run_tile<T, false, true>(rows, columns, t);
          }
        }
      }
      if (thin == 0) continue;
      Tile<T> t = {.k = depth,
                   .a = a + k0 * m + first,
                   .a_stride = m,
                   .b = b + k0 * n + j0 + wide,
                   .b_stride = n,
                   .c = c + first * n + j0 + wide,
                   .c_stride = n,
                   .add = accumulate || k0 > 0};
      thin_tile<T, false>(count, thin, t);
    }
    k0 += kTnRows;
  } while (k0 < k);
}

/// Sums the columns in V vectors: independent chains of additions, each over the rows in ascending order.
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

static_assert(kTileRows <= kMostTileRows && kThinRows<float> <= kMostTileRows);

template <class T>
void strided_product(const StridedProduct<T>& p) {
  if (p.m <= 0) return;
  const std::int64_t tile_rows = ceil_div(p.m, ceil_div(p.m, kTileRows));
  const std::int64_t thin = thin_columns<T>(p.m, p.n), wide = p.n - thin;
  const auto tile_at = [&](std::int64_t i, std::int64_t rows, std::int64_t j) {
    const std::int64_t begin = p.triangle == Triangle::upper_a && i > p.diagonal ? i - p.diagonal : 0;
    const std::int64_t end = p.triangle == Triangle::lower_a ? smaller(p.k, i + rows + p.diagonal) : p.k;
    return Tile<T>{.k = end - begin,
                   .a = p.a_by_columns ? p.a + i + begin * p.a_stride : p.a + i * p.a_stride + begin,
                   .a_stride = p.a_stride,
                   .b = p.b + j + begin * p.b_stride,
                   .b_stride = p.b_stride,
                   .c = p.c + i * p.c_stride + j,
                   .c_stride = p.c_stride,
                   .add = p.add};
  };
  for (std::int64_t j = 0; j < wide; j += kPanel<T>) {
    const std::int64_t width = smaller(kPanel<T>, wide - j);
    // Rows above the triangle need no column of this panel.
    const std::int64_t above = p.triangle == Triangle::lower_c && j > p.diagonal ? (j - p.diagonal) / tile_rows : 0;
    for (std::int64_t i = above * tile_rows; i < p.m; i += tile_rows) {
      const std::int64_t rows = smaller(tile_rows, p.m - i);
      // At the diagonal half a panel may be enough.
      const std::int64_t needed = p.triangle == Triangle::lower_c ? i + rows + p.diagonal - j : width;
      const std::int64_t columns = needed <= kLanes<T> ? smaller(kLanes<T>, width) : width;
      const bool whole = columns % kLanes<T> == 0;
      Tile<T> t = tile_at(i, rows, j);
      if (p.a_by_columns)
        whole ? run_tile<T, false, false>(rows, columns, t) : run_tile<T, false, true>(rows, columns, t);
      else
        whole ? run_tile<T, true, false>(rows, columns, t) : run_tile<T, true, true>(rows, columns, t);
    }
  }
  for (std::int64_t i = 0; thin > 0 && i < p.m; i += kThinRows<T>) {
    const std::int64_t rows = smaller(kThinRows<T>, p.m - i);
    (p.a_by_columns ? thin_tile<T, false> : thin_tile<T, true>)(rows, thin, tile_at(i, rows, wide));
  }
}
LOCKSTEP_EACH_FLOAT(strided_product)

LOCKSTEP_KERNEL_TABLE(GemmKernels, gemm_kernels, kPanel<T>, packed_size<T>, pack_plain<T>, pack_transposed<T>, rows<T>,
                      few_columns<T>, tn<T>, scale_and_sum<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
