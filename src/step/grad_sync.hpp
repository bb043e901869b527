#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/step/step_extras.hpp"
#include "step/cpu_row_exchange.hpp"
#include "step/part_sum.hpp"

namespace lockstep {

/// Cuts the flat gradient, between parameters, into buckets of at least `bucket_bytes` (the last may be smaller). They
/// are in the order in which a backward pass completes them: from the last parameter to the first. Embeddings are the
/// first bucket if they are at least half of the gradient and at least min(256 KiB, bucket_bytes); the backward pass
/// then leaves other parameters for last.
std::vector<FlatRange> plan_buckets(const ParamStore& params, std::int64_t bucket_bytes);
/// Whether these buckets require Tape::parameters_last().
inline bool embeddings_first(const std::vector<FlatRange>& buckets) {
  return buckets.size() > 1 && buckets.front().begin == 0;
}

/// Sums gradients over the threads of a rank and then over all ranks, bucket by bucket, while threads compute later
/// buckets.
///
/// A thread reports each parameter that it has completed. The last thread to complete a bucket sums the threads'
/// gradients. Only thread 0 communicates; it starts the buckets in the same order on every rank.
///
/// T   type of the gradient
template <class T>
class GradSync {
 public:
  /// Keeps references to `sum` over the threads and to `extras`, the scalars of each thread.
  ///
  /// errors  Error (usage): bf16 for gradients that are not f32
  GradSync(Communicator& comm, const ParamStore& params, std::int64_t bucket_bytes, Compression compression,
           PartSum<T>& sum, const std::vector<StepExtras>& extras);

  std::int64_t buckets() const { return static_cast<std::int64_t>(buckets_.size()); }
  /// Whether a step must use begin() .. finish(): there are several buckets, compression or a row exchange.
  bool in_buckets() const;
  /// Whether the backward pass must leave parameters other than embeddings for last.
  bool embeddings_first() const { return lockstep::embeddings_first(buckets_); }
  /// The decisions of all buckets. The pointers stay valid.
  std::vector<RowExchange*> row_exchanges() {
    std::vector<RowExchange*> all;
    for (CpuRowExchange<T>& bucket : rows_) all.push_back(&bucket.decisions());
    return all;
  }

  /// Call it before the threads start. A thread's scalars must be final when its first parameter is ready.
  void begin();
  /// Thread `thread` will not add to this parameter again. Any thread.
  void ready(int thread, const Param& param);
  /// Thread `thread` will not add to any parameter again. Any thread.
  void ready_all(int thread);
  /// Starts the buckets that other threads complete, until all are started or `failed`. Thread 0, after ready_all().
  void drive(const std::atomic<bool>& failed);
  /// Waits until all buckets hold the sum over all ranks. Call after the threads have joined.
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
  std::vector<std::vector<std::int64_t>> missing_;  ///< per thread and bucket: parameters that are not ready
  std::vector<std::atomic<int>> threads_missing_;   ///< per bucket
  std::vector<std::atomic<bool>> summed_;           ///< per bucket
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<CpuRowExchange<T>> rows_;      ///< per bucket
  std::unique_ptr<Request> extras_request_;  ///< with compression, the scalars are sent separately
  std::vector<std::string> names_;
  std::size_t started_ = 0;
  PartSum<T>& sum_;
  const std::vector<StepExtras>& extras_;
};

}  // namespace lockstep
