#pragma once
#include <array>
#include <memory>

#include "lockstep/models/bprmf.hpp"
#include "lockstep/models/kgat_batch.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Matrix factorisation: floor(interactions / batch) + 1 steps per epoch, each on a drawn batch. Every rank computes
/// all of a step: it is smaller than what the ranks would have to tell one another.
class BprmfProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage): as KgatProgram
  BprmfProgram(World& world, const RunConfig& config, BprmfModel& model);

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
  BprmfModel& model_;
  const std::int64_t batch_size_, steps_;
  KgatSampler sampler_;
  std::unique_ptr<LazyAdam> adam_;
  CfBatch batch_;
  std::vector<std::int32_t> users_;  ///< of the batch, ascending
  Stream stream_;
  std::array<Arena, 2> arenas_;  ///< of this step and the one before, whose update may still be under way
  int turn_ = 0;
};

}  // namespace lockstep
