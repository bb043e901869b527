#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/shard.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/optim/dense_step.hpp"

namespace lockstep {

/// The loss of one shard: a sum over its samples, on the tape, and the weight of that sum in the global mean.
struct ShardLoss {
  Var sum;            ///< scalar; its gradient with seed 1 is the shard's contribution to the gradient of the sum
  double weight = 0;  ///< rows, valid targets, windows. Gradient of a step = (sum over shards) / (sum of weights)
};

/// The host's part of a shard's pass, in memory that kernels can read. Each model derives its samples from it.
struct DrawnShard {
  double weight = 0;                       ///< ShardLoss::weight
  std::array<std::int64_t, 4> shape = {};  ///< all that launches depend on besides the shard's count and capacity
  bool staged = false;                     ///< whether kernels read the samples from a copy in GPU memory (StagedCopy)
  const ops::RowDraw* rows = nullptr;      ///< the samples' rows of ShardModel::dense_network()'s table
};

/// A network with its training samples, as a step sees it: the loss of a shard. Different threads compute different
/// shards at the same time.
class ShardModel {
 public:
  virtual ~ShardModel() = default;
  virtual ParamStore& params() = 0;
  /// Forward pass of the training samples at the shard's positions of its epoch.
  ///
  /// On a GPU the pass is recorded before the previous step has finished. Only kernels may modify persistent state. A
  /// pass that waits for the GPU cannot be captured in a graph.
  virtual ShardLoss loss(Tape& tape, const Shard& shard) const = 0;
  /// The host's part of loss(), in memory of `host`. A graph of loss() is repeated for other shards of the same count
  /// and shape: draw() then writes the same arrays to the same addresses, and kernels read them there. Everything else
  /// that changes from step to step must be in GPU memory, such as Shard::step_on_gpu. Call it only if draws().
  virtual const DrawnShard& draw(Arena& /*host*/, const Shard& /*shard*/) const {
    static const DrawnShard nothing;
    return nothing;
  }
  /// Whether there is a draw(). Otherwise steps are launched call by call.
  virtual bool draws() const { return false; }
  /// Limit of samples that a CPU thread takes through forward and backward at a time, so that their activations stay in
  /// cache; a larger shard is computed in chunks of at most this size. 0: a shard is one chunk.
  virtual std::int64_t samples_in_cache() const { return 0; }
  /// The smallest useful shard, in samples: a smaller one would not fill the vector units.
  virtual std::int64_t least_shard() const { return 1; }
  /// With run.reproducible, the smallest shard whose gradient costs little to keep apart, in samples; 0: more shards
  /// than in the default mode cost more in any case.
  virtual std::int64_t least_tree_shard() const { return least_shard(); }
  /// loss() as a network that one kernel can train, if it is such a network; draw() must then set DrawnShard::rows.
  virtual std::optional<DenseNetwork> dense_network() const { return {}; }
  /// Counts the rows of the shard's samples, such as tokens, if shards of the same count differ in them; else all
  /// counts are 0. `each` receives the rows of every sample, unless it is empty or the counts are 0.
  ///
  /// Ranks and threads of CPUs share the rows of a batch. Steps on a GPU round the number up, so that few different
  /// numbers occur, and set Shard::token_capacity on all ranks to the largest: a graph is repeated for all steps with
  /// the same capacity. The additional rows must not change any result.
  virtual RowCounts count_rows(const Shard&, std::span<std::int64_t> /*each*/) const { return {}; }
  /// Appends the rows of Task::row_source() that loss() and draw() of this shard read.
  virtual void reads(const Shard&, std::vector<std::int64_t>& /*rows*/) const {}

 protected:
  /// The samples of a pass: those that the step has drawn, or, if it draws none, those of draw().
  template <class Samples>
  const Samples& samples_of(Arena& host, const Shard& shard) const {
    return static_cast<const Samples&>(shard.drawn != nullptr ? *shard.drawn : draw(host, shard));
  }
};

}  // namespace lockstep
