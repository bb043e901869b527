#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "context.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// All-reduce and all-gather of short vectors through memory shared by the ranks of a node. Each rank copies its vector
/// to its slot and sets one flag: no system call, no copy through MPI, and a fixed order of summation (by rank within
/// the node).
///
/// With few ranks or few bytes, every rank reads and sums all vectors (one synchronisation). Otherwise each rank sums
/// one chunk and reads the other chunks (two synchronisations). With several nodes, the first rank of each node then
/// reduces the node's sum with the first ranks of the other nodes.
///
/// Slots are double-buffered. A rank that begins call n+2 has met all others in call n+1, so no rank still reads the
/// slots of call n.
class NodeReduce {
 public:
  /// Bytes of shared memory for `ranks` ranks and vectors of up to slot_bytes (a multiple of 64).
  static std::size_t region_bytes(int ranks, std::size_t slot_bytes);

  NodeReduce(std::span<std::byte> region, int rank, int ranks, std::size_t slot_bytes);
  std::size_t slot_bytes() const { return slot_bytes_; }

  struct Call {
    ReduceOp op = ReduceOp::sum;
    const char* what = "";
    std::function<void(std::byte*)> between_nodes;  ///< reduces the node's sum in place across nodes; empty: one node
    std::function<void()> progress;                 ///< keeps other communication moving while this rank waits
    std::function<std::string(int)> name_rank;      ///< "rank 3 (node04)" for a rank of this node
  };
  /// Reduces in place; all ranks of the node receive the same bits. Collective over the node.
  /// errors   Error with both calls if another rank passes another count, operation or type
  template <class T>
  void all_reduce(CommContext& context, std::span<T> values, const Call& call);
  /// Returns when all ranks have called it. For a single node. Uses `call` as all_gather() does.
  void barrier(CommContext& context, const Call& call);
  /// Concatenates contributions of sizes[r] <= slot_bytes bytes in rank order. For a single node. Uses `what`,
  /// `progress` and `name_rank` of `call`.
  void all_gather(CommContext& context, std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                  std::span<std::byte> into, const Call& call);

 private:
  struct alignas(64) Flags {
    std::atomic<std::uint64_t> arrived;   ///< number of the last call whose vector is in the slot
    std::atomic<std::uint64_t> reduced;   ///< number of the last call whose chunk is in the result
    std::atomic<std::uint64_t> finished;  ///< on the first rank: number of the last call summed over all nodes
    std::atomic<std::uint64_t> count[2];
    std::atomic<std::uint64_t> kind[2];
  };
  /// Copies this rank's bytes to its slot and waits for all ranks, which must pass the same kind and count.
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
