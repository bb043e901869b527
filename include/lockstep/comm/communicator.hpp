#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// bit_or is for unsigned words (bitmaps of touched rows) only.
enum class ReduceOp : std::uint8_t { sum, min, max, bit_or };

/// A collective under way. wait() drives it to its end; test() gives it a chance to progress and says whether it has
/// ended. The destructor of an unfinished request waits: the memory is in use until then.
class Request {
 public:
  virtual ~Request() = default;
  virtual bool test() = 0;
  virtual void wait() = 0;
};

/// What every rank gave, one piece after another. Keep one and use it again: its memory is kept from call to call.
struct Gathered {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> begin;  ///< piece of rank r: bytes [begin[r], begin[r + 1])
  int ranks() const { return begin.empty() ? 0 : static_cast<int>(begin.size()) - 1; }
  std::span<const std::byte> of(int rank) const {
    return std::span(bytes).subspan(static_cast<std::size_t>(begin[rank]),
                                    static_cast<std::size_t>(begin[rank + 1] - begin[rank]));
  }
};

/// What the ranks do together. Every rank calls the same collectives in the same order with the same counts, from one
/// thread at a time. docs/communication.md says what each collective means and what is guaranteed.
///
/// In debug mode (`dist.check_collectives`) each call first agrees on (sequence number, operation, count, type, what,
/// step), so that a mismatch is an error naming both sides before data moves. Every wait has a deadline
/// (`dist.timeout`): past it the watchdog names the rank, host, step and collective that is late, and the job ends.
///
/// `what` says what the data are ("gradient bucket 3", "loss"), for these messages.
/// errors  Error (internal) naming the operation, `what` and MPI's or NCCL's own text
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Name in banners: "self", "mpi", "nccl".
  virtual const char* backend() const = 0;

  /// In place: every rank ends with the same bits. Float sums are in an order that depends on the number of ranks; use
  /// tree_all_reduce (tree_reduce.hpp) where it must not.
  virtual void all_reduce(std::span<float> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<double> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, ReduceOp op, const char* what) = 0;
  /// Starts a sum; the memory must not be touched until the request is done. Start in the same order on every rank;
  /// several may be under way at once, and blocking collectives may come between.
  virtual std::unique_ptr<Request> start_all_reduce(std::span<float> values, const char* what) = 0;
  virtual std::unique_ptr<Request> start_all_reduce(std::span<double> values, const char* what) = 0;

  /// As start_all_reduce, for sums that may lose digits: values travel rounded to bf16, half the bytes, and are added in
  /// f32, in rank order; the sum is rounded to bf16, too. Every rank ends with the same bits, those of a fixed number of
  /// ranks. One rank on its own keeps its values as they are.
  virtual std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) = 0;

  /// In place: every rank ends with root's bytes.
  virtual void broadcast(std::span<std::byte> bytes, int root, const char* what) = 0;

  /// Concatenation in rank order of pieces whose lengths everybody knows: sizes[r] bytes from rank r, into
  /// (sum of sizes). Ranks may give different lengths, none included.
  virtual void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                                std::span<std::byte> into, const char* what) = 0;
  /// to[r] goes to rank r; from_sizes[r] bytes come from rank r and lie in rank order in into (sum of from_sizes).
  virtual void all_to_all_known(std::span<const std::span<const std::byte>> to,
                                std::span<const std::int64_t> from_sizes, std::span<std::byte> into,
                                const char* what) = 0;
  virtual void barrier(const char* what) = 0;

  /// As above, when only the giver knows the length: the lengths travel first.
  void all_gather(std::span<const std::byte> mine, Gathered& into, const char* what);
  void all_to_all(std::span<const std::span<const std::byte>> to, Gathered& into, const char* what);
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, const char* what);
  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to, const char* what);

  /// One number (float, double, int64 or uint64), reduced.
  template <class T>
  T all_reduced(T value, ReduceOp op, const char* what) {
    all_reduce(std::span<T>(&value, 1), op, what);
    return value;
  }
  /// True when every rank says so; collective.
  bool agree(bool mine, const char* what);
  std::string broadcast_text(std::string text, int root, const char* what);
  std::vector<std::string> all_gather_text(const std::string& mine, const char* what);
};

/// One rank on its own: every collective is the identity.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep
