#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A sum over ranks with half the traffic: values travel as bf16 and are added in f32, in rank order.
///
/// Each rank owns one chunk of the vector. Every rank rounds each chunk to bf16 and sends it to its owner. The owner
/// adds the contributions in rank order (its own unrounded), rounds the sum to bf16, sends it to all ranks and keeps
/// the rounded sum itself, so every rank ends with the same bits. (ranks - 1) / ranks * 4 bytes per element leave each
/// rank; a ring in f32 moves 8. Every rank sends to every other rank, so chunks should not be tiny: buckets of a
/// megabyte suit some hundred ranks.
///
/// Point-to-point messages with separate tags: several sums may be in progress and enter their second phase in any
/// order.
class CompressedSum {
 public:
  /// Memory of one sum, reused from call to call.
  struct Buffers {
    std::vector<std::uint16_t> out, in;
    std::vector<MPI_Request> scatter, gather, sends;
  };
  /// Posts the receives and the first sends. `sequence` is the same on all ranks and differs between sums in progress.
  /// Chunks longer than max_message_bytes travel in several messages.
  CompressedSum(MPI_Comm comm, std::span<float> values, std::uint64_t sequence, const char* what,
                std::size_t max_message_bytes, Buffers buffers);
  /// Lets the sum progress. Returns whether it is complete.
  bool test();
  Buffers take_buffers() { return std::move(b_); }

 private:
  struct Chunk {
    std::size_t begin, count;
  };
  Chunk chunk(int rank) const;
  void receive(std::uint16_t* into, std::size_t count, int from, int tag, std::vector<MPI_Request>& requests) const;
  void send(const std::uint16_t* values, std::size_t count, int to, int tag);
  void add_up();
  void send_sum();
  void take_sums();

  MPI_Comm comm_;
  std::span<float> values_;
  std::string what_;
  Buffers b_;
  int rank_ = 0, size_ = 1;
  int tag_;
  std::size_t message_values_;  ///< limit of one message
  enum class Stage : std::uint8_t { scattering, gathering, done } stage_ = Stage::scattering;
};

}  // namespace lockstep
