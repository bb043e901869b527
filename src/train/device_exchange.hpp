#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

/// all_gather_known and all_to_all_known of a Communicator for memory of a device, in the order of its main stream: from GPU
/// to GPU by NCCL, or through page-locked host memory, which is kept from call to call. Collective.
class DeviceExchange {
 public:
  /// `nccl`: null where there is none.
  DeviceExchange(Communicator& comm, Device device, std::unique_ptr<GpuReduce> nccl)
      : comm_(comm), stream_(device), nccl_(std::move(nccl)) {}
  Communicator& comm() const { return comm_; }
  const char* backend() const { return nccl_ ? "nccl" : comm_.backend(); }

  void all_gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                  const char* what);
  /// The pieces for the ranks lie one after another in `to`.
  void all_to_all(std::span<const std::byte> to, std::span<const std::int64_t> to_sizes,
                  std::span<const std::int64_t> from_sizes, std::span<std::byte> into, const char* what);
  /// Waits until the stream has done all it was given. errors  Error when NCCL fails or its deadline passes
  void wait(std::int64_t step) const;

 private:
  bool on_gpu() const { return stream_.device().is_cuda(); }
  /// The same bytes where the host reads them.
  std::span<const std::byte> staged(std::span<const std::byte> bytes);
  /// Where the host may write so many bytes that are meant for `into`.
  std::span<std::byte> landing(std::span<std::byte> into);
  void deliver(std::span<std::byte> into, std::span<const std::byte> landed) const;

  Communicator& comm_;
  Stream stream_;
  std::unique_ptr<GpuReduce> nccl_;
  Buffer out_, in_;
};

}  // namespace lockstep
