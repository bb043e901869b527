#pragma once
#include <memory>
#include <span>

#include "context.hpp"
#include "lockstep/comm/communicator.hpp"
#include "thread_team.hpp"

namespace lockstep {

/// Collectives between threads of one process, in each other's memory: nothing is copied on the way. Sums are in the order
/// of ranks. Calls that do not match are found always, but for the step, which is compared with dist.check_collectives.
class ThreadComm final : public Communicator {
 public:
  /// The end of rank `rank`, to be used by its thread.
  ThreadComm(ThreadChannel& channel, const char* name, int rank, CommContext& context);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(channel_.slots.size()); }
  const char* backend() const override { return "threads"; }
  void all_reduce(std::span<float> values, ReduceOp op, const char* what) override { reduce(values, op, what); }
  void all_reduce(std::span<double> values, ReduceOp op, const char* what) override { reduce(values, op, what); }
  void all_reduce(std::span<std::int64_t> values, ReduceOp op, const char* what) override { reduce(values, op, what); }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op, const char* what) override { reduce(values, op, what); }
  std::unique_ptr<Request> start_all_reduce(std::span<float> values, const char* what) override;
  std::unique_ptr<Request> start_all_reduce(std::span<double> values, const char* what) override;
  std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) override;
  void broadcast(std::span<std::byte> bytes, int root, const char* what) override;
  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override;
  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override;
  void barrier(const char* what) override;

 private:
  class Pending;
  /// One collective of this rank: its first meeting when it is made, its second by leave().
  class Call;
  void meet();
  /// The step, as far as the ranks agree on it: in debug mode.
  std::int64_t noted_step() const { return context_.options.check_collectives ? context_.status.step() : -1; }
  /// What rank r has put down.
  template <class T>
  const T* of(int r) const {
    return static_cast<const T*>(channel_.slots[static_cast<std::size_t>(r)].data);
  }
  template <class T>
  void reduce(std::span<T> values, ReduceOp op, const char* what);
  template <class T, class AddUp>
  std::unique_ptr<Request> start(std::span<T> values, const char* operation, const char* what, const AddUp& add_up);

  ThreadChannel& channel_;
  const char* name_;
  const int rank_;
  CommContext& context_;
  std::uint64_t sequence_ = 0, meetings_ = 0;
};

}  // namespace lockstep
