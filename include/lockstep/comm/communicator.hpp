#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// bit_or is for unsigned integers only (bitmaps of touched rows).
enum class ReduceOp : std::uint8_t { sum, min, max, bit_or };

/// A collective in progress. wait() completes it; test() lets it progress and returns whether it is complete. The
/// destructor of an incomplete request waits, because the collective uses the caller's memory until then.
class Request {
 public:
  virtual ~Request() = default;
  virtual bool test() = 0;
  virtual void wait() = 0;
};

/// The elements of an array that was sent as bytes. An incomplete last element is ignored.
template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::ranges::copy(bytes.first(values.size() * sizeof(T)), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

/// The contributions of all ranks, in rank order.
struct Gathered {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> begin;  ///< rank r contributed bytes [begin[r], begin[r + 1])
  int ranks() const { return begin.empty() ? 0 : static_cast<int>(begin.size()) - 1; }
  std::span<const std::byte> of(int rank) const {
    return std::span(bytes).subspan(begin[rank], begin[rank + 1] - begin[rank]);
  }
};

/// Collectives over a group of ranks. Every rank calls the same collectives in the same order with the same counts,
/// from one thread at a time. docs/communication.md defines each collective and its guarantees.
///
/// In debug mode (`dist.check_collectives`) ranks first compare (sequence number, operation, count, type, what, step)
/// of each call, so a mismatch is an error that names both sides before data moves. Every wait has a deadline
/// (`dist.timeout`). When it passes, the watchdog names the late rank, its host, step and collective, and ends the job.
///
/// `what` describes the data in these messages ("gradient bucket 3", "loss").
/// errors   Error (internal) with the operation, `what` and the text of MPI or NCCL
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Name for banners: "self", "mpi", "threads".
  virtual const char* backend() const = 0;

  /// Reduces in place; every rank receives the same bits. The summation order of floats depends on the number of ranks.
  /// Use tree_all_reduce (tree_reduce.hpp) for sums that must not depend on it.
  using Numbers = std::variant<std::span<float>, std::span<double>, std::span<std::int64_t>, std::span<std::uint64_t>>;
  virtual void all_reduce(Numbers values, ReduceOp op, const char* what) = 0;
  /// Starts a sum. The memory must not be touched until the request is complete. All ranks start sums in the same
  /// order. Several sums may be in progress, and blocking collectives may run in between.
  using Reals = std::variant<std::span<float>, std::span<double>>;
  virtual std::unique_ptr<Request> start_all_reduce(Reals values, const char* what) = 0;

  /// Like start_all_reduce, with half the bytes and less precision: values travel rounded to bf16 and are added in f32
  /// in rank order; the sum is rounded to bf16. Every rank receives the same bits, which depend on the number of ranks.
  /// A single rank keeps its values unchanged.
  virtual std::unique_ptr<Request> start_compressed_sum(std::span<float> values, const char* what) = 0;

  /// Copies `bytes` of rank `root` to `bytes` of all other ranks. All have the same size.
  virtual void broadcast(std::span<std::byte> bytes, int root, const char* what) = 0;

  /// Concatenates contributions of known lengths in rank order. Lengths may differ between ranks and may be 0.
  ///
  /// shapes   mine (sizes[rank()]);  into (sum of sizes)
  virtual void all_gather_known(std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                                std::span<std::byte> into, const char* what) = 0;
  /// Sends to[r] to rank r and receives from_sizes[r] bytes from rank r.
  ///
  /// shapes   into (sum of from_sizes), in rank order
  virtual void all_to_all_known(std::span<const std::span<const std::byte>> to,
                                std::span<const std::int64_t> from_sizes, std::span<std::byte> into,
                                const char* what) = 0;
  /// Starts such an exchange. The memory that `to` and `into` name must not be touched until the request is complete.
  /// Ranks that are threads complete it at once.
  virtual std::unique_ptr<Request> start_all_to_all(std::span<const std::span<const std::byte>> to,
                                                    std::span<const std::int64_t> from_sizes, std::span<std::byte> into,
                                                    const char* what);
  virtual void barrier(const char* what) = 0;
  /// A wait for the other ranks by other means, such as NCCL, has failed. If the ranks are processes, ends the job.
  /// late  whether the deadline has passed
  virtual void wait_failed(const std::string& /*why*/, bool /*late*/) {}

  /// As all_gather_known and all_to_all_known, but exchange the lengths first: only the sender needs to know them.
  Gathered all_gather(std::span<const std::byte> mine, const char* what);
  Gathered all_to_all(std::span<const std::span<const std::byte>> to, const char* what);
  /// Copies `out` of rank `from` to `in` of rank `to`; both have the same size. The spans of other ranks are ignored.
  /// Collective.
  void pass(int from, int to, std::span<const std::byte> out, std::span<std::byte> in, const char* what);

  /// Reduces one number (float, double, int64 or uint64).
  template <class T>
  T all_reduced(T value, ReduceOp op, const char* what) {
    all_reduce(std::span<T>(&value, 1), op, what);
    return value;
  }
  /// Whether `mine` is true on every rank. Collective.
  bool agree(bool mine, const char* what);
  std::string broadcast_text(std::string text, int root, const char* what);
  std::vector<std::string> all_gather_text(const std::string& mine, const char* what);
};

/// The communicator of a single rank: every collective is the identity.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep
