#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "train/row_exchange.hpp"

namespace lockstep {

/// Numbers that travel in front of a gradient, so that a step needs one reduction; 64 bytes of f32.
inline constexpr std::int64_t kExtras = 16;

/// What a rank (or shard) adds to the step beside its gradient. Loss and weight go as two numbers each, a coarse and a
/// fine one, so that integral weights below 2^36 and the loss to 2^-40 survive a sum in f32.
struct alignas(64) StepExtras {
  double loss = 0, weight = 0;
  unsigned flags = 0;
};
template <class T>
void encode(const StepExtras& extras, T* out);
template <class T>
StepExtras decode(const T* in);

/// Contiguous ranges of the flat vector of at least `bucket_bytes` each (the last one may be smaller), cut between
/// parameters, in the order in which a backward pass finishes them: from the last parameter to the first. Embeddings that
/// are half of the gradient or more, and 256 KiB or a bucket, go first, by themselves: the backward pass leaves other
/// parameters for later then.
std::vector<FlatRange> plan_buckets(const ParamStore& params, std::int64_t bucket_bytes);
/// Whether these buckets ask for Tape::parameters_last().
inline bool embeddings_first(const std::vector<FlatRange>& buckets) {
  return buckets.size() > 1 && buckets.front().begin == 0;
}

/// Sums the gradients of a rank's threads, and then of all ranks, bucket by bucket, while threads still work on later
/// buckets.
///
/// Each thread says which parameters it is done with. The last thread to finish a bucket adds up the threads' parts of
/// it in thread order; the first thread alone talks to the other ranks and starts the buckets in one fixed order, the
/// same on every rank.
template <class T>
class GradSync {
 public:
  /// parts[t] is the flat gradient of thread t, gradients[t] the object it belongs to, extras[t] what it adds to the
  /// step; all are the caller's.
  /// errors  Error (usage): bf16 for gradients that are not f32
  GradSync(Communicator& comm, const ParamStore& params, std::int64_t bucket_bytes, Compression compression,
           const std::vector<const T*>& parts, const std::vector<Gradients*>& gradients,
           const std::vector<StepExtras>& extras);

  std::int64_t buckets() const { return static_cast<std::int64_t>(buckets_.size()); }
  /// kExtras numbers, then the gradient.
  std::span<T> message() { return {message_.view().template data<T>(), static_cast<std::size_t>(message_->size())}; }
  Tensor gradient() const { return gradient_; }
  /// Whether a step has to go through begin() .. finish(): several buckets, or something between gradient and message.
  bool in_pieces() const;
  /// Whether the backward pass shall leave parameters for last that are not embeddings.
  bool embeddings_first() const { return lockstep::embeddings_first(buckets_); }
  /// How the gradients of row-sparse parameters travel, in words; empty before the first step and without such.
  std::string row_choice() const;

  /// Before the threads start. A thread's extras must be complete when its first parameter is ready.
  void begin();
  /// Any thread: nothing more is coming from it for this parameter.
  void ready(int thread, const Param& param);
  /// Any thread: nothing more is coming from it at all.
  void ready_all(int thread);
  /// The first thread, after its ready_all(): starts what the other threads finish, until they are done or `failed`.
  void drive(const std::atomic<bool>& failed);
  /// After the threads have joined: returns when all buckets hold the sum over all ranks.
  void finish();

 private:
  void complete(int thread, std::size_t bucket);
  void sum_over_threads(std::size_t bucket);
  void start_ready();
  void start(std::size_t bucket);

  Communicator& comm_;
  Compression compression_;
  std::vector<FlatRange> buckets_;
  std::vector<std::size_t> bucket_of_;              ///< by Param::index
  std::vector<std::int64_t> params_in_;             ///< per bucket
  std::vector<std::vector<std::int64_t>> missing_;  ///< per thread and bucket: parameters not ready yet
  std::vector<std::atomic<int>> threads_missing_;   ///< per bucket
  std::vector<std::atomic<bool>> summed_;           ///< per bucket
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<RowExchange<T>> rows_;         ///< per bucket
  std::unique_ptr<Request> extras_request_;  ///< when compressed gradients leave the extras behind
  std::vector<std::string> names_;
  std::size_t started_ = 0;
  const std::vector<const T*>& parts_;
  const std::vector<StepExtras>& extras_;
  OwnedTensor message_;
  Tensor gradient_;
};

/// out[i] = parts[0][i] + parts[1][i] + ..., in this order, for i in [first, last).
template <class T>
void sum_parts(std::span<const T* const> parts, std::int64_t first, std::int64_t last, T* out);

}  // namespace lockstep
