#pragma once
#include <memory>
#include <span>

#include "context.hpp"
#include "lockstep/comm/communicator.hpp"
#include "thread_team.hpp"

namespace lockstep {

/// Collectives between threads of one process, which read each other's memory without copies. Sums are in rank order.
/// Mismatched calls are always detected; the step is compared only with dist.check_collectives.
class ThreadComm final : public Communicator {
 public:
  /// The communicator of rank `rank`, for use by its thread.
  ThreadComm(ThreadChannel& channel, const char* name, int rank, CommContext& context);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(channel_.slots.size()); }
  const char* backend() const override { return "threads"; }
  void all_reduce(Numbers values, ReduceOp op, const char* what) override {
    std::visit([&](auto span) { reduce(span, op, what); }, values);
  }
  std::unique_ptr<Request> start_all_reduce(Reals values, const char* what) override;
  std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) override;
  void broadcast(std::span<std::byte> bytes, int root, const char* what) override;
  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override;
  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override;
  void barrier(const char* what) override;

 private:
  class Pending;
  /// One collective of this rank. The constructor is the first synchronisation, leave() the second.
  class Call;
  void meet();
  /// The step if ranks compare it (in debug mode), otherwise -1.
  std::int64_t noted_step() const { return context_.options.check_collectives ? context_.status.step() : -1; }
  /// The data that rank r has published.
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
