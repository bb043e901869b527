#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Units in which a GPU multiplies; each has its own rate.
enum class FlopUnit : std::uint8_t { fp32, tf32, half };
inline constexpr int kFlopUnits = 3;

/// All work of one name and shape. Sums over its launches, unless stated otherwise.
struct LedgerEntry {
  std::string name;   ///< of the kernel with its template arguments, or "cublasLtMatmul", "copy", "cudaMemset", ...
  std::string shape;  ///< "128x1x1 blocks of 256", or "m x n x k" of a product; empty for others
  std::int64_t launches = 0;
  std::int64_t early = 0;          ///< of them those that may start while the launch in front of them runs
  std::int64_t blocks = 0;         ///< of one launch; 0: not known
  std::int64_t block_threads = 0;  ///< threads of a block
  /// Distinct bytes of GPU memory that a launch reads before it writes them, and distinct bytes that it writes.
  double necessary_bytes = 0;
  /// 32-byte sectors that each block touches, reads and writes apart: the traffic between the blocks and the L2 cache
  /// if a block fetches nothing twice.
  double moved_bytes = 0;
  /// Of the moved bytes, the sectors that a launch reads for the first time before it writes them, and those that it
  /// writes for the first time.
  double first_bytes = 0;
  /// The other moved bytes, by the bytes that the launch has moved since it last moved the sector: from i to i + 1 MiB
  /// in element i, more in the last one.
  std::array<double, 129> again_bytes = {};
  double touched_bytes = 0;  ///< distinct sectors of a launch
  double bus_bytes = 0;      ///< of page-locked host memory, by kernels (sectors as above) and copies
  /// Products and tensor cores are counted; other kernels declare their operations (gpu::Grid::flops).
  double flops[kFlopUnits] = {};
  double longest = 0;         ///< accesses, of up to 16 bytes each, of the busiest thread to GPU or host memory
  double longest_shared = 0;  ///< its accesses to shared memory

  /// Bytes between device memory and an L2 cache of this size that is empty when a launch begins and written back when
  /// it ends: first_bytes, and again_bytes unless the cache holds all that the launch touches, or all that it has moved
  /// since. The second is a bound: data that has moved twice since takes less room.
  double memory_bytes(double cache_bytes) const;
};

/// The counts, not the times, of GPU work.
struct Ledger {
  std::vector<LedgerEntry> entries;  ///< by name
  std::int64_t graphs = 0;           ///< launches of graphs
  std::int64_t nodes = 0;            ///< of the launched graphs
  std::int64_t launches = 0;         ///< calls that enqueue work: kernels, copies, products, graphs
  std::int64_t waits = 0;            ///< waits of the host for the latest work of a stream, after which the GPU is idle
  std::int64_t late_waits = 0;       ///< waits for earlier work, while the GPU has more to do
  double to_gpu_bytes = 0;           ///< by copies
  double from_gpu_bytes = 0;
};

/// Why this program cannot keep a ledger; empty if it can: only the stand-in of tests/cuda_host counts.
std::string why_no_ledger();
/// Counts the work of all streams of this process from here on. Kernels then run one at a time.
/// errors  Error if why_no_ledger()
void start_ledger();
/// Stops counting. Work that has not run yet is not counted; the stand-in runs work when it is submitted.
Ledger finish_ledger();

}  // namespace lockstep
