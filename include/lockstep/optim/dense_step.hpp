#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "lockstep/ops/sample_table.hpp"
#include "lockstep/optim/gpu_update.hpp"

namespace lockstep {

/// A network of linear layers with its loss and its training data:
///
///   h_0 = x,   h_k = phi(W_k h_k-1 + b_k),   y = W_L h_L-1 + b_L,   loss = loss_scale sum over rows and outputs
struct DenseNetwork {
  std::vector<const Param*> weights, biases;  ///< (out, in) and (out) of each layer
  ops::Activation activation = ops::Activation::none;
  ops::Regression loss = ops::Regression::mse;
  double loss_scale = 1;
  ops::SampleTable table;
};

/// The training step of a DenseNetwork as one kernel: it takes the samples from the table, runs forward and backward,
/// adds the gradients of all blocks, computes the norm, clips, and updates the weights and their average. With several
/// ranks two kernels, between which the ranks add sums().
///
/// Samples are cut into parts, whose number depends on the count alone. A block keeps all weights and the values of a few
/// rows in shared memory, and leaves the gradient of each of its parts in memory. After a barrier of the grid, all
/// blocks add the parts of their elements and the squares of these sums in a fixed order; after a second one, each block
/// updates its elements. So a step repeats bit by bit. Rows of a product are added in another order than by the library
/// that multiplies otherwise, and with one rank squares in another order than by GpuUpdate: results agree with the step
/// of separate kernels to rounding. Given the norm, clipping, update and average have the bits of GpuUpdate.
class DenseStep {
 public:
  /// The most parts of the samples, and gradients in memory: as many as a large GPU has multiprocessors.
  static constexpr std::int64_t kMostParts = 128;
  /// Null, with the reason in `why`, where one kernel cannot take this step: the weights and 8 rows do not fit in the
  /// shared memory of a block of this GPU, the GPU cannot run blocks that wait for one another, more than 9 layers,
  /// products in TF32, values in halves, an optimizer other than Adam or AdamW, penalties.
  /// `update` and the network's parameters must stay valid.
  static std::unique_ptr<DenseStep> make(DenseNetwork network, ParamStore& params, const GpuUpdate& update, int rank,
                                         int ranks, std::string& why);
  virtual ~DenseStep() = default;

  /// What one step reads and writes.
  struct Step {
    const ops::RowDraw* draw = nullptr;   ///< this rank's samples, in pinned memory; unused if count is 0
    std::int64_t count = 0;               ///< of samples
    const std::byte* h_record = nullptr;  ///< pinned: GpuStepRecord and RankReport
    std::byte* record = nullptr;          ///< the same in GPU memory
    GpuOutcome* outcome = nullptr;        ///< pinned
    Ema* average = nullptr;
  };
  /// Enqueues the step; with several ranks, up to this rank's part of sums().
  virtual void compute(const Stream& stream, const Step& step) = 0;
  /// With several ranks, enqueues what follows the sum over ranks of sums().
  virtual void update(const Stream& stream, const Step& step) = 0;
  /// The gradient of the summed loss in the layout of ParamStore::values(), then weight, flags and loss of each rank.
  virtual const Tensor& sums() const = 0;
};

}  // namespace lockstep
