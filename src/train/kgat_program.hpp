#pragma once
#include <array>
#include <future>

#include "lockstep/models/kgat_batch.hpp"
#include "lockstep/models/kgat_model.hpp"
#include "lockstep/train/training_program.hpp"
#include "train/kgat_steps.hpp"

namespace lockstep {

/// What trains by the lazy form of Adam takes nothing else. errors  Error (usage) naming the options
void require_plain_adam(const RunConfig& config, const char* kind);

/// An epoch of KGAT: steps that rank interactions, then steps that rank triples, then the attention is recomputed. Two
/// Adams with counters of their own share the embedding table.
///
/// Interactions: floor(interactions / batch) + 1 steps; triples: floor(triples / kg batch) + 1.
class KgatProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage): an optimizer other than Adam without weight decay, averaging or accumulation
  KgatProgram(World& world, const RunConfig& config, KgatModel& model);

  std::int64_t epoch_length() const override { return cf_steps_ + kg_steps_; }
  std::int64_t steps_per_epoch() const override { return epoch_length(); }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  void end_epoch(const TrainState& state, std::vector<std::pair<std::string, double>>& record) override;
  void settle() override { steps_.settle(); }
  std::vector<NamedOptimizer> optimizers() override {
    return {{"interactions", &steps_.items_optimizer()}, {"triples", &steps_.triples_optimizer()}};
  }
  std::vector<NamedTensor> vectors() override { return {{"triples_loss", loss_of_triples_}}; }
  void resumed() override { steps_.restored(); }
  std::string backend() const override { return steps_.exchange().backend(); }
  std::vector<std::pair<std::string, std::string>> facts() override;

 private:
  /// The batch of a step, of one kind or the other.
  struct Drawn {
    std::int64_t step = -1;
    bool items = false;
    CfBatch cf;
    KgBatch kg;
  };
  KgatMode choose_mode();
  void draw(std::int64_t step, std::int64_t position, Drawn& drawn) const;
  /// The batch of this step. While a GPU works on it, another thread draws the next one.
  const Drawn& batch_of(const TrainState& state);
  void require_finite(const TrainState& state, const char* phase, const KgatStepSums& sums) const;

  World& world_;
  const RunConfig& config_;
  KgatModel& model_;
  const std::int64_t cf_batch_, kg_batch_, cf_steps_, kg_steps_;
  KgatSampler sampler_;
  std::string why_;  ///< this mode
  KgatMode mode_;
  KgatSteps steps_;
  OwnedTensor loss_of_triples_;  ///< f64 (2): sum over the running epoch's steps of their mean loss, and the steps
  std::array<Drawn, 2> drawn_;   ///< of even and odd steps
  std::future<void> next_;       ///< the drawing of the next one
};

}  // namespace lockstep
