#include <omp.h>

#include <array>
#include <future>
#include <utility>

#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "lockstep/train/sharded_program.hpp"
#include "tasks/kgat/interaction_batch.hpp"
#include "tasks/kgat/kgat_step.hpp"

namespace lockstep {

namespace {

KgatStepOptions step_options(World& world, const RunConfig& config, const KgatTask::Options& o, Device device) {
  return {.mode = o.mode.value_or(device.is_cuda() ? KgatMode::replicate : KgatMode::nested_rows),
          .row_threshold = o.row_threshold,
          .segments = config.shards(),
          .cf_l2 = o.cf_l2,
          .kg_l2 = o.kg_l2,
          .message_dropout = o.message_dropout,
          .node_dropout = o.node_dropout,
          .seed = config.run.seed,
          .reproducible = config.run.reproducible,
          .parallel_edges = o.parallel_edges,
          .clip_norm = config.optim.clip_norm,
          .backend = config.step_options(1, 1).backend,
          .graphs = config.step_options(1, 1).graphs,
          .timeout_s = config.dist.timeout,
          .world = &world,
          .optimizer = config.optim};
}

std::int64_t triples_per_step(const RunConfig& config, const KgatTask& model, int ranks) {
  const std::int64_t asked = model.options().kg_batch;
  return asked == 0 ? 2 * interactions_per_step(config, ranks)
                    : config.batch.accumulate * config.over_devices(asked, ranks);
}

/// The training of KGAT. An epoch has floor(interactions / batch) + 1 steps on interactions, then floor(triples / kg
/// batch) + 1 steps on triples, then recomputes the attention. A step works on the whole graph (KgatStep) instead of
/// shards.
class KgatProgram final : public TrainingProgram {
 public:
  KgatProgram(World& world, const RunConfig& config, KgatTask& model)
      : TrainingProgram({}),
        world_(world),
        config_(config),
        model_(model),
        cf_batch_(interactions_per_step(config, world.size())),
        kg_batch_(triples_per_step(config, model, world.size())),
        cf_steps_(model.size(Split::train) / cf_batch_ + 1),
        kg_steps_(model.options().triples ? model.data().graph.triples() / kg_batch_ + 1 : 0),
        sampler_(model.data(), config.run.seed),
        step_options_(step_options(world, config, model.options(), model.params().device())),
        step_(world.communicator(), model.net(), model.propagation(), step_options_),
        kg_loss_(DType::f64, {2}) {
    epoch_.positions = epoch_.steps = cf_steps_ + kg_steps_;
    require_usage(!config.run.tune_products || world.size() == 1 || !step_.runs_on_gpu(),
                  "option run.tune_products = true: each of the ", world.size(),
                  " GPUs would choose its algorithms by its own timings, and as each computes the whole step, their "
                  "weights would differ; use false, or one GPU");
    if (world.size() > 1 && world.rank() == 0 && model.params().device().is_cuda() &&
        step_options_.mode == KgatMode::replicate)
      log::warning("each of the ", world.size(),
                   " GPUs computes the same step, so more GPUs make it no faster; one GPU, "
                   "or dist.mode = nested-rows, which divides the rows");
    if (step_.runs_on_gpu()) tables_ = sampler_.tables(model.params().device(), model.options().triples);
  }

  StepResult step(const TrainState& state, double lr, Ema*, unsigned flags) override {
    const bool is_cf = state.position < cf_steps_;
    StepResult result = {.advance = 1, .samples = is_cf ? cf_batch_ : kg_batch_};
    const Stopwatch watch;
    // The updates of one kind of steps do not use the outcomes of the other kind.
    if (std::exchange(cf_, is_cf) != is_cf) result.outcome = settle(UpTo::outcomes);
    if (state.position == 0) kg_loss_->data<double>()[0] = kg_loss_->data<double>()[1] = 0;
    last_epoch_ = state.epoch;
    if (step_.runs_on_gpu()) {
      const profile::Span span("step on the GPU", profile::Kind::phase);
      start(state, lr, flags);
      if (!result.outcome) result.outcome = outcome(step_.take(false));
      result.compute = watch.seconds();
      return result;
    }
    const Drawn& batch = batch_of(state);
    result.compute = watch.seconds();
    KgatStepResult done =
        batch.is_cf ? step_.step_cf(batch.cf, state.step, lr, flags) : step_.step_kg(batch.kg, lr, flags);
    done.step = state.step;
    done.is_cf = batch.is_cf;
    result.outcome = outcome(done);
    result.compute += done.compute;
    result.reduce = done.exchange;
    result.update = done.update;
    return result;
  }

  void end_epoch(const TrainState&, std::vector<std::pair<std::string, double>>& record) override {
    const double* loss = kg_loss_->data<double>();
    if (loss[1] > 0) record.emplace_back("loss_triples", loss[0] / loss[1]);
    if (model_.options().attention) step_.refresh_adjacency();
  }

  std::optional<StepOutcome> settle(UpTo what) override {
    std::optional<StepOutcome> last;
    if (step_.runs_on_gpu()) last = outcome(step_.take(true));
    if (what != UpTo::outcomes) step_.settle();
    return last;
  }
  ProgramState state() override {
    return {{{"interactions", &step_.cf_optimizer()}, {"triples", &step_.kg_optimizer()}},
            {{"triples_loss", kg_loss_}}};
  }
  void resumed() override { step_.restored(); }
  std::vector<Metric> interval_metrics() override {
    const double sum = std::exchange(interval_triples_, 0);
    const std::int64_t steps = std::exchange(interval_steps_, 0);
    if (steps == 0) return {};
    return {{"triples_loss", sum / static_cast<double>(steps)}};
  }
  ProgramFacts facts() override {
    const KgData& data = model_.data();
    return {.backend = step_.exchange().backend(),
            .lines = {{"batch", join(interactions_text(config_, world_.size()), "; ", kg_batch_, " of triples")},
                      {"graph", join(data.nodes(), " nodes, ", data.graph.nnz(), " edges of ", data.graph.triples(),
                                     " triples, ", data.graph.relations, " relations, ", name(model_.options().graph))},
                      {"propagation", step_options_.mode == KgatMode::replicate
                                          ? std::string("replicate")
                                          : join("nested-rows, all rows of a layer above ", step_options_.row_threshold,
                                                 " of the nodes")},
                      {"epoch",
                       join(cf_steps_, " steps of interactions, ", kg_steps_, " of triples, ",
                            model_.options().attention ? "attention recomputed after them" : "the adjacency stays")}}};
  }

 private:
  /// The batch of a step: cf or kg.
  struct Drawn {
    std::int64_t step = -1;
    bool is_cf = false;
    CfBatch cf;
    KgBatch kg;
  };

  void draw(std::int64_t step, std::int64_t position, Drawn& drawn) const {
    const profile::Span span("batch", profile::Kind::phase);
    drawn.step = step;
    drawn.is_cf = position < cf_steps_;
    if (drawn.is_cf) {
      sampler_.interactions(step, cf_batch_, drawn.cf, model_.data().entities);
    } else {
      sampler_.triples(step, kg_batch_, drawn.kg);
    }
  }

  /// The batch of this step. With a GPU, another thread prefetches the next one meanwhile.
  const Drawn& batch_of(const TrainState& state) {
    if (prefetch_.valid()) prefetch_.get();
    Drawn& now = drawn_[state.step % 2];
    if (now.step != state.step || now.is_cf != (state.position < cf_steps_)) draw(state.step, state.position, now);
    if (model_.params().device().is_cuda()) {
      const std::int64_t step = state.step + 1, position = (state.position + 1) % epoch_.positions;
      prefetch_ = std::async(std::launch::async, [this, step, position, rank = world_.rank()] {
        profile::name_helper(rank, "next batch");
        omp_set_num_threads(1);  // in this thread: starting more threads would cost more than the draw
        draw(step, position, drawn_[step % 2]);
      });
    }
    return now;
  }

  /// Enqueues a step that runs on the GPU alone.
  void start(const TrainState& state, double lr, unsigned flags) {
    using Batch = KgatSampler::Batch;
    const KgData& data = model_.data();
    if (!tables_) {
      const Drawn& batch = batch_of(state);
      batch.is_cf ? step_.start_cf(batch.cf, state.step, lr, flags) : step_.start_kg(batch.kg, state.step, lr, flags);
    } else if (state.position < cf_steps_) {
      step_.start_cf({.count = cf_batch_, .table = tables_->interactions(data.items, data.entities)},
                     sampler_.draw_of(Batch::interactions, state.step, cf_batch_), state.step, lr, flags);
    } else {
      step_.start_kg({.count = kg_batch_, .table = tables_->triples()},
                     sampler_.draw_of(Batch::triples, state.step, kg_batch_), state.step, lr, flags);
    }
  }

  /// The outcome of a step, after its check.
  std::optional<StepOutcome> outcome(const std::optional<KgatStepResult>& done) {
    if (!done) return {};
    require_finite(world_, config_, done->step, last_epoch_, done->is_cf ? ", phase interactions" : ", phase triples",
                   done->loss, done->norm);
    StepOutcome outcome = {.step = done->step, .flags = done->flags};
    if (done->is_cf) {
      outcome.weight = static_cast<double>(cf_batch_);
      outcome.loss = done->loss * outcome.weight;
      outcome.norm = done->norm;
    } else {
      double* loss = kg_loss_->data<double>();
      loss[0] += done->loss;
      loss[1] += 1;
      interval_triples_ += done->loss;
      ++interval_steps_;
    }
    return outcome;
  }

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
  std::int64_t last_epoch_ = 0;  ///< of the last step
  double interval_triples_ = 0;  ///< sum of the mean losses of the steps on triples since the last record of the log
  std::int64_t interval_steps_ = 0;
  std::array<Drawn, 2> drawn_;  ///< of even and odd steps
  std::future<void> prefetch_;
};

}  // namespace

std::unique_ptr<TrainingProgram> KgatTask::make_program(World& world, const RunConfig& config, int) {
  config.task->require_supported(config, world.size());
  return std::make_unique<KgatProgram>(world, config, *this);
}

}  // namespace lockstep
