#include "mpi_comm.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {

void check_mpi(int code, const std::string& doing, const std::source_location& where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Fault::internal, join(doing, ": ", text), where);
}

bool complete(std::span<MPI_Request> requests, std::string_view operation, std::string_view what) {
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) check_mpi(code, join(operation, " '", what, "'"));
  return done != 0;
}

namespace {
constexpr std::size_t kShortBytes = 16384;  // up to this size latency costs more than bandwidth
constexpr int kShortTag = 32;               // of the messages of short all-reduces

template <class T>
MPI_Datatype wire_type() {
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  return std::is_signed_v<T> ? MPI_INT64_T : MPI_UINT64_T;
}

MPI_Op mpi_op(ReduceOp op) {
  const MPI_Op by_op[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_BOR};
  return by_op[static_cast<std::size_t>(op)];
}

/// Calls piece(first, count) for consecutive ranges of at most `limit`, and once with count 0 if total is 0.
void in_pieces(std::size_t total, std::size_t limit, auto piece) {
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(limit, total - first);
    piece(first, count);
    first += count;
  } while (first < total);
}

class MpiComm final : public Communicator {
 public:
  MpiComm(MPI_Comm comm, const char* channel, CommContext& context, NodePath node_path)
      : channel_(channel), context_(context), node_path_(std::move(node_path)) {
    check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(comm, &check_comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(check_comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  ~MpiComm() override {
    MPI_Comm_free(&check_comm_);
    MPI_Comm_free(&comm_);
  }
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* backend() const override { return "mpi"; }
  void wait_failed(const std::string& why, bool late) override {
    if (context_.wait_failed) context_.wait_failed(why, late);
  }
  void all_reduce(Numbers values, ReduceOp op, const char* what) override {
    std::visit([&](auto span) { reduce(span, op, what); }, values);
  }
  std::unique_ptr<Request> start_all_reduce(Reals values, const char* what) override {
    return std::visit([&](auto span) { return start(span, what); }, values);
  }
  std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) override {
    const InCollective in = begin("compressed sum", values.size(), "f32", what);
    CompressedSum::Buffers buffers;
    if (!spare_.empty()) {
      buffers = std::move(spare_.back());
      spare_.pop_back();
    }
    return std::make_unique<PendingCompressedSum>(*this, values, in.call(), std::move(buffers));
  }
  void broadcast(std::span<std::byte> bytes, int root, const char* what) override {
    require(root >= 0 && root < size_, "broadcast '", what, "': root ", root, " of ", size_, " ranks");
    const InCollective in = begin(join("broadcast from ", root), bytes.size(), "bytes", what);
    in_pieces(bytes.size(), context_.options.max_message_bytes, [&](std::size_t first, std::size_t count) {
      run("broadcast", what, [&](MPI_Request* request) {
        return MPI_Ibcast(bytes.data() + first, static_cast<int>(count), MPI_BYTE, root, comm_, request);
      });
    });
  }

  void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                        const char* what) override {
    require(std::ssize(sizes) == size_, "all_gather '", what, "': ", sizes.size(), " sizes for ", size_, " ranks");
    const std::int64_t own = sizes[rank_];
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    require(std::ssize(mine) == own && std::ssize(into) == total, "all_gather '", what, "': rank ", rank_, " passes ",
            mine.size(), " bytes and memory for ", into.size(), ", but sizes has ", own, " and ", total);
    const InCollective in = begin("all_gather", into.size(), "bytes", what);
    const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    if (node_path_.reduce != nullptr && longest <= slot_bytes() && !node_path_.several_nodes) {
      node_path_.reduce->all_gather(context_, mine, sizes, into, node_call(ReduceOp::sum, what));
      return;
    }
    if (into.size() > context_.options.max_message_bytes) {
      const std::vector<std::span<const std::byte>> to(sizes.size(), mine);
      std::vector<MPI_Request> requests = post_all_to_all(to, sizes, into, what);
      return drive(requests, "all_gather", what);
    }
    std::vector<int> counts(sizes.size()), begins(sizes.size());
    for (std::size_t r = 0, at = 0; r < sizes.size(); at += static_cast<std::size_t>(sizes[r]), ++r) {
      counts[r] = static_cast<int>(sizes[r]);
      begins[r] = static_cast<int>(at);
    }
    run("all_gather", what, [&](MPI_Request* request) {
      return MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, into.data(), counts.data(),
                             begins.data(), MPI_BYTE, comm_, request);
    });
  }

  void all_to_all_known(std::span<const std::span<const std::byte>> to, std::span<const std::int64_t> from_sizes,
                        std::span<std::byte> into, const char* what) override {
    const InCollective in = begin("all_to_all", 0, "", what);
    std::vector<MPI_Request> requests = post_all_to_all(to, from_sizes, into, what);
    if (!requests.empty()) drive(requests, "all_to_all", what);
  }

  std::unique_ptr<Request> start_all_to_all(std::span<const std::span<const std::byte>> to,
                                            std::span<const std::int64_t> from_sizes, std::span<std::byte> into,
                                            const char* what) override {
    const InCollective in = begin("started all_to_all", 0, "", what);
    return std::make_unique<PendingMessages>(*this, in.call(), post_all_to_all(to, from_sizes, into, what));
  }

  void barrier(const char* what) override {
    const InCollective in = begin("barrier", 0, "", what);
    if (slot_bytes() > 0 && !node_path_.several_nodes)
      return node_path_.reduce->barrier(context_, node_call(ReduceOp::sum, what));
    run("barrier", what, [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
  }

 private:
  /// A started collective. The destructor of a derived class calls finish() first.
  class Pending : public Request {
   public:
    Pending(MpiComm& comm, const Signature& call)
        : comm_(comm),
          call_(call),
          progress_(comm.context_.options.progress_thread ? comm.context_.progress : nullptr) {
      if (progress_ != nullptr) progress_->begin();
    }
    ~Pending() override { end_progress(); }
    void wait() override {
      if (test()) return;
      end_progress();
      const InCollective in(comm_.context_, comm_.channel_.c_str(), call_);
      drive();
    }

   protected:
    /// Completes the collective.
    virtual void drive() = 0;
    void end_progress() {
      if (progress_ != nullptr) std::exchange(progress_, nullptr)->end();
    }
    /// Waits, and reports a failure.
    void finish() {
      try {
        // During an exception this rank is about to end the job, so it must not wait for the others.
        if (std::uncaught_exceptions() == 0) wait();
      } catch (const std::exception& problem) {
        log::error(problem.what());
      }
    }

    MpiComm& comm_;
    Signature call_;

   private:
    Progress* progress_;
  };

  class PendingMessages final : public Pending {
   public:
    PendingMessages(MpiComm& comm, const Signature& call, std::vector<MPI_Request> requests)
        : Pending(comm, call), requests_(std::move(requests)) {}
    ~PendingMessages() override { finish(); }
    bool test() override {
      if (requests_.empty()) return true;
      if (!complete(requests_, call_.operation.view(), call_.what.view())) return false;
      requests_.clear();
      end_progress();
      return true;
    }

   private:
    void drive() override {
      comm_.drive(requests_, call_.operation.view(), call_.what.view());
      requests_.clear();
    }
    std::vector<MPI_Request> requests_;
  };

  class PendingCompressedSum final : public Pending {
   public:
    PendingCompressedSum(MpiComm& comm, std::span<float> values, const Signature& call, CompressedSum::Buffers buffers)
        : Pending(comm, call),
          sum_(comm.comm_, values, call.sequence, call.what.chars.data(), comm.context_.options.max_message_bytes,
               std::move(buffers)) {
      comm.compressed_.push_back(this);
    }
    ~PendingCompressedSum() override {
      finish();
      std::erase(comm_.compressed_, this);
      if (done_) comm_.spare_.push_back(sum_.take_buffers());
    }
    bool test() override {
      // Drives all sums: other ranks may wait for this rank's contribution to another one.
      if (!done_)
        for (PendingCompressedSum* sum : comm_.compressed_) sum->move();
      return done_;
    }

   private:
    void drive() override {
      Backoff backoff(comm_.context_);
      while (!test()) backoff.pause();
    }
    void move() {
      if (done_ || !sum_.test()) return;
      done_ = true;
      end_progress();
    }
    CompressedSum sum_;
    bool done_ = false;
  };

  template <class T>
  void reduce(std::span<T> values, ReduceOp op, const char* what) {
    require(op != ReduceOp::bit_or || std::is_unsigned_v<T>, "all_reduce '", what, "': bit_or needs unsigned integers");
    const InCollective in = begin(operation_name(op), values.size(), element_name<T>(), what);
    const std::size_t slot = slot_bytes();
    // Within a node any length goes through shared memory in blocks, which is faster than MPI. Across nodes only data
    // that fit one block do, because the network would idle while the node sums the next block.
    if (slot >= sizeof(T) && (!node_path_.several_nodes || values.size_bytes() <= slot)) {
      in_pieces(values.size(), slot / sizeof(T),
                [&](std::size_t first, std::size_t count) { reduce_on_node(values.subspan(first, count), op, what); });
      return;
    }
    in_pieces(values.size(), context_.options.max_message_bytes / sizeof(T), [&](std::size_t first, std::size_t count) {
      reduce_by_mpi(comm_, values.subspan(first, count), op, "all_reduce", what);
    });
  }

  NodeReduce::Call node_call(ReduceOp op, const char* what) const {
    NodeReduce::Call call;
    call.op = op;
    call.what = what;
    call.progress = [this] {
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &flag, MPI_STATUS_IGNORE);
    };
    call.name_rank = [this](int r) { return name_rank(node_path_.world_ranks[r]); };
    return call;
  }

  /// Largest block that goes through the node's shared memory; 0 disables this path.
  std::size_t slot_bytes() const {
    return node_path_.reduce == nullptr ? 0
                                        : std::min(node_path_.reduce->slot_bytes(), context_.options.node_path_bytes);
  }
  template <class T>
  void reduce_on_node(std::span<T> values, ReduceOp op, const char* what) {
    NodeReduce::Call call = node_call(op, what);
    if (node_path_.several_nodes) {
      call.between_nodes = [&](std::byte* sum) {
        reduce_by_mpi(node_path_.leaders, std::span(reinterpret_cast<T*>(sum), values.size()), op,
                      "all_reduce between nodes of", what);
      };
    }
    node_path_.reduce->all_reduce(context_, values, call);
  }

  /// All-reduce by MPI, without shared memory.
  template <class T>
  void reduce_by_mpi(MPI_Comm comm, std::span<T> values, ReduceOp op, const char* operation, const char* what) {
    const std::string doing = join(operation, " '", what, "'");
    const auto count = static_cast<int>(values.size());
    if (values.size_bytes() > kShortBytes) {
      return run(operation, what, [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, values.data(), count, wire_type<T>(), mpi_op(op), comm, request);
      });
    }
    // Recursive doubling. MPI's non-blocking call costs several times as much for a few bytes.
    int rank = 0, size = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    std::array<std::byte, kShortBytes> theirs;
    std::vector<MPI_Request> requests;
    const auto receive = [&](int from, void* into) {
      check_mpi(MPI_Irecv(into, count, wire_type<T>(), from, kShortTag, comm, &requests.emplace_back(MPI_REQUEST_NULL)),
                doing);
    };
    const auto send = [&](int to) {
      check_mpi(MPI_Isend(values.data(), count, wire_type<T>(), to, kShortTag, comm,
                          &requests.emplace_back(MPI_REQUEST_NULL)),
                doing);
    };
    const auto finish = [&] {
      drive(requests, operation, what);
      requests.clear();
    };
    /// The lower rank's values are the first operand on both sides, so both have the same bits.
    const auto combine = [&](int other) {
      if (other < rank) {
        MPI_Reduce_local(theirs.data(), values.data(), count, wire_type<T>(), mpi_op(op));
      } else {
        MPI_Reduce_local(values.data(), theirs.data(), count, wire_type<T>(), mpi_op(op));
        std::memcpy(values.data(), theirs.data(), values.size_bytes());
      }
    };
    // Each odd rank below 2 * extra sends its values to the preceding rank, and receives the result from it.
    const int doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(size))), extra = size - doubling;
    if (rank < 2 * extra && rank % 2 == 1) {
      send(rank - 1);
      finish();
      receive(rank - 1, values.data());
      return finish();
    }
    if (rank < 2 * extra) {
      receive(rank + 1, theirs.data());
      finish();
      combine(rank + 1);
    }
    const int place = rank < 2 * extra ? rank / 2 : rank - extra;
    for (int step = 1; step < doubling; step *= 2) {
      const int partner = place ^ step, other = partner < extra ? 2 * partner : partner + extra;
      receive(other, theirs.data());
      send(other);
      finish();
      combine(other);
    }
    if (rank < 2 * extra) {
      send(rank + 1);
      finish();
    }
  }

  template <class T>
  std::unique_ptr<Request> start(std::span<T> values, const char* what) {
    const InCollective in = begin("all_reduce sum", values.size(), element_name<T>(), what);
    std::vector<MPI_Request> requests;
    in_pieces(values.size(), context_.options.max_message_bytes / sizeof(T), [&](std::size_t first, std::size_t count) {
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(count), wire_type<T>(), MPI_SUM,
                               comm_, &requests.back()),
                join("all_reduce '", what, "'"));
    });
    return std::make_unique<PendingMessages>(*this, in.call(), std::move(requests));
  }

  /// Copies this rank's own piece, and starts the messages of an all-to-all.
  std::vector<MPI_Request> post_all_to_all(std::span<const std::span<const std::byte>> to,
                                           std::span<const std::int64_t> from_sizes, std::span<std::byte> into,
                                           const char* what) {
    require(std::ssize(to) == size_ && std::ssize(from_sizes) == size_, "all_to_all '", what, "': ", to.size(),
            " pieces and ", from_sizes.size(), " sizes for ", size_, " ranks");
    const std::int64_t total = std::accumulate(from_sizes.begin(), from_sizes.end(), std::int64_t{0});
    require(std::ssize(into) == total, "all_to_all '", what, "': memory for ", into.size(), " bytes, but ", total,
            " arrive");
    std::vector<std::byte*> at(to.size());
    for (std::size_t r = 0, begin = 0; r < to.size(); begin += static_cast<std::size_t>(from_sizes[r]), ++r)
      at[r] = into.data() + begin;
    const auto self = static_cast<std::size_t>(rank_);
    require(std::ssize(to[self]) == from_sizes[self], "all_to_all '", what, "': rank ", rank_, " sends itself ",
            to[self].size(), " bytes but expects ", from_sizes[self]);
    if (!to[self].empty()) std::memcpy(at[self], to[self].data(), to[self].size());
    // Point to point: empty messages cost nothing, lengths are unlimited, and no intermediate copy is needed.
    constexpr int kTag = 17;
    std::vector<MPI_Request> requests;
    const auto post = [&](std::size_t size, auto call) {
      if (size == 0) return;
      in_pieces(size, context_.options.max_message_bytes, [&](std::size_t first, std::size_t count) {
        requests.push_back(MPI_REQUEST_NULL);
        check_mpi(call(first, static_cast<int>(count), &requests.back()), join("all_to_all '", what, "'"));
      });
    };
    for (int shift = 1; shift < size_; ++shift) {
      const int r = (rank_ + size_ - shift) % size_;
      post(static_cast<std::size_t>(from_sizes[r]), [&](std::size_t first, int count, MPI_Request* request) {
        return MPI_Irecv(at[r] + first, count, MPI_BYTE, r, kTag, comm_, request);
      });
    }
    for (int shift = 1; shift < size_; ++shift) {
      const int r = (rank_ + shift) % size_;
      const std::span<const std::byte> piece = to[r];
      post(piece.size(), [&](std::size_t first, int count, MPI_Request* request) {
        return MPI_Isend(piece.data() + first, count, MPI_BYTE, r, kTag, comm_, request);
      });
    }
    return requests;
  }

  /// Counts the collective. In debug mode, compares it with the calls of the other ranks.
  InCollective begin(std::string_view operation, std::uint64_t count, const char* type, const char* what) {
    const Signature call = make_signature(++sequence_, context_.status.step(), operation, count, type, what);
    if (context_.options.check_collectives) {
      const InCollective in(context_, channel_.c_str(), call);
      agree_on_call(call);
    }
    return InCollective(context_, channel_.c_str(), call);
  }

  void agree_on_call(const Signature& mine) {
    std::vector<Signature> all(size_);
    run("check of collectives", mine.what.view(), [&](MPI_Request* request) {
      return MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, check_comm_, request);
    });
    require_same_collective(all, rank_, [this](int r) { return name_rank(r); });
  }
  /// Waits for the requests.
  void drive(std::span<MPI_Request> requests, std::string_view operation, std::string_view what) {
    Backoff backoff(context_);
    while (!complete(requests, operation, what)) backoff.pause();
  }

  /// Calls start(MPI_Request*) and waits for its request.
  void run(std::string_view operation, std::string_view what, auto start) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(start(&request), join(operation, " '", what, "'"));
    drive({&request, 1}, operation, what);
  }
  std::string name_rank(int rank) const {
    // The communicator of a node covers one host. The communicator of all ranks knows their hosts.
    const bool world = static_cast<std::size_t>(size_) == context_.hosts.size();
    return world ? join("rank ", rank, " (", context_.hosts[rank], ")") : join("rank ", rank, " of the node");
  }

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

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, const char* channel, CommContext& context,
                                                    NodePath node_path) {
  return std::make_unique<MpiComm>(comm, channel, context, std::move(node_path));
}

}  // namespace lockstep
