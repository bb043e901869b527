#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/train/sharded_step.hpp"

namespace lockstep {

/// A way to carry out steps: sharded_step.cpp has that of the processor, which also serves GPUs whose gradients go through
/// the host, gpu_step.cpp that of GPUs whose gradients never leave them.
struct ShardedStep::Impl {
  virtual ~Impl() = default;
  virtual void start(const GlobalBatch& batch, unsigned flags) = 0;
  virtual void prepare(const GlobalBatch&) {}
  virtual StepSums finish() = 0;
  virtual Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const = 0;
  virtual std::size_t arena_bytes() const = 0;
  virtual std::string row_choice() const { return ""; }
  virtual const char* backend() const = 0;
  Tensor gradient;
  StepSeconds seconds;
  std::int64_t buckets = 1;
  std::size_t gradient_bytes = 0;
};

/// Part i of n contiguous, equal parts of [first, first + count).
inline Shard part_of(const GlobalBatch& batch, std::int64_t first, std::int64_t count, std::int64_t i, std::int64_t n) {
  const std::int64_t begin = count * i / n, end = count * (i + 1) / n;
  return {.seed = batch.seed, .epoch = batch.epoch, .step = batch.step, .first = first + begin, .count = end - begin};
}

inline std::int64_t micro_batches(const GlobalBatch& batch) {
  return batch.micro > 0 ? std::max<std::int64_t>(1, (batch.count + batch.micro - 1) / batch.micro) : 1;
}

/// Samples [first, first + count) of micro-batch m.
inline void micro_range(const GlobalBatch& batch, std::int64_t m, std::int64_t& first, std::int64_t& count) {
  first = batch.first + m * batch.micro;
  count = batch.micro > 0 ? std::min(batch.micro, batch.first + batch.count - first) : batch.count;
}

/// Steps of a GPU, alone (reduce is null) or with others.
std::unique_ptr<ShardedStep::Impl> make_gpu_step(Communicator& comm, Model& model, const StepOptions& options,
                                                 std::unique_ptr<GpuReduce> reduce);

}  // namespace lockstep
