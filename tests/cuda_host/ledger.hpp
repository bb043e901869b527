#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda_runtime.h"
#include "ordering.hpp"

/// Counts work as it runs, for lockstep/device/ledger.hpp. Code of kernels is compiled with calls to the functions of
/// accesses.cpp before each load and store (GCC's -fsanitize=thread, without its library), so kernels need
/// no special pointers.
namespace cuda_host {

/// Whether a ledger is kept. The functions below require it, unless stated otherwise.
inline constinit std::atomic<bool> ledger_open{false};
inline bool ledger_is_kept() { return ledger_open.load(std::memory_order_relaxed); }
/// Adds work of libraries, copies and fills with the bytes of `uses`. Does nothing for work without bytes.
void note_work(const Uses& uses);
void note_launch();
void note_graph(std::size_t nodes);
/// A wait of the host for a stream or an event; `idle`: for the stream's latest work.
void note_wait(bool idle);

/// The accesses of one launch of a kernel. It counts while it exists, and adds to the ledger at its end. Other kernels
/// wait until then. Without a ledger it does nothing.
class KernelCount {
 public:
  KernelCount(const cudaLaunchConfig_t& config, const void* kernel,
              std::span<const std::span<std::byte>> shared_variables);
  ~KernelCount();
  KernelCount(const KernelCount&) = delete;
  KernelCount& operator=(const KernelCount&) = delete;
  void begin_block();
  void end_block();
  /// The kernel lets the next one start before its own end.
  void lets_next_start() { lets_next_start_ = true; }
  /// The counts of a block while other blocks run.
  struct Block {
    std::uint32_t number = 0;
    std::vector<std::uint32_t> accesses, shared_accesses;
  };
  Block suspend_block() const;
  void resume_block(const Block& block);

 private:
  const cudaLaunchConfig_t& config_;
  const void* kernel_;
  bool counts_, lets_next_start_ = false;
};

/// An access by the running kernel, while watched (watch.hpp) has kCounts.
void count_access(const void* address, std::size_t size, bool writes);
/// Floating-point operations of tensor cores. Does nothing without a ledger.
void count_tensor_flops(double flops);

}  // namespace cuda_host
