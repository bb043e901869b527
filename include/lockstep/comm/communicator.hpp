#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep {

enum class ReduceOp : std::uint8_t { sum, min, max };

/// A collective under way. wait() drives it to its end; test() gives it a chance to progress.
class Request {
 public:
  virtual ~Request() = default;
  virtual bool test() = 0;
  virtual void wait() = 0;
};

/// What the ranks do together. Every rank calls the same collectives in the same order with the same counts.
///
/// In debug mode (`dist.check_collectives`) each call first agrees on (sequence number, operation, count, type, what), so
/// that a mismatch is an error naming both sides before data moves. Every wait has a deadline (`dist.timeout`): past it the
/// watchdog names the rank, host, step and collective that is late, and the job ends.
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

  /// In place: every rank ends with the same bits. Float sums are in an order that depends on the number of ranks.
  virtual void all_reduce(std::span<float> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<double> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, ReduceOp op, const char* what) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, ReduceOp op, const char* what) = 0;
  /// Starts a sum; the memory must not be touched until the request is done.
  virtual std::unique_ptr<Request> start_all_reduce(std::span<float> values, const char* what) = 0;
  virtual std::unique_ptr<Request> start_all_reduce(std::span<double> values, const char* what) = 0;

  virtual void broadcast(std::span<std::byte> bytes, int root, const char* what) = 0;
  /// Concatenation over ranks of pieces of any length (bytes).
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, const char* what) = 0;
  /// sizes: to[r] goes to rank r; returns what each rank sent to this one.
  virtual std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to, const char* what) = 0;
  virtual void barrier(const char* what) = 0;

  /// True when every rank says so; collective.
  bool agree(bool mine, const char* what);
  std::string broadcast_text(std::string text, int root, const char* what);
  std::vector<std::string> all_gather_text(const std::string& mine, const char* what);
};

/// One rank on its own: every collective is the identity.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep
