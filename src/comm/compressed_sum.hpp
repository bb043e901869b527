#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A sum over ranks that moves half the bytes: values travel as bf16 and are added in f32, in rank order.
///
/// Each rank owns one part of the vector. Everybody sends every owner its part rounded to bf16; the owner adds them up (its own
/// values unrounded), rounds the sum and sends it to all, and takes the rounded one itself: every rank ends with the same bits.
/// (ranks - 1) / ranks * 4 bytes per element leave each rank, where a ring of f32 moves 8. Messages go from each rank to each, so
/// parts should not be tiny: buckets of a megabyte suit some hundred ranks.
///
/// Point to point with tags of its own: several may be under way, and their second halves may begin in any order.
class CompressedSum {
 public:
  /// Memory of one sum, kept from call to call.
  struct Buffers {
    std::vector<std::uint16_t> out, in;
    std::vector<MPI_Request> scatter, gather, sends;
  };
  /// Posts the receives and the first sends. `sequence` is the same on all ranks and differs between sums under way.
  CompressedSum(MPI_Comm comm, std::span<float> values, std::uint64_t sequence, const char* what, Buffers buffers);
  /// Whether the sum is there; moves it on.
  bool test();
  Buffers take_buffers() { return std::move(b_); }

 private:
  struct Part {
    std::size_t begin, count;
  };
  Part part(int rank) const;
  bool all_done(std::vector<MPI_Request>& requests) const;
  void add_up();
  void send_sum();
  void take_sums();

  MPI_Comm comm_;
  std::span<float> values_;
  std::string what_;
  Buffers b_;
  int rank_ = 0, size_ = 1;
  int tag_;
  enum class Stage : std::uint8_t { scattering, gathering, done } stage_ = Stage::scattering;
};

}  // namespace lockstep
