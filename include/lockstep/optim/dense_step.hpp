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

/// The training step of a DenseNetwork as one kernel: it reads the samples from the table, runs forward and backward,
/// adds the gradients of all blocks, computes the norm, clips, and updates the weights and their average. With several
/// ranks it is two kernels, and the ranks add sums() in between.
///
/// The samples are divided into parts, whose number depends on the number of samples alone. A block holds all weights
/// and the values of a few rows in shared memory, and writes the gradient of each of its parts to GPU memory. After a
/// grid barrier, each block adds the parts of its elements of the gradient, and the squares of these sums, in a fixed
/// order. After a second barrier it updates its elements. So a step repeats bit by bit. The order of additions differs
/// from cuBLASLt's and, with one rank, from GpuUpdate's for squares: results agree with a step of separate kernels to
/// rounding. For the same norm, clipping, update and average have the bits of GpuUpdate.
class DenseStep {
 public:
  /// Upper limit on the parts, and on the gradients in memory: about the number of multiprocessors of a large GPU.
  static constexpr std::int64_t kMostParts = 128;
  /// Returns null, with the reason in `why`, if one kernel cannot do this step: the weights and 8 rows do not fit in
  /// the shared memory of a block, the GPU cannot run blocks that wait for one another, more than 9 layers, products in
  /// TF32, values in half precision, an optimizer other than Adam or AdamW, frozen or penalised parameters.
  /// `update` and the network's parameters must stay valid.
  static std::unique_ptr<DenseStep> make(DenseNetwork network, ParamStore& params, const GpuUpdate& update, int rank,
                                         int ranks, std::string& why);
  virtual ~DenseStep() = default;

  /// The operands of one step.
  struct Step {
    const ops::RowDraw* draw = nullptr;   ///< this rank's samples, in pinned memory; unused if count is 0
    std::int64_t count = 0;               ///< of samples
    const std::byte* h_record = nullptr;  ///< pinned: GpuStepRecord and RankReport
    std::byte* record = nullptr;          ///< GPU memory for a copy of h_record
    GpuOutcome* outcome = nullptr;        ///< pinned
    Ema* average = nullptr;
  };
  /// Enqueues the step; with several ranks, up to this rank's share of sums().
  virtual void compute(const Stream& stream, const Step& step) = 0;
  /// With several ranks, enqueues the rest of the step, after the ranks have summed sums().
  virtual void update(const Stream& stream, const Step& step) = 0;
  /// The gradient of the summed loss in the layout of ParamStore::values(), then weight, flags and loss of each rank.
  virtual const Tensor& sums() const = 0;
};

}  // namespace lockstep
