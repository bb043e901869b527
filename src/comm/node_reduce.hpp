#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "context.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// All-reduce (and all-gather) of short vectors through memory that the ranks of a node share: each rank writes its vector once, and one
/// flag per rank says so; no system call, no copy through MPI, and always the same order of summation (by rank within
/// the node).
///
/// Few ranks or few bytes: every rank reads all vectors and adds them up itself (one meeting). Otherwise each rank adds
/// up one segment and reads the others' (two meetings). With several nodes the first rank of each node then reduces the
/// node's sum with the other nodes' first ranks.
///
/// Vectors lie in two sets of slots used in turn: a rank that begins call n+2 has met all others in call n+1, so all
/// have left n.
class NodeReduce {
 public:
  /// Bytes of node memory for `ranks` ranks and vectors of up to slot_bytes (a multiple of 64).
  static std::size_t region_bytes(int ranks, std::size_t slot_bytes);

  NodeReduce(std::span<std::byte> region, int rank, int ranks, std::size_t slot_bytes);
  std::size_t slot_bytes() const { return slot_bytes_; }

  struct Call {
    ReduceOp op = ReduceOp::sum;
    const char* what = "";
    std::function<void(std::byte*)>
        between_nodes;               ///< reduces the node's sum in place with the other nodes'; empty: one node
    std::function<void()> progress;  ///< keeps other communication moving while this rank waits
    std::function<std::string(int)> name_rank;  ///< "rank 3 (node04)" of a rank of this node
  };
  /// In place, the same bits on all ranks of the node. Collective over the node.
  /// errors  Error naming both sides when another rank calls with another count, operation or type
  template <class T>
  void all_reduce(CommContext& context, std::span<T> values, const Call& call);
  /// Pieces of sizes[r] bytes, at most slot_bytes each, one after another in rank order; one node only. Of `call`, what, progress and
  /// name_rank count.
  void all_gather(CommContext& context, std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                  std::span<std::byte> into, const Call& call);

 private:
  struct alignas(64) Flags {
    std::atomic<std::uint64_t> arrived;  ///< number of the last call whose vector is in the slot
    std::atomic<std::uint64_t> reduced;  ///< number of the last call whose segment is in the result
    std::atomic<std::uint64_t>
        finished;  ///< first rank only: number of the last call whose result is that of all nodes
    std::atomic<std::uint64_t> count[2];
    std::atomic<std::uint64_t> kind[2];
  };
  /// Puts this rank's bytes into its slot and waits until everyone has; all must come with the same kind and count.
  void meet(CommContext& context, std::span<const std::byte> mine, std::uint64_t kind, std::uint64_t count,
            const Call& call);
  template <class Ready>
  void wait(CommContext& context, const Call& call, Ready ready);
  std::byte* slot(int rank) const;
  std::byte* result() const;

  std::span<std::byte> region_;
  int rank_, ranks_;
  std::size_t slot_bytes_;
  Flags* flags_;
  std::byte* slots_;
  std::uint64_t call_ = 0;
};

}  // namespace lockstep
