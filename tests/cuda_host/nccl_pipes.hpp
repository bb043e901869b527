#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "error.hpp"

namespace cuda_host {

/// The channel from one rank to another, in shared memory, initially zero. A message is sent piece by piece.
struct Pipe {
  static constexpr std::size_t kBytes = 64 << 10;
  alignas(64) std::atomic<std::uint64_t> written;  ///< pieces, by the sender
  std::uint64_t message_bytes;
  alignas(64) std::atomic<std::uint64_t> read;  ///< pieces, by the receiver
  alignas(64) std::byte piece[kBytes];
};

/// One end of a message in transfer.
class Transfer {
 public:
  Transfer(Pipe& pipe, bool sends, std::byte* data, std::size_t size)
      : pipe_(&pipe), sends_(sends), data_(data), size_(size) {}
  bool goes_through(const Pipe& pipe) const { return pipe_ == &pipe; }

  /// Transfers as much as possible without waiting. Returns whether the transfer is complete.
  ///
  /// errors   Failure if the two ends differ in their size
  bool go_on() {
    while (done_ < size_) {
      const bool full = pipe_->written.load(std::memory_order_acquire) != pipe_->read.load(std::memory_order_acquire);
      if (full == sends_) return false;
      const std::size_t count = std::min(Pipe::kBytes, size_ - done_);
      if (sends_) {
        pipe_->message_bytes = size_;
        std::memcpy(pipe_->piece, data_ + done_, count);
        pipe_->written.fetch_add(1, std::memory_order_release);
      } else {
        require(pipe_->message_bytes == size_, cudaErrorLaunchFailure, "ncclRecv: ", size_, " bytes of a message of ",
                pipe_->message_bytes);
        std::memcpy(data_ + done_, pipe_->piece, count);
        pipe_->read.fetch_add(1, std::memory_order_release);
      }
      done_ += count;
    }
    return true;
  }

 private:
  Pipe* pipe_;
  bool sends_;
  std::byte* data_;
  std::size_t size_, done_ = 0;
};

}  // namespace cuda_host
