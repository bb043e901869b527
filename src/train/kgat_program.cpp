#include "train/kgat_program.hpp"

#include <omp.h>

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "train/kgat_cost.hpp"

namespace lockstep {

void require_plain_adam(const RunConfig& config, const char* kind) {
  const auto& o = config.optim;
  require_usage(o.name == "adam" && o.weight_decay == 0, "option optim.name = ", o.name,
                ", optim.weight_decay = ", o.weight_decay, ": a model of kind ", kind,
                " is trained by adam without weight decay");
  require_usage(o.ema == 0 && config.batch.accumulate == 1, "options optim.ema and batch.accumulate: a model of kind ",
                kind, " is trained without them");
}

namespace {

KgatStepOptions step_options(const RunConfig& config, const KgatModel::Options& o, KgatMode mode) {
  require_plain_adam(config, "kgat");
  return {.mode = mode,
          .segments = config.dist.shards,
          .cf_l2 = o.cf_l2,
          .kg_l2 = o.kg_l2,
          .message_dropout = o.message_dropout,
          .node_dropout = o.node_dropout,
          .seed = config.run.seed,
          .reproducible = config.run.reproducible,
          .parallel_edges = o.parallel_edges,
          .clip_norm = config.optim.clip_norm,
          .backend = config.step_options(1).backend,
          .timeout_s = config.dist.timeout,
          .optimizer = config.optim};
}

std::int64_t triples_per_step(const RunConfig& config, const KgatModel& model, int ranks) {
  const std::int64_t asked = model.options().kg_batch;
  return asked == 0 ? 2 * config.global_batch(ranks) : asked * (config.batch.scope == "rank" ? ranks : 1);
}

}  // namespace

KgatProgram::KgatProgram(World& world, const RunConfig& config, KgatModel& model)
    : world_(world),
      config_(config),
      model_(model),
      cf_batch_(config.global_batch(world.size())),
      kg_batch_(triples_per_step(config, model, world.size())),
      cf_steps_(model.size(Split::train) / cf_batch_ + 1),
      kg_steps_(model.options().triples ? model.data().graph.triples() / kg_batch_ + 1 : 0),
      sampler_(model.data(), config.run.seed),
      mode_(choose_mode()),
      steps_(world.communicator(), model.net(), model.propagation(), step_options(config, model.options(), mode_)),
      loss_of_triples_(DType::f64, {2}) {}

KgatMode KgatProgram::choose_mode() {
  if (model_.params().device().is_cuda()) {
    why_ = model_.options().mode ? "as dist.mode says" : "every rank does all of a step on its GPU";
    return model_.options().mode.value_or(KgatMode::replicate);
  }
  CfBatch batch;
  sampler_.interactions(0, cf_batch_, batch, model_.data().entities);
  const auto threads = static_cast<std::uint64_t>(omp_get_max_threads());
  const KgatCosts costs =
      kgat_costs(model_.net().arch(), model_.data().graph, batch.rows(),
                 {.ranks = world_.size(),
                  .threads = static_cast<int>(world_.communicator().all_reduced(threads, ReduceOp::min, "threads")),
                  .segments = config_.dist.shards,
                  .one_host = world_.nodes() == 1});
  why_ = join(model_.options().mode ? "as dist.mode says" : "expected to be fastest", "; a step: ", costs.text());
  return model_.options().mode.value_or(costs.cheapest());
}

void KgatProgram::draw(std::int64_t step, std::int64_t position, Drawn& drawn) const {
  drawn.step = step, drawn.items = position < cf_steps_;
  if (drawn.items) {
    sampler_.interactions(step, cf_batch_, drawn.cf, model_.data().entities);
  } else {
    sampler_.triples(step, kg_batch_, drawn.kg);
  }
}

const KgatProgram::Drawn& KgatProgram::batch_of(const TrainState& state) {
  if (next_.valid()) next_.get();
  Drawn& now = drawn_[static_cast<std::size_t>(state.step % 2)];
  if (now.step != state.step || now.items != (state.position < cf_steps_)) draw(state.step, state.position, now);
  if (model_.params().device().is_cuda()) {
    const std::int64_t step = state.step + 1, position = (state.position + 1) % epoch_length();
    next_ = std::async(std::launch::async, [this, step, position] {
      omp_set_num_threads(1);  // of this thread: a team of its own would cost more than the drawing
      draw(step, position, drawn_[static_cast<std::size_t>(step % 2)]);
    });
  }
  return now;
}

StepResult KgatProgram::step(const TrainState& state, double lr, Ema*, unsigned flags) {
  StepResult result = {.advance = 1};
  KgatStepSums done;
  const Drawn& batch = batch_of(state);
  if (batch.items) {
    done = steps_.rank_items(batch.cf, state.step, lr, flags);
    require_finite(state, "interactions", done);
    result.samples = cf_batch_;
    result.weight = static_cast<double>(cf_batch_);
    result.loss = done.loss * result.weight;
    result.norm = done.norm;
  } else {
    done = steps_.rank_triples(batch.kg, lr, flags);
    require_finite(state, "triples", done);
    loss_of_triples_->data<double>()[0] += done.loss, loss_of_triples_->data<double>()[1] += 1;
    result.samples = kg_batch_;
  }
  result.flags = done.flags;
  result.compute = done.compute, result.reduce = done.exchange, result.update = done.update;
  return result;
}

void KgatProgram::end_epoch(const TrainState&, std::vector<std::pair<std::string, double>>& record) {
  double* loss = loss_of_triples_->data<double>();
  if (loss[1] > 0) record.emplace_back("loss_triples", loss[0] / loss[1]);
  loss[0] = loss[1] = 0;
  if (model_.options().attention) steps_.refresh();
}

std::vector<std::pair<std::string, std::string>> KgatProgram::facts() {
  const KgData& data = model_.data();
  return {{"batch", join(cf_batch_, " interactions, ", kg_batch_, " triples per step over all ranks")},
          {"graph", join(data.nodes(), " nodes, ", data.graph.nnz(), " edges of ", data.graph.triples(), " triples, ",
                         data.graph.relations, " relations")},
          {"propagation", join(name(mode_), ", ", why_)},
          {"epoch", join(cf_steps_, " steps of interactions, ", kg_steps_, " of triples, ",
                         model_.options().attention ? "attention recomputed after them" : "the adjacency stays")}};
}

void KgatProgram::require_finite(const TrainState& state, const char* phase, const KgatStepSums& done) const {
  if (done.finite()) return;
  world_.together("checking the step", [&] {
    throw Error(Fault::usage, join("step ", state.step, " (epoch ", state.epoch, ", phase ", phase, "): the loss is ",
                                   done.loss, ", the norm of its gradient ", done.norm,
                                   "; lower optim.lr = ", exact(config_.optim.lr), " or set optim.clip_norm"));
  });
}

}  // namespace lockstep
