#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <limits>
#include <span>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/device/staged_copy.hpp"

/// Adds many rows to rows of a table, chosen by ids, in a fixed order: gradients of embeddings.
namespace lockstep::gpu {

/// The gradient of the id at place m: `factor` times a row of an array.
template <class R>
struct RowUse {
  std::int64_t row;
  R factor;
};

inline constexpr int kScatterThreads = 1024, kScatterWarps = kScatterThreads / kWarp;
/// The rows of the table are divided among 2^bits blocks, so that a block has about kScatterUses uses; with fewer it
/// would mostly search. An H100 runs the most blocks at once.
inline constexpr int kScatterMostBits = 7;
inline constexpr std::int64_t kScatterUses = 64;
/// Ids of a load, loads of a thread under way, and ids that a block searches in one round.
inline constexpr int kScatterIds = 4, kScatterLoads = 2, kScatterRound = kScatterThreads * kScatterIds * kScatterLoads;
/// Most uses whose rows are in shared memory at once, and columns of them.
inline constexpr int kScatterPiece = 512, kScatterColumns = 64;
inline constexpr int kScatterHeld = kScatterColumns / kWarp;

/// Two lists of ids, one after the other.
struct ScatterIds {
  const std::int32_t *first, *second;
  std::int64_t first_count, second_count;
  std::int32_t shift;        ///< added to the ids of the second list
  const std::int64_t* used;  ///< ids from this number on are skipped in each list; null: none
  __device__ std::int32_t at(std::int64_t m) const {
    return m < first_count ? first[m] : second[m - first_count] + shift;
  }
};

/// The first `end` ids of a list.
struct ScatterPart {
  const std::int32_t* ids;
  int end;
  std::int32_t shift;
  /// Ids i to i + 3, by one load if their address allows it; -1 from `end` on.
  __device__ void load(int i, std::int32_t (&to)[kScatterIds]) const {
    if (i <= end - kScatterIds && reinterpret_cast<std::uintptr_t>(ids + i) % 16 == 0) {
      const auto pack = *reinterpret_cast<const Pack<std::int32_t, kScatterIds>*>(ids + i);
#pragma unroll
      for (int k = 0; k < kScatterIds; ++k) to[k] = pack.at[k] + shift;
      return;
    }
#pragma unroll
    for (int k = 0; k < kScatterIds; ++k) to[k] = i < end - k ? ids[i + k] + shift : -1;
  }
};

/// Shared memory of a block.
template <class R>
struct ScatterMemory {
  RowUse<R>* uses;             ///< of a piece
  std::int32_t *rows, *found;  ///< rows of the table, of a piece; places in the lists
  std::int32_t* counts;        ///< places that each warp finds in a round; two rounds take turns
  R* values;                   ///< of a piece, a slice of columns
  static constexpr int kIntegers = 2 * kScatterPiece + kScatterRound + 2 * kScatterWarps;
  static constexpr std::size_t kFixed = kScatterPiece * sizeof(RowUse<R>) + kIntegers * sizeof(std::int32_t);
  __device__ explicit ScatterMemory(unsigned char* bytes)
      : uses(reinterpret_cast<RowUse<R>*>(bytes)),
        rows(reinterpret_cast<std::int32_t*>(uses + kScatterPiece)),
        found(rows + kScatterPiece),
        counts(found + kScatterPiece + kScatterRound),
        values(reinterpret_cast<R*>(rows + kIntegers)) {}
};

/// The uses of a piece, in a slice of columns. All threads of the block call its functions.
template <class T>
struct ScatterTile {
  using R = real_t<T>;
  ScatterMemory<R> shared;
  int uses, width;
  std::int64_t column, columns;  ///< the first column of `width`, and all
  int block_bits, lane, warp;

  /// Copies the gradients to shared memory, N columns at a time.
  template <int N>
  __device__ void copy(const T* dy) const {
    const unsigned packs = static_cast<unsigned>(width) / N;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < static_cast<unsigned>(uses) * packs; i += kScatterThreads) {
      const unsigned u = i / packs, at = i % packs * N;
      const RowUse<R> use = shared.uses[u];
      Pack<R, N> x = load<N>(dy + use.row * columns + column + at);
#pragma unroll
      for (int k = 0; k < N; ++k) x.at[k] *= use.factor;
      store(shared.values + u * static_cast<unsigned>(width) + at, x);
    }
  }
  /// Each warp adds those of its own rows to the table. The current row stays in registers.
  __device__ void add(R* table) const {
    constexpr int kBatch = 32 / sizeof(R);  // uses whose loads do not wait for one another
    R sum[kScatterHeld], value[kBatch][kScatterHeld];
    std::int32_t row = -1;
    const auto change_to = [&](std::int32_t next) {
#pragma unroll
      for (int k = 0; k < kScatterHeld; ++k) {
        const int c = lane + k * kWarp;
        if (c >= width) continue;
        if (row >= 0) table[row * columns + column + c] = sum[k];
        if (next >= 0) sum[k] = table[next * columns + column + c];
      }
      row = next;
    };
    for (int first = 0; first < uses; first += kWarp) {
      const int u = first + lane;
      const bool own = u < uses && (shared.rows[u] >> block_bits) % kScatterWarps == warp;
      for (unsigned found = __ballot_sync(kWholeWarp, own); found != 0;) {
        int at[kBatch];
#pragma unroll
        for (int n = 0; n < kBatch; ++n) {
          at[n] = found != 0 ? first + __ffs(static_cast<int>(found)) - 1 : -1;
          found &= found - 1;
#pragma unroll
          for (int k = 0; k < kScatterHeld; ++k)
            if (at[n] >= 0 && lane + k * kWarp < width) value[n][k] = shared.values[at[n] * width + lane + k * kWarp];
        }
#pragma unroll
        for (int n = 0; n < kBatch; ++n) {
          if (at[n] < 0) continue;
          const std::int32_t next = shared.rows[at[n]];
          if (next != row) change_to(next);
#pragma unroll
          for (int k = 0; k < kScatterHeld; ++k)
            if (lane + k * kWarp < width) sum[k] += value[n][k];
        }
      }
    }
    change_to(-1);
  }
};

/// Block b owns the rows r of the table with r mod 2^block_bits = b, so that neighbours, which are often used equally
/// often, have different blocks. It searches all ids for its rows, and lists the places that it finds in ascending
/// order. All threads copy the gradients of a piece of the list to shared memory. Then each warp adds those of its own
/// rows to the table, in ascending order. A row of the table has one warp in the whole grid, so neither atomics nor
/// sorting are needed, and neither the size of a piece nor the number of blocks changes a bit. Bound by the
/// second-level cache, from which each block reads all ids; a gradient is read once. A warp reads and writes a row of
/// the table once for each piece, or more often if several of its rows take turns.
template <class T, class F>
__global__ void __launch_bounds__(kScatterThreads)
    scatter_rows_kernel(gpu::Earlier earlier, std::int64_t columns, real_t<T>* table, ScatterIds ids,
                        std::int32_t padding, int block_bits, int piece, bool packed, const T* dy, F use_of) {
  earlier.wait();
  const ScatterMemory<real_t<T>> shared(sm_bytes);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  // Places have 32 bits, see scatter_rows().
  const int first_count = static_cast<int>(ids.first_count), second_count = static_cast<int>(ids.second_count),
            most = ids.used != nullptr ? static_cast<int>(*ids.used) : first_count + second_count,
            first_end = most < first_count ? most : first_count, second_end = most < second_count ? most : second_count,
            in_first = ceil_div(first_end, kScatterRound), rounds = in_first + ceil_div(second_end, kScatterRound);
  std::int32_t next[kScatterLoads][kScatterIds];
  /// A warp has consecutive ids, so that the order of warps is that of places.
  const int of_warp = (warp * kScatterLoads * kWarp + lane) * kScatterIds;
  const auto load_round = [&](int round) {
    const bool first = round < in_first;
    const ScatterPart part =
        first ? ScatterPart{ids.first, first_end, 0} : ScatterPart{ids.second, second_end, ids.shift};
    const int i = (first ? round : round - in_first) * kScatterRound + of_warp;
#pragma unroll
    for (int l = 0; l < kScatterLoads; ++l) part.load(i + l * kWarp * kScatterIds, next[l]);
  };
  const unsigned own_bits = 0x80000000u | ((1u << block_bits) - 1);
  int found = 0;
  load_round(0);
  for (int round = 0; round < rounds; ++round) {
    const int place =
        (round < in_first ? round * kScatterRound : first_count + (round - in_first) * kScatterRound) + of_warp;
    std::int32_t id[kScatterLoads][kScatterIds];
#pragma unroll
    for (int l = 0; l < kScatterLoads; ++l)
#pragma unroll
      for (int k = 0; k < kScatterIds; ++k) id[l][k] = next[l][k];
    if (round + 1 < rounds) load_round(round + 1);
    const auto own = [&](std::int32_t i) {  // negative ids have no owner
      return (static_cast<unsigned>(i) & own_bits) == blockIdx.x && i != padding;
    };
    int before[kScatterLoads], in_warp = 0;  // before: places that the warp lists ahead of the lane's
#pragma unroll
    for (int l = 0; l < kScatterLoads; ++l) {
      before[l] = in_warp;
#pragma unroll
      for (int k = 0; k < kScatterIds; ++k) {
        const unsigned owned = __ballot_sync(kWholeWarp, own(id[l][k]));
        before[l] += __popc(owned & ((1u << lane) - 1));
        in_warp += __popc(owned);
      }
    }
    std::int32_t* const counts = shared.counts + round % 2 * kScatterWarps;
    if (lane == 0) counts[warp] = in_warp;
    __syncthreads();
    int up_to = counts[lane];
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int other = __shfl_up_sync(kWholeWarp, up_to, static_cast<unsigned>(distance));
      if (lane >= distance) up_to += other;
    }
    const int from = found + __shfl_sync(kWholeWarp, up_to, warp) - in_warp;
    found += __shfl_sync(kWholeWarp, up_to, kWarp - 1);
#pragma unroll
    for (int l = 0; l < kScatterLoads; ++l) {
      int to = from + before[l];
#pragma unroll
      for (int k = 0; k < kScatterIds; ++k)
        if (own(id[l][k])) shared.found[to++] = place + l * kWarp * kScatterIds + k;
    }
    if (found < kScatterPiece && round + 1 < rounds) continue;
    for (int first = 0; first < found; first += piece) {
      const int uses = found - first < piece ? found - first : piece;
      __syncthreads();  // the list is complete, and the piece before it has been added
      for (int u = thread; u < uses; u += kScatterThreads) {
        const std::int32_t m = shared.found[first + u];
        shared.rows[u] = ids.at(m);
        shared.uses[u] = use_of(m);
      }
      for (std::int64_t column = 0; column < columns; column += kScatterColumns) {
        const int width = static_cast<int>(columns - column < kScatterColumns ? columns - column : kScatterColumns);
        const ScatterTile<T> tile{shared, uses, width, column, columns, block_bits, lane, warp};
        __syncthreads();  // the slice before it has been added
        if (packed)
          tile.template copy<2>(dy);
        else
          tile.template copy<1>(dy);
        __syncthreads();
        tile.add(table);
      }
    }
    found = 0;
  }
}

/// table[ids_m] += use_of(m).factor dy[use_of(m).row] for m ascending over both lists (R rows of C columns). Ids in
/// host memory without a StagedCopy are copied first. Rows with id `padding` are skipped. shift is added to the ids of
/// the second list. If `used` is not null, the ids of each list from *used on are skipped, too.
template <class T, class F>
void scatter_rows(const Stream& stream, const std::array<std::span<const std::int32_t>, 2>& lists, std::int64_t columns,
                  std::int64_t rows, real_t<T>* table, std::int64_t padding, const T* dy, const F& use_of,
                  std::int64_t shift = 0, const std::int64_t* used = nullptr) {
  using R = real_t<T>;
  const auto m = static_cast<std::int64_t>(lists[0].size() + lists[1].size());
  if (m == 0 || columns == 0 || rows == 0) return;
  assert(m <= std::numeric_limits<std::int32_t>::max() - kScatterRound);
  const std::int32_t* near[] = {staged_copy(lists[0].data()), staged_copy(lists[1].data())};
  if (!in_gpu_memory(stream.device(), near[0])) {  // all blocks would read the ids over the bus
    std::byte* copy = scratch(stream, static_cast<std::size_t>(m) * sizeof(std::int32_t));
    for (const int i : {0, 1}) {
      copy_bytes(stream, copy, lists[i].data(), lists[i].size_bytes());
      near[i] = reinterpret_cast<const std::int32_t*>(copy);
      copy += lists[i].size_bytes();
    }
  }
  const auto row_bytes = static_cast<std::size_t>(std::min<std::int64_t>(columns, kScatterColumns)) * sizeof(R);
  const std::size_t fixed = ScatterMemory<R>::kFixed,
                    piece = std::min<std::size_t>(kScatterPiece, (most_shared_bytes(stream) - fixed) / row_bytes);
  const int block_bits =
      std::min<int>(kScatterMostBits, std::bit_width(static_cast<std::uint64_t>((m - 1) / kScatterUses)));
  launch(
      stream,
      {.grid = std::min(rows, std::int64_t{1} << block_bits),
       .block = kScatterThreads,
       .shared_bytes = fixed + piece * row_bytes},
      scatter_rows_kernel<T, F>, columns, table,
      ScatterIds{near[0], near[1], std::ssize(lists[0]), std::ssize(lists[1]), static_cast<std::int32_t>(shift), used},
      static_cast<std::int32_t>(padding), block_bits, static_cast<int>(piece), columns % 2 == 0 && aligned_for<2>(dy),
      dy, use_of);
}

}  // namespace lockstep::gpu
