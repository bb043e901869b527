#pragma once
#include <mpi.h>

#include <memory>
#include <source_location>
#include <string>

#include "compressed_sum.hpp"
#include "context.hpp"
#include "lockstep/comm/communicator.hpp"
#include "node_reduce.hpp"
#include "signature.hpp"

namespace lockstep {

/// Throws Error (internal) unless `code` is MPI_SUCCESS. The message is `doing`, then MPI's text.
void check_mpi(int code, const std::string& doing, const std::source_location& where = std::source_location::current());

/// The fast path of small all-reduces: shared memory within a node, and a communicator of the nodes' first ranks across
/// nodes.
struct NodePath {
  NodeReduce* reduce = nullptr;
  MPI_Comm leaders = MPI_COMM_NULL;  ///< on the first rank of each node, if there are several nodes
  bool several_nodes = false;
  std::vector<int> world_ranks;  ///< world rank of each rank of this node
};

/// Collectives over MPI. Each uses the non-blocking form, driven by MPI_Test, so that a waiting rank can report its
/// position and yield.
class MpiComm final : public Communicator {
 public:
  /// Duplicates `comm`. `channel` is its name in reports. With a node path, `comm` must contain all ranks.
  MpiComm(MPI_Comm comm, const char* channel, CommContext& context, NodePath node_path = {});
  ~MpiComm() override;
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* backend() const override { return "mpi"; }
  void all_reduce(Numbers values, ReduceOp op, const char* what) override {
    std::visit([&](auto span) { reduce(span, op, what); }, values);
  }
  std::unique_ptr<Request> start_all_reduce(Reals values, const char* what) override {
    return std::visit([&](auto span) { return start(span, what); }, values);
  }
  std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) override;
  void broadcast(std::span<std::byte> bytes, int root, const char* what) override;
  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override;
  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override;
  void barrier(const char* what) override;

 private:
  class Pending;
  class PendingSum;
  class PendingCompressedSum;
  template <class T>
  void reduce(std::span<T> values, ReduceOp op, const char* what);
  NodeReduce::Call node_call(ReduceOp op, const char* what) const;
  /// Largest block that goes through the node's shared memory; 0 disables this path.
  std::size_t slot_bytes() const;
  template <class T>
  void reduce_on_node(std::span<T> values, ReduceOp op, const char* what);
  /// All-reduce by MPI, without shared memory.
  template <class T>
  void reduce_by_mpi(MPI_Comm comm, std::span<T> values, ReduceOp op, const char* operation, const char* what);
  template <class T>
  std::unique_ptr<Request> start(std::span<T> values, const char* what);
  /// Counts the collective. In debug mode, compares it with the calls of the other ranks.
  InCollective begin(const char* operation, std::uint64_t count, const char* type, const char* what);
  void agree_on_call(const Signature& mine);
  /// Waits for the requests.
  void drive(std::span<MPI_Request> requests, const char* operation, const char* what);
  /// Calls start(MPI_Request*) and waits for its request.
  template <class Start>
  void run(const char* operation, const char* what, Start start);
  std::string name_rank(int rank) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm check_comm_ = MPI_COMM_NULL;  ///< separate, so that the check works when collectives on comm_ mismatch
  std::string channel_;
  CommContext& context_;
  NodePath node_path_;
  int rank_ = 0, size_ = 1;
  std::uint64_t sequence_ = 0;
  std::vector<PendingCompressedSum*> compressed_;  ///< in progress
  std::vector<CompressedSum::Buffers> spare_;      ///< of completed sums
};

}  // namespace lockstep
