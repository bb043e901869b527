#include "lockstep/ops/spmm.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T, class X>
struct SpmmArguments {
  T* y;
  bool accumulate;
  const std::int64_t* indptr;
  const std::int32_t* column;
  const T* values;
  const X* x;
  std::int64_t width;
  const std::uint64_t* columns;  ///< null: all
  std::int64_t ahead;            ///< prefetch distance in entries, on a CPU
};

/// Computes rows [first, first + count) of the set.
template <class Arguments>
using SpmmKernel = void (*)(const Arguments& a, const RowSet& rows, std::int64_t first, std::int64_t count);

LOCKSTEP_EACH_ISA(template <class Arguments> SpmmKernel<Arguments> spmm_kernel();)

template <class Arguments>
SpmmKernel<Arguments> active_spmm_kernel() {
  return LOCKSTEP_ACTIVE(spmm_kernel<Arguments>());
}

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "lockstep/base/f16.hpp"
#include "ops/common/simd.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// If rows are not consecutive, or only some of their entries count, they are computed in groups of about this many
/// entries. A group's entries are copied, so that prefetches run ahead across its rows; the copy stays in the caches.
constexpr std::int64_t kGroupEntries = 4096, kGroupRows = 512;
constexpr std::int64_t kLine = 64;

LOCKSTEP_INLINE Vec<float> read(const float* p) { return load(p); }
LOCKSTEP_INLINE Vec<double> read(const double* p) { return load(p); }
/// bf16 is the upper half of f32.
LOCKSTEP_INLINE Vec<float> read(const bf16* p) {
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
  return (Vec<float>)(__builtin_convertvector(*reinterpret_cast<const Half*>(p), Vec<std::int32_t>) << 16);
}
LOCKSTEP_INLINE Vec<float> read(const f16* p) {
#if defined(LOCKSTEP_ISA_avx512)
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (Vec<float>)_mm512_maskz_cvtph_ps(0xffff, half);  // GCC 12 warns about the plain form
#elif defined(LOCKSTEP_ISA_avx2)
  return (Vec<float>)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(LOCKSTEP_ISA_asimd)
  return (Vec<float>)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = from_f16(p[i].bits);
  return v;
#endif
}
/// Reads `count` elements; the other lanes are 0.
template <class T, class X>
LOCKSTEP_INLINE Vec<T> read_first(const X* p, Lanes<T> lanes, std::int64_t count) {
  if constexpr (std::is_same_v<X, T>) {
    return load(p, lanes);
  } else {
    X values[kLanes<T>] = {};
    for (std::int64_t i = 0; i < count; ++i) values[i] = p[i];
    return read(values);
  }
}

/// The entries of one row: row numbers of x, and values.
template <class T>
struct Entries {
  const std::int32_t* column;
  const T* value;
  std::int64_t count;
  std::int64_t known;  ///< entries of this row and of those after it
};

template <class X>
LOCKSTEP_INLINE void prefetch(const X* x, std::int64_t columns) {
  const char* p = reinterpret_cast<const char*>(x);
  for (std::int64_t b = 0; b < columns * static_cast<std::int64_t>(sizeof(X)); b += kLine)
    __builtin_prefetch(p + b, 0, 3);
}

/// Columns [at, at + kVectors vectors) of one row of y. kTail: the last vector has only `rest` lanes.
template <class T, class X, int kVectors, bool kTail>
LOCKSTEP_INLINE void row_block(const SpmmArguments<T, X>& a, const Entries<T>& entries, T* y, std::int64_t at,
                               std::int64_t rest) {
  constexpr int kFull = kTail ? kVectors - 1 : kVectors;
  const Lanes<T> lanes(kTail ? rest : kLanes<T>);
  Vec<T> sum[kVectors] = {};
  const X* const from = a.x + at;
  for (std::int64_t e = 0; e < entries.count; ++e) {
    if (e + a.ahead < entries.known)
      prefetch(from + entries.column[e + a.ahead] * a.width, kFull * kLanes<T> + (kTail ? rest : 0));
    const X* x = from + entries.column[e] * a.width;
    const Vec<T> value = splat(entries.value[e]);
#pragma GCC unroll 8
    for (int v = 0; v < kFull; ++v) sum[v] = fma(value, read(x + v * kLanes<T>), sum[v]);
    if constexpr (kTail) sum[kFull] = fma(value, read_first(x + kFull * kLanes<T>, lanes, rest), sum[kFull]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kFull; ++v) {
    T* to = y + at + v * kLanes<T>;
    store(to, a.accumulate ? load(to) + sum[v] : sum[v]);
  }
  if constexpr (kTail) {
    T* to = y + at + kFull * kLanes<T>;
    store(to, a.accumulate ? load(to, lanes) + sum[kFull] : sum[kFull], lanes);
  }
}

template <class T, class X>
LOCKSTEP_INLINE void row_of(const SpmmArguments<T, X>& a, const Entries<T>& entries, T* y) {
  constexpr std::int64_t kL = kLanes<T>;
  std::int64_t at = 0;
  for (; at + 8 * kL <= a.width; at += 8 * kL) row_block<T, X, 8, false>(a, entries, y, at, 0);
  if (at + 4 * kL <= a.width) row_block<T, X, 4, false>(a, entries, y, at, 0), at += 4 * kL;
  if (at + 2 * kL <= a.width) row_block<T, X, 2, false>(a, entries, y, at, 0), at += 2 * kL;
  if (at + kL <= a.width) row_block<T, X, 1, false>(a, entries, y, at, 0), at += kL;
  if (at < a.width) row_block<T, X, 1, true>(a, entries, y, at, a.width - at);
}

/// Copies the entries of a row whose columns are in the set, or all if it is null. Returns how many. May write one
/// element more. Branch-free, because the processor could not predict a branch.
template <class T>
LOCKSTEP_INLINE std::int64_t select(const std::uint64_t* set, std::int64_t count, const std::int32_t* from,
                                    const T* values, std::int32_t* column, T* value) {
  if (set == nullptr) {
    for (std::int64_t e = 0; e < count; ++e) column[e] = from[e];
    for (std::int64_t e = 0; e < count; ++e) value[e] = values[e];
    return count;
  }
  std::int64_t found = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    const auto c = static_cast<std::uint32_t>(from[e]);
    column[found] = from[e];
    value[found] = values[e];
    found += static_cast<std::int64_t>((set[c / 64] >> (c % 64)) & 1);
  }
  return found;
}

/// Rows [first, last) of the set, whose entries are contiguous. end_of(i): the end of row i's entries.
template <class T, class X, class End>
LOCKSTEP_INLINE void multiply(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t last,
                              const std::int32_t* column, const T* value, const End& end_of) {
  const std::int64_t all = end_of(last - 1);
  for (std::int64_t e = 0; e < all && e < a.ahead; ++e) prefetch(a.x + column[e] * a.width, a.width);
  std::int64_t begin = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t end = end_of(i);
    row_of(a, Entries<T>{column + begin, value + begin, end - begin, all - begin}, a.y + rows[i] * a.width);
    begin = end;
  }
}

template <class T, class X>
void spmm(const SpmmArguments<T, X>& a, const RowSet& rows, std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  const std::int64_t last = first + count, begin = a.indptr[rows[first]];
  const auto entries_of = [&](std::int64_t i) { return a.indptr[rows[i] + 1] - a.indptr[rows[i]]; };
  if (a.columns == nullptr && rows[last - 1] - rows[first] == count - 1)
    return multiply(a, rows, first, last, a.column + begin, a.values + begin,
                    [&](std::int64_t i) { return a.indptr[rows[i] + 1] - begin; });
  std::int64_t capacity = 0;
  for (std::int64_t i = first; i < last; ++i) capacity = entries_of(i) > capacity ? entries_of(i) : capacity;
  capacity += kGroupEntries + 1;
  T* value = static_cast<T*>(
      thread_scratch(Scratch::partial, static_cast<std::size_t>(capacity) * (sizeof(T) + sizeof(std::int32_t))));
  auto* column = reinterpret_cast<std::int32_t*>(value + capacity);
  std::int64_t ends[kGroupRows];
  for (std::int64_t i = first; i < last;) {
    const std::int64_t start = i;
    for (std::int64_t found = 0; i < last && i - start < kGroupRows && found < kGroupEntries; ++i) {
      const std::int64_t at = a.indptr[rows[i]];
      found += select(a.columns, entries_of(i), a.column + at, a.values + at, column + found, value + found);
      ends[i - start] = found;
    }
    multiply(a, rows, start, i, column, value, [&](std::int64_t r) { return ends[r - start]; });
  }
}

}  // namespace

template <class Arguments>
SpmmKernel<Arguments> spmm_kernel() {
  return spmm;
}
template SpmmKernel<SpmmArguments<float, float>> spmm_kernel();
template SpmmKernel<SpmmArguments<double, double>> spmm_kernel();
template SpmmKernel<SpmmArguments<float, bf16>> spmm_kernel();
template SpmmKernel<SpmmArguments<float, f16>> spmm_kernel();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <omp.h>
#include <unistd.h>

#include <algorithm>

#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;
using gpu::kWholeWarp;
using gpu::Pack;

/// Warps of a block, and the most rows that it computes.
constexpr int kWarps = 8, kMostRows = 8;
/// With fewer blocks than this, they have fewer rows each.
constexpr std::int64_t kEnoughBlocks = 1024;
/// The rows of a block are this far apart, because long rows are often adjacent.
constexpr std::int64_t kApart = 128;
/// Bytes of a row of y that a block computes: a line of the first-level cache.
constexpr int kLine = 128;
/// Rows of x that a lane requests at once.
constexpr int kRequests = 8;

[[maybe_unused]] __device__ bool has(const std::uint64_t* set, std::int32_t i) {
  const auto u = static_cast<std::uint32_t>(i);
  return (set[u / 64] >> (u % 64)) & 1;
}

/// A row that a block computes. Chunks of entries are numbered through all its rows.
struct Row {
  std::int64_t at, begin;  ///< its number, or -1; its first entry
  int entries, first_chunk, end_chunk;
};

template <class T>
struct Entry {
  T value;
  std::int32_t column;
};

/// A block computes some rows, columns [kColumns blockIdx.y, kColumns (blockIdx.y + 1)). Its warps take turns at all
/// chunks of entries of these rows: none waits for a longer row. A warp sums its chunks of a row, so chunks n,
/// n + kWarps, ... of a row are one sum wherever the row is, and these sums are added in the order of n. While a warp
/// waits for rows of x, of which groups of lanes hold V columns per lane and alternate over the entries, its next chunk
/// is on its way. Adjacent blocks have adjacent rows, which have neighbours in common. Bound by the second-level cache:
/// each entry reads a row of x, except where a first-level cache still holds these columns.
template <class T, class X, int V, bool kMasked>
__global__ void __launch_bounds__(kWarps* kWarp, 4)
    spmm_kernel(gpu::Earlier earlier, cpu::SpmmArguments<T, X> a, RowSet rows, int block_rows) {
  earlier.wait();
  // A chunk has more entries if some of them do not count.
  constexpr int kColumns = kLine / sizeof(T), kLoads = kMasked ? 3 : 1, kChunk = kLoads * kWarp;
  constexpr int kLanes = kColumns / V, kGroups = kWarp / kLanes;
  static_assert(kMostRows * kColumns <= kWarps * kWarp && kWarp % (kRequests * kGroups) == 0);
  alignas(16) __shared__ T sm_sums[kMostRows][kWarps][kColumns];
  __shared__ Entry<T> sm_entries[kWarps][kChunk];
  __shared__ Row sm_rows[kMostRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / kLanes, column_in_part = lane % kLanes * V;
  const std::int64_t part = std::int64_t{blockIdx.y} * kColumns;

  if (warp == 0) {
    const std::int64_t first_index = blockIdx.x / kApart * kApart * block_rows, left = rows.size() - first_index;
    const std::int64_t fewest = gpu::ceil_div(left, block_rows), apart = fewest < kApart ? fewest : kApart;
    const std::int64_t index = first_index + lane * apart + blockIdx.x % kApart;
    const bool there = lane < block_rows && index < rows.size();
    const std::int64_t at = there ? rows[index] : -1, begin = there ? a.indptr[at] : 0;
    const int entries = there ? static_cast<int>(a.indptr[at + 1] - begin) : 0, chunks = gpu::ceil_div(entries, kChunk);
    int end_chunk = chunks;
    for (int distance = 1; distance < kMostRows; distance *= 2) {
      const int before = __shfl_up_sync(kWholeWarp, end_chunk, static_cast<unsigned>(distance));
      if (lane >= distance) end_chunk += before;
    }
    if (lane < kMostRows) sm_rows[lane] = {at, begin, entries, end_chunk - chunks, end_chunk};
  }
  __syncthreads();
  const int chunks = sm_rows[kMostRows - 1].end_chunk;

  // The element of y that this thread stores in the end.
  const int to = static_cast<int>(threadIdx.x) / kColumns, to_column = static_cast<int>(threadIdx.x) % kColumns;
  const bool stores = to < kMostRows && sm_rows[to].at >= 0 && part + to_column < a.width;
  const auto y = [&] { return a.y + sm_rows[to].at * a.width + part + to_column; };
  const T old = a.accumulate && stores ? *y() : T{0};

  // Lanes beyond the last column compute it, too, but do not store.
  const std::int64_t column = part + column_in_part < a.width ? part + column_in_part : a.width - V;
  const auto* const x_column = reinterpret_cast<const std::byte*>(a.x + column);
  const auto row_bytes = static_cast<int>(a.width * sizeof(X));  // 32 bits: an address takes one instruction
  std::int32_t next_column[kLoads];
  T next_value[kLoads];
  // Loads a chunk, whose row is of_row or a later one, and returns its row. Where the row has ended, x is read as for
  // its last entry and counts as 0.
  const auto load_next = [&](int chunk, int of_row) {
    if (chunk >= chunks) return kMostRows;
    while (chunk >= sm_rows[of_row].end_chunk) ++of_row;
    const Row& of = sm_rows[of_row];
    const int at = (chunk - of.first_chunk) * kChunk + lane;
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const bool there = at + l * kWarp < of.entries;
      const std::int64_t e = of.begin + (there ? at + l * kWarp : of.entries - 1);
      next_column[l] = there || !kMasked ? a.column[e] : -1;
      next_value[l] = there ? a.values[e] : T{0};
    }
    return of_row;
  };

  Pack<T, V> sum = {};
  int next = load_next(warp, 0);
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    int count = 0;
    if constexpr (kMasked) {
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const bool counts = next_column[l] >= 0 && has(a.columns, next_column[l]);
        const unsigned set = __ballot_sync(kWholeWarp, counts);
        if (counts) sm_entries[warp][count + __popc(set & ((1u << lane) - 1))] = {next_value[l], next_column[l]};
        count += __popc(set);
      }
      __syncwarp();
      if (count % kWarp != 0 && lane >= count % kWarp)
        sm_entries[warp][count / kWarp * kWarp + lane] = {T{0}, sm_entries[warp][0].column};
    } else {
      count = kWarp;
      sm_entries[warp][lane] = {next_value[0], next_column[0]};
    }
    __syncwarp();
    const int now = next;
    next = load_next(chunk + kWarps, now);
#pragma unroll 1
    for (int first = 0; first < count; first += kRequests * kGroups) {
      Pack<T, V> x[kRequests];
      T value[kRequests];
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
        const Entry<T> entry = sm_entries[warp][first + k * kGroups + group];
        value[k] = entry.value;
        x[k] = gpu::load<V>(reinterpret_cast<const X*>(x_column + std::int64_t{entry.column} * row_bytes));
      }
#pragma unroll
      for (int k = 0; k < kRequests; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum.at[v] = fma(value[k], x[k].at[v], sum.at[v]);
      }
    }
    __syncwarp();
    if (next == now) continue;
#pragma unroll
    for (int distance = kLanes; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum.at[v] += __shfl_xor_sync(kWholeWarp, sum.at[v], distance);
    }
    if (group == 0) gpu::store<T, V>(&sm_sums[now][(chunk - sm_rows[now].first_chunk) % kWarps][column_in_part], sum);
    sum = {};
  }
  __syncthreads();
  if (!stores) return;
  const int of_row = sm_rows[to].end_chunk - sm_rows[to].first_chunk, sums = of_row < kWarps ? of_row : kWarps;
  T total = 0;
  for (int n = 0; n < sums; ++n) total += sm_sums[to][n][to_column];
  *y() = total + old;
}

template <class T, class X>
void start(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  const auto block_rows =
      static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(rows.size(), kEnoughBlocks), 1, kMostRows));
  const gpu::Grid grid = {.grid = {gpu::ceil_div(rows.size(), block_rows), gpu::ceil_div(a.width * sizeof(T), kLine)},
                          .block = kWarps * kWarp};
  const auto launch = [&]<int V>() {
    gpu::launch(stream, grid, a.columns != nullptr ? spmm_kernel<T, X, V, true> : spmm_kernel<T, X, V, false>, a, rows,
                block_rows);
  };
  constexpr int V = 16 / sizeof(T);
  a.width % V == 0 && gpu::aligned(a.x, a.y) ? launch.template operator()<V>() : launch.template operator()<1>();
}

/// Entries in a chunk of work for a thread; below this one thread does all.
constexpr std::int64_t kChunkEntries = 16384;

template <class T, class X>
void run(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  const auto multiply = [&](const auto& of_gpu) {
    if_built([&]<class S>() { start<T, S>(of_gpu, a, rows); }).template operator()<X>();
  };
  if (on_gpu(stream, multiply)) return;
  const auto kernel = cpu::active_spmm_kernel<cpu::SpmmArguments<T, X>>();
  const std::int64_t count = rows.size();
  if (count == 0) return;
  const std::int64_t entries = a.indptr[rows[count - 1] + 1] - a.indptr[rows[0]];
  if (omp_in_parallel() || entries < kChunkEntries) {
    kernel(a, rows, 0, count);
    return;
  }
  // Chunks with about equally many entries. The weight of a row is its number of entries plus one.
  const std::int64_t span = rows[count - 1] + 1 - rows[0];
  const std::int64_t chunks = std::clamp<std::int64_t>((entries + span) / kChunkEntries, 1, count);
  const auto weight_before = [&](std::int64_t i) {
    return i == count ? entries + span : a.indptr[rows[i]] - a.indptr[rows[0]] + rows[i] - rows[0];
  };
  const auto start_of = [&](std::int64_t chunk) {
    const std::int64_t target = (entries + span) * chunk / chunks;
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      weight_before(middle) < target ? low = middle + 1 : high = middle;
    }
    return low;
  };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t first = start_of(chunk), last = chunk + 1 == chunks ? count : start_of(chunk + 1);
    if (last > first) kernel(a, rows, first, last - first);
  }
}

/// Rows that are requested too early leave a small first-level cache before they are used: with 32 KiB (Zen 4) 24
/// entries are 1.1 times as fast as 48, with 48 KiB (Zen 5) 16 are slower.
std::int64_t entries_ahead() {
  static const long bytes = ::sysconf(_SC_LEVEL1_DCACHE_SIZE);  // 0 or -1: unknown
  return bytes > 0 && bytes <= 32 << 10 ? 24 : 48;
}

}  // namespace

void spmm(Stream& stream, Target y, const CsrPattern& pattern, const Tensor& values, const Tensor& x,
          const RowSet& rows, RowBits columns) {
  const Tensor& to = y.tensor;
  require(to.rows() == pattern.rows() && to.columns() == x.columns() && values.size() == std::ssize(pattern.column) &&
              to.dtype() == values.dtype(),
          "spmm: the shapes do not fit: a matrix of ", pattern.rows(), " rows and ", pattern.column.size(),
          " entries, ", values.size(), " values, x ", x.shape(), ", y ", to.shape());
  visit_float(to.dtype(), [&]<class T>() {
    const auto arguments = [&]<class X>(const X* p) {
      return cpu::SpmmArguments<T, X>{to,
                                      y.accumulate,
                                      pattern.indptr.data(),
                                      pattern.column.data(),
                                      values,
                                      p,
                                      x.columns(),
                                      columns.empty() ? nullptr : columns.data(),
                                      entries_ahead()};
    };
    if constexpr (std::is_same_v<T, float>) {
      if (x.dtype() == DType::bf16) return run(stream, arguments(x.data<const bf16>()), rows);
      if (x.dtype() == DType::f16) return run(stream, arguments(x.data<const f16>()), rows);
    }
    require(x.dtype() == to.dtype(), "spmm: x has dtype ", x.dtype(), ", but y has ", to.dtype());
    run(stream, arguments(x.data<const T>()), rows);
  });
}

}  // namespace lockstep::ops
#endif
