#pragma once
#include <array>
#include <memory>

#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/tasks/kgat/bprmf_task.hpp"
#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Matrix factorisation: floor(interactions / batch) + 1 steps per epoch, each on a drawn batch. Every rank computes
/// the whole step, which costs less than exchanging gradients.
class BprmfProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage): half precision, or as require_supported()
  BprmfProgram(World& world, const RunConfig& config, BprmfTask& model);

  std::int64_t epoch_length() const override { return steps_; }
  std::int64_t steps_per_epoch() const override { return steps_; }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  void settle() override { adam_->flush(); }
  std::vector<NamedOptimizer> optimizers() override { return {{"", adam_.get()}}; }
  std::string backend() const override { return world_.communicator().backend(); }
  std::vector<std::pair<std::string, std::string>> facts() override;

 private:
  World& world_;
  const RunConfig& config_;
  BprmfTask& model_;
  const std::int64_t batch_size_, steps_;
  KgatSampler sampler_;
  std::unique_ptr<LazyAdam> adam_;
  CfBatch batch_;
  std::vector<std::int32_t> users_;  ///< of the batch, ascending
  Stream stream_;
  std::array<Arena, 2> arenas_;  ///< of this step and the previous one, whose update may still be running
  int arena_ = 0;                ///< index of this step's
};

}  // namespace lockstep
