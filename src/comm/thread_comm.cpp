#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "context.hpp"
#include "lockstep/base/bf16.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"
#include "thread_team.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kBlock = 1024;  // elements; sums stay in the L1 cache

template <class T>
T combine(T a, T b, ReduceOp op) {
  if constexpr (std::is_unsigned_v<T>)
    if (op == ReduceOp::bit_or) return a | b;
  return op == ReduceOp::min ? std::min(a, b) : op == ReduceOp::max ? std::max(a, b) : a + b;
}

/// Replaces elements [first, last) of all ranks' vectors by their sum in rank order.
template <class T>
void reduce_slice(std::span<T* const> ranks, std::size_t first, std::size_t last, ReduceOp op) {
  std::array<T, kBlock> sum;
  for (std::size_t at = first; at < last; at += kBlock) {
    const std::size_t count = std::min(kBlock, last - at);
    std::copy_n(ranks[0] + at, count, sum.begin());
    for (const T* rank : ranks.subspan(1)) {
      if (op == ReduceOp::sum) {
        for (std::size_t i = 0; i < count; ++i) sum[i] += rank[at + i];
      } else {
        for (std::size_t i = 0; i < count; ++i) sum[i] = combine(sum[i], rank[at + i], op);
      }
    }
    for (T* rank : ranks) std::copy_n(sum.begin(), count, rank + at);
  }
}

/// Computes the same bits as CompressedSum: the owner of a chunk adds its own values unrounded.
void reduce_compressed(std::span<float* const> ranks, std::size_t n) {
  for (std::size_t owner = 0; owner < ranks.size(); ++owner)
    for (std::size_t i = n * owner / ranks.size(); i < n * (owner + 1) / ranks.size(); ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < ranks.size(); ++r) sum += r == owner ? ranks[r][i] : from_bf16(to_bf16(ranks[r][i]));
      const float rounded = from_bf16(to_bf16(sum));
      for (float* rank : ranks) rank[i] = rounded;
    }
}

class ThreadComm final : public Communicator {
 public:
  ThreadComm(ThreadChannel& channel, const char* name, int rank, CommContext& context)
      : channel_(channel), name_(name), rank_(rank), context_(context) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(channel_.slots.size()); }
  const char* backend() const override { return "threads"; }
  void all_reduce(Numbers values, ReduceOp op, const char* what) override {
    std::visit([&](auto span) { reduce(span, op, what); }, values);
  }
  std::unique_ptr<Request> start_all_reduce(Reals values, const char* what) override {
    return std::visit(
        [&](auto span) {
          return start(span, "all_reduce sum", what,
                       [](auto ranks, std::size_t n) { reduce_slice(ranks, 0, n, ReduceOp::sum); });
        },
        values);
  }

  std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) override {
    return start(values, "compressed sum", what, reduce_compressed);
  }

  void broadcast(std::span<std::byte> bytes, int root, const char* what) override {
    require(root >= 0 && root < size(), "broadcast '", what, "': root ", root, " of ", size(), " ranks");
    Call call(*this, join("broadcast from ", root), bytes.size(), "bytes", what, bytes.data());
    if (rank_ != root && !bytes.empty()) std::memcpy(bytes.data(), of<std::byte>(root), bytes.size());
    call.leave();
  }

  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override {
    require(static_cast<int>(sizes.size()) == size(), "all_gather '", what, "': ", sizes.size(), " sizes for ", size(),
            " ranks");
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    require(std::ssize(mine) == sizes[rank_] && std::ssize(into) == total, "all_gather '", what, "': rank ", rank_,
            " passes ", mine.size(), " bytes and memory for ", into.size(), ", but sizes has ", sizes[rank_], " and ",
            total);
    Call call(*this, "all_gather", static_cast<std::uint64_t>(total), "bytes", what, mine.data());
    std::byte* at = into.data();
    for (int r = 0; r < size(); ++r) {
      const auto bytes = static_cast<std::size_t>(sizes[r]);
      if (bytes > 0) std::memcpy(at, of<std::byte>(r), bytes);
      at += bytes;
    }
    call.leave();
  }

  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override {
    require(static_cast<int>(to.size()) == size() && static_cast<int>(from_sizes.size()) == size(), "all_to_all '",
            what, "': ", to.size(), " pieces and ", from_sizes.size(), " sizes for ", size(), " ranks");
    const std::int64_t total = std::accumulate(from_sizes.begin(), from_sizes.end(), std::int64_t{0});
    require(std::ssize(into) == total, "all_to_all '", what, "': memory for ", into.size(), " bytes, but ", total,
            " arrive");
    Call call(*this, "all_to_all", 0, "", what, to.data());
    std::byte* at = into.data();
    for (int r = 0; r < size(); ++r) {
      const std::span<const std::byte> piece = of<std::span<const std::byte>>(r)[rank_];
      const std::int64_t expected = from_sizes[r];
      require(std::ssize(piece) == expected, "all_to_all '", what, "': rank ", r, " sends ", piece.size(),
              " bytes to rank ", rank_, ", which expects ", expected);
      if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
    }
    call.leave();
  }

  void barrier(const char* what) override { Call(*this, "barrier", 0, "", what); }

 private:
  /// One collective of this rank. The constructor is the first synchronisation, leave() the second.
  class Call {
   public:
    /// errors   CollectiveError (internal) on all ranks if their calls differ
    Call(ThreadComm& comm, std::string_view operation, std::uint64_t count, const char* type, const char* what,
         const void* data = nullptr)
        : comm_(comm), in_(comm.context_, comm.name_, comm.signed_call(operation, count, type, what)) {
      const std::size_t buffer = comm.sequence_ % 2;
      ThreadChannel::Slot& mine = comm.channel_.slots[comm.rank_];
      mine.calls[buffer] = in_.call();
      mine.data = data;
      comm.meet();
      std::vector<Signature> all;
      for (const ThreadChannel::Slot& slot : comm.channel_.slots) all.push_back(slot.calls[buffer]);
      require_same_collective(all, comm.rank_,
                              [&](int r) { return join("rank ", r, " (", comm.context_.hosts[r], ")"); });
    }
    void leave() { comm_.meet(); }

   private:
    ThreadComm& comm_;
    InCollective in_;
  };

  /// A sum that this rank has started. The last rank to start it performs the addition, so there is nothing to drive.
  class Pending final : public Request {
   public:
    Pending(ThreadComm& comm, std::shared_ptr<ThreadChannel::Started> sum) : comm_(comm), sum_(std::move(sum)) {}
    ~Pending() override {
      // During an exception this rank is about to end the process, so it must not wait for the others.
      if (std::uncaught_exceptions() == 0) wait();
    }
    bool test() override { return sum_->done.load(std::memory_order_acquire); }
    void wait() override {
      if (test()) return;
      const InCollective in(comm_.context_, comm_.name_, sum_->call);
      Backoff backoff(comm_.context_);
      while (!test()) backoff.pause();
    }

   private:
    ThreadComm& comm_;
    std::shared_ptr<ThreadChannel::Started> sum_;
  };

  void meet() {
    const std::uint64_t all = ++meetings_ * static_cast<std::uint64_t>(size());
    channel_.arrived.fetch_add(1, std::memory_order_acq_rel);
    Backoff backoff(context_);
    while (channel_.arrived.load(std::memory_order_acquire) < all) backoff.pause();
  }

  /// The next call. Its step is -1 unless ranks compare steps (in debug mode).
  Signature signed_call(std::string_view operation, std::uint64_t count, const char* type, const char* what) {
    const std::int64_t step = context_.options.check_collectives ? context_.status.step() : -1;
    return make_signature(++sequence_, step, operation, count, type, what);
  }

  /// The data that rank r has published.
  template <class T>
  const T* of(int r) const {
    return static_cast<const T*>(channel_.slots[r].data);
  }

  template <class T>
  void reduce(std::span<T> values, ReduceOp op, const char* what) {
    require(op != ReduceOp::bit_or || std::is_unsigned_v<T>, "all_reduce '", what, "': bit_or needs unsigned integers");
    Call call(*this, operation_name(op), values.size(), element_name<T>(), what, values.data());
    std::vector<T*> ranks;
    for (int r = 0; r < size(); ++r) ranks.push_back(const_cast<T*>(of<T>(r)));
    // Each rank sums a range of whole cache lines.
    constexpr std::size_t kLine = 16;
    const std::size_t n = values.size(), lines = (n + kLine - 1) / kLine, mine = static_cast<std::size_t>(rank_);
    const auto begin = [&](std::size_t r) { return std::min(n, lines * r / ranks.size() * kLine); };
    reduce_slice<T>(ranks, begin(mine), begin(mine + 1), op);
    call.leave();
  }

  template <class T, class AddUp>
  std::unique_ptr<Request> start(std::span<T> values, const char* operation, const char* what, const AddUp& add_up) {
    const InCollective in(context_, name_, signed_call(operation, values.size(), element_name<T>(), what));
    std::shared_ptr<ThreadChannel::Started> sum;
    bool last = false;
    {
      const std::lock_guard lock(channel_.mutex);
      std::shared_ptr<ThreadChannel::Started>& entry = channel_.started[sequence_];
      if (!entry) {
        entry = std::make_shared<ThreadChannel::Started>();
        entry->call = in.call();
        entry->values.resize(channel_.slots.size());
      }
      sum = entry;
      sum->values[rank_] = values.data();
      last = ++sum->arrived == size();
      if (last) channel_.started.erase(sequence_);
    }
    require(std::memcmp(&sum->call, &in.call(), sizeof(Signature)) == 0, "starting ", operation, " of ", values.size(),
            " ", element_name<T>(), " '", what, "': another rank starts ", sum->call.operation.view(), " of ",
            sum->call.count, " ", sum->call.type.view(), " '", sum->call.what.view(), "' as its collective ",
            sequence_);
    if (last) {
      std::vector<T*> ranks;
      for (void* rank : sum->values) ranks.push_back(static_cast<T*>(rank));
      add_up(std::span<T* const>(ranks), values.size());
      sum->done.store(true, std::memory_order_release);
    }
    return std::make_unique<Pending>(*this, std::move(sum));
  }

  ThreadChannel& channel_;
  const char* name_;
  const int rank_;
  CommContext& context_;
  std::uint64_t sequence_ = 0, meetings_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_thread_communicator(ThreadChannel& channel, const char* name, int rank,
                                                       CommContext& context) {
  return std::make_unique<ThreadComm>(channel, name, rank, context);
}

}  // namespace lockstep
