#pragma once
#include <array>
#include <future>

#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "lockstep/train/training_program.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace lockstep {

/// The training of KGAT. An epoch has floor(interactions / batch) + 1 steps on interactions, then floor(triples / kg
/// batch) + 1 steps on triples, then recomputes the attention. A step works on the whole graph (KgatStep) instead of
/// shards.
class KgatProgram final : public TrainingProgram {
 public:
  /// errors  Error (usage) as require_supported()
  KgatProgram(World& world, const RunConfig& config, KgatTask& model);

  std::int64_t epoch_length() const override { return cf_steps_ + kg_steps_; }
  std::int64_t steps_per_epoch() const override { return epoch_length(); }
  StepResult step(const TrainState& state, double lr, Ema* average, unsigned flags) override;
  std::optional<StepOutcome> take_last() override;
  void end_epoch(const TrainState& state, std::vector<std::pair<std::string, double>>& record) override;
  void settle() override { step_.settle(); }
  std::vector<NamedOptimizer> optimizers() override {
    return {{"interactions", &step_.cf_optimizer()}, {"triples", &step_.kg_optimizer()}};
  }
  std::vector<NamedTensor> vectors() override { return {{"triples_loss", kg_loss_}}; }
  void resumed() override { step_.restored(); }
  std::vector<Metric> interval_metrics() override;
  std::string backend() const override { return step_.exchange().backend(); }
  std::vector<std::pair<std::string, std::string>> facts() override;

 private:
  /// The batch of a step: cf or kg.
  struct Drawn {
    std::int64_t step = -1;
    bool is_cf = false;
    CfBatch cf;
    KgBatch kg;
  };
  void draw(std::int64_t step, std::int64_t position, Drawn& drawn) const;
  /// Enqueues a step that runs on the GPU alone.
  void start(const TrainState& state, double lr, unsigned flags);
  /// The outcome of a step, after its check.
  std::optional<StepOutcome> outcome(const std::optional<KgatStepResult>& done);
  /// The batch of this step. With a GPU, another thread prefetches the next one meanwhile.
  const Drawn& batch_of(const TrainState& state);

  World& world_;
  const RunConfig& config_;
  KgatTask& model_;
  const std::int64_t cf_batch_, kg_batch_, cf_steps_, kg_steps_;
  KgatSampler sampler_;
  std::optional<KgatTables> tables_;  ///< if the GPU draws the batches
  const KgatStepOptions step_options_;
  KgatStep step_;
  OwnedTensor kg_loss_;          ///< f64 (2): sum of the mean losses of this epoch's steps on triples, and their number
  bool cf_ = true;               ///< kind of the last step
  std::int64_t epoch_ = 0;       ///< of the last step
  double interval_triples_ = 0;  ///< sum of the mean losses of the steps on triples since the last record of the log
  std::int64_t interval_steps_ = 0;
  std::array<Drawn, 2> drawn_;  ///< of even and odd steps
  std::future<void> prefetch_;
};

}  // namespace lockstep
