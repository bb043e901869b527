#include "lockstep/train/trainer.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/ops/product_choices.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/stopping.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

namespace {

constexpr const char* kMaxHours = "run.max_hours";

/// schedule.total = 0 is the length of the run. A run that ends within its warm-up never reaches the cosine.
ScheduleOptions resolved(ScheduleOptions schedule, std::int64_t epochs, std::int64_t steps) {
  if (schedule.total == 0) schedule.total = std::max(schedule.unit == "step" ? steps : epochs, schedule.warmup + 1);
  return schedule;
}

const Metric& deciding_of(const std::vector<Metric>& metrics, const std::string& wanted) {
  if (wanted.empty()) return metrics.front();
  require_usage(!wanted.starts_with("bias"), "option eval.best = ", wanted,
                ": an error with a sign is not best where it is smallest; choose a metric such as rmse or mae");
  std::vector<std::string> names;
  for (const Metric& m : metrics) {
    if (m.name == wanted) return m;
    names.push_back(m.name);
  }
  const std::string near = nearest(wanted, names);
  throw Error(Fault::usage,
              join("option eval.best = ", wanted, ": the model reports no such metric",
                   near.empty() ? "; its first one is " + names.front() : "; did you mean " + near + "?"));
}

}  // namespace

Metric deciding_metric(const RunConfig& config, Task& model) {
  // Sums of 1: with sums of 0, an output or a table without samples would report no metric.
  std::vector<Metric> metrics = model.metrics(Split::validation, std::vector<double>(model.sum_count(), 1));
  // They are shares of solved puzzles or tasks, except the work of several tries, segments@K.
  for (const std::string& name : model.collective_metric_names())
    metrics.push_back({name, 0, !name.starts_with("segments@")});
  return deciding_of(metrics, config.eval.best);
}

Trainer::Impl::Impl(World& w, const RunConfig& c, Task& m)
    : world(w),
      comm(w.communicator()),
      config(c),
      model(m),
      threads(prepare_cpu(w, c, BestIsa::fastest)),
      program(m.make_program(w, c, threads)),
      schedule(resolved(c.schedule, c.train.epochs, last_step()), c.scaled_lr(w.size())) {
  ops::tune_products(tunes());
  if (c.optim.ema > 0) ema.emplace(m.params(), c.optim.ema);
  if (!c.eval.best.empty()) decides();
}

std::string Trainer::Impl::decides() const { return deciding_metric(config, model).name; }

std::int64_t Trainer::Impl::last_step() const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const std::int64_t per_epoch = program->epoch().steps;
  const std::int64_t by_epochs = config.train.epochs > kMost / per_epoch ? kMost : config.train.epochs * per_epoch;
  return config.train.steps > 0 ? std::min(config.train.steps, by_epochs) : by_epochs;
}

double Trainer::Impl::epochs_done() const {
  return static_cast<double>(state.epoch) +
         static_cast<double>(state.position) / static_cast<double>(program->epoch().positions);
}

Outcome Trainer::Impl::run() {
  const auto every = [&](std::int64_t steps) { return steps > 0 && state.step % steps == 0; };
  // After a fault of one rank, prove() and ranks_agree() go back to the last checkpoint and return false.
  for (;; ++steps_here) {
    if (state.step >= profiled.last) end_profile();
    if (evaluation_due()) {
      if (!ranks_agree()) continue;
      if (too_late_to_evaluate(state.evaluation_seconds)) return interrupt();
    }
    if (!end_step()) return interrupt();  // evaluates, applies the stopping rules
    const bool ends = !state.stop_reason.empty() || state.step >= last_step();
    if (!prove(ends)) continue;
    if (ends) return finish();
    if (config.pause_after > 0 && state.epoch >= config.pause_after && state.position == 0) {
      interrupt();
      return Outcome::finished;
    }
    if (checkpoint_due && !ranks_agree()) continue;
    if (std::exchange(checkpoint_due, false)) save(folder->step_file(state.step), !config.checkpoint.copy);
    if (state.step == rescue_copy_due) copy_for_rescue();

    begin_profile();
    world.at("train", state.step);
    step();

    const std::optional<unsigned> known = std::exchange(last_flags, {});
    if (saving && (saving->sharded ? known && (*known & kWriting) == 0 : !writer.busy())) complete();
    if (every(config.dist.check_every)) {
      if (!proves) check_weights();
      if (!ranks_agree()) continue;
    }
    if (every(config.train.log_every)) log_interval();
    const unsigned seen = std::exchange(flags_seen, 0);
    if (every(config.checkpoint.every_steps) || (seen & kCheckpoint)) checkpoint_due = true;
    if ((seen & kStop) && ranks_agree()) return interrupt();
  }
}

void Trainer::Impl::begin_profile() {
  if (profiler || state.step + 1 < profiled.first || state.step >= profiled.last) return;
  if (state.step + 1 > profiled.first)
    log::info("option profile: the run continues after step ", state.step, "; steps ", state.step + 1, " to ",
              profiled.last, " are recorded");
  profiled.first = state.step + 1;
  profiler.emplace(world, threads, model.params().device(), model.params().dtype());
}

void Trainer::Impl::end_profile() {
  if (!profiler) return;
  const Timeline timeline = profiler->finish({profiled.first, state.step});
  profiler.reset();
  profiled = {};
  if (!writes()) return;
  require_run_directory();
  const std::filesystem::path file = run_dir->path() / join("profile-", timeline.first, "-", timeline.last, ".json");
  try {
    report_timeline(timeline, file);
    log->made(file, "timeline of all ranks and threads, for https://ui.perfetto.dev");
  } catch (const Error& error) {
    log::warning(error.what(), "; the run goes on without its timeline");
  }
  log->add(slowest_operations(timeline));
  log->add(rank_times(timeline));
  if (ReportPicture picture = timeline_picture(timeline); !picture.svg.empty()) log->add(std::move(picture));
}

void Trainer::Impl::step() {
  const double lr = schedule.lr(state.step, state.epoch);
  profile::Span span("step", profile::Kind::phase, nullptr, static_cast<std::uint32_t>(state.step + 1));
  StepResult done = program->step(state, lr, average(), flags());  // forward, backward, reduce, clip, update
  span.end();
  if (!done.change) done.change = world.change();
  if (done.outcome) add(*done.outcome);
  interval.lr = lr;
  ++state.step;
  state.position += done.advance;
  state.row_decisions = done.row_decisions;
  interval.samples += done.samples;
  interval.compute += done.compute;
  interval.reduce += done.reduce;
  interval.update += done.update;
  const double loss = interval.weight > 0 ? interval.loss : state.epoch_loss,
               weight = interval.weight > 0 ? interval.weight : state.epoch_weight;
  log->progress(state.step, weight > 0 ? loss / weight : -1);
}

Interval Trainer::Impl::first_interval() const {
  Interval first;
  if (config.train.log_every > 0) return first;
  first.loss = state.epoch_loss;
  first.weight = state.epoch_weight;
  first.batch_means = state.epoch_batch_means;
  first.steps = state.epoch_steps;
  return first;
}

void Trainer::Impl::settle(UpTo what) {
  if (const std::optional<StepOutcome> last = program->settle(what)) add(*last);
}

void Trainer::Impl::add(const StepOutcome& done) {
  flags_seen |= done.flags;
  last_flags = done.flags;
  if (done.weight > 0) {
    const double mean = done.loss / done.weight;
    state.epoch_loss += done.loss;
    state.epoch_weight += done.weight;
    state.epoch_batch_means += mean;
    state.epoch_gradient_norms += done.norm;
    ++state.epoch_steps;
    interval.loss += done.loss;
    interval.weight += done.weight;
    interval.batch_means += mean;
    interval.norm = done.norm;
    ++interval.steps;
  }
  if (done.scaled) {
    state.loss_scale.update(!done.skipped);
    interval.scaled = true;
    if (done.skipped) {
      ++interval.skipped;
      log::info("step ", done.step,
                ": the gradient overflows in fp16 and the step is skipped; the loss scale falls to ",
                state.loss_scale.value);
    }
  }
}

void Trainer::Impl::check_weights() {
  settle(UpTo::weights);
  require_same_weights(world, model.params().hash(), state.step);
}

bool Trainer::Impl::evaluation_due() const {
  const std::int64_t steps = config.eval.every_steps;
  const bool by_steps =
      steps > 0 && state.step % steps == 0 && state.step > std::max<std::int64_t>(0, state.evaluated_step);
  const bool by_epochs = state.position == program->epoch().positions && (state.epoch + 1) % config.eval.every == 0;
  return (by_steps || by_epochs) && model.size(Split::validation) > 0;
}

bool Trainer::Impl::end_step() {
  if (state.position == program->epoch().positions) return end_epoch();
  return !evaluation_due() || evaluate_between();
}

bool Trainer::Impl::end_epoch() {
  if (config.train.log_every == 0) log_interval();
  settle(UpTo::outcomes);
  std::vector<std::pair<std::string, double>> record = {{"epoch", static_cast<double>(state.epoch + 1)},
                                                        {"step", static_cast<double>(state.step)},
                                                        {"lr", schedule.lr(state.step - 1, state.epoch)}};
  if (const auto steps = static_cast<double>(state.epoch_steps);
      steps > 0)  // some step had targets and was not skipped
    record.insert(record.end(), {{"loss", state.epoch_loss / state.epoch_weight},
                                 {"loss_unweighted", state.epoch_batch_means / steps},
                                 {"gradient_norm", state.epoch_gradient_norms / steps}});
  profile::Phase phase("end of the epoch", interval.compute);
  program->end_epoch(state, record);
  phase.end();
  Evaluation found;
  if (evaluation_due()) {
    found = evaluate_average(Split::validation, config.eval.max_samples);
    if (found.metrics.empty()) return false;
  }
  auto change = world.change();
  ++state.epoch;
  state.position = state.epoch_steps = 0;
  state.epoch_loss = state.epoch_weight = state.epoch_batch_means = state.epoch_gradient_norms = 0;
  if (found.metrics.empty()) {
    state.history.append(record);
  } else {
    record_evaluation(found, record, false);
  }
  if (state.stop_reason.empty()) state.stop_reason = stop_reason_of_epoch(config.stop, state);
  change.unlock();
  if (!found.metrics.empty()) end_evaluation(found);
  const std::int64_t every = config.checkpoint.every;
  const bool by_cost = every < 0 && config.checkpoint.every_steps == 0 && config.checkpoint.every_minutes == 0;
  if (every > 0 ? state.epoch % every == 0 : by_cost && checkpoint_is_cheap()) checkpoint_due = true;
  return true;
}

bool Trainer::Impl::checkpoint_is_cheap() {
  constexpr double kShare = 0.01;
  const double since = since_checkpoint.seconds();  // rank 0's clock decides
  const bool busy = saving && !saving->path.empty();
  const bool cheap = comm.agree(!writes() || (!busy && checkpoint_cost <= kShare * since), "cost of a checkpoint");
  if (!cheap && writes() && !busy && !std::exchange(checkpoints_are_rare, true))
    log::info("checkpoints: writing one took ", printed("%.2g", checkpoint_cost),
              " s, so there is not one after each "
              "epoch but about every ",
              printed("%.2g", checkpoint_cost / kShare),
              " s, for 1 % of the time; checkpoint.every = N sets another interval");
  return cheap;
}

bool Trainer::Impl::evaluate_between(bool last) {
  const Evaluation found = evaluate_average(Split::validation, config.eval.max_samples);
  if (found.metrics.empty()) return false;
  std::vector<std::pair<std::string, double>> record = {{"epoch", epochs_done()},
                                                        {"step", static_cast<double>(state.step)},
                                                        {"lr", schedule.lr(state.step - 1, state.epoch)}};
  auto change = world.change();
  record_evaluation(found, record, last);
  change.unlock();
  end_evaluation(found);
  return true;
}

bool Trainer::Impl::evaluate_last() {
  if (model.size(Split::validation) == 0 || state.evaluated_step == state.step) return true;
  return !too_late_to_evaluate(state.evaluation_seconds) && evaluate_between(true);
}

void Trainer::Impl::record_evaluation(const Evaluation& found, std::vector<std::pair<std::string, double>>& record,
                                      bool last) {
  const Metric& decides = deciding(found.metrics);
  const Metric* loss = find_metric(found.metrics, "loss");
  const Metric watched = loss != nullptr ? *loss : found.metrics.front();
  for (const Metric& m : found.metrics) record.emplace_back(m.name == "loss" ? kValidationLoss : m.name, m.value);
  state.history.append(record);
  // Before the first success, such as a puzzle that is solved, later weights have learnt more.
  const bool none_yet = decides.larger_is_better && decides.value == 0 && state.best == 0;
  if (std::isfinite(decides.value) &&
      (state.best_epoch < 0 || none_yet ||
       (decides.larger_is_better ? decides.value > state.best : decides.value < state.best))) {
    state.best = decides.value;
    state.best_epoch = state.epoch;
    state.best_step = state.step;
    state.seconds = seconds_before + session.seconds();
  }
  state.finished = last;
  if (last) return;
  schedule.observe(watched.larger_is_better ? -watched.value : watched.value);
  state.schedule = schedule.state();
  state.evaluated_step = state.step;
  note_score(state, decides.value, decides.larger_is_better, config.stop.min_delta);
  state.stop_reason = stop_reason(config.stop, state);
}

void Trainer::Impl::add_diagnostics(std::vector<Metric>& metrics) {
  world.together("choosing the best weights", [&] { deciding(metrics); });
  if (config.jacobian.every == 0 || std::fmod(epochs_done(), config.jacobian.every) != 0) return;
  std::vector<Metric> more = model.diagnostics();
  // All ranks decide by the values of rank 0: on other processors the last digits may differ.
  std::vector<double> values;
  for (const Metric& m : more) values.push_back(m.value);
  comm.broadcast(std::as_writable_bytes(std::span(values)), 0, "sensitivity metrics");
  for (std::size_t i = 0; i < more.size(); ++i) more[i].value = values[i];
  metrics.insert(metrics.end(), more.begin(), more.end());
}

void Trainer::Impl::end_evaluation(const Evaluation& found) {
  const bool better = state.best_step == state.step;
  profile::Phase phase("keep the best weights", interval.checkpoint);
  if (config.checkpoint.best_keep > 1) await_writers();  // every one of these evaluations is written
  keep_best(deciding(found.metrics), better);
  if (!config.checkpoint.copy) await_writers();
  phase.end();
  log_evaluation(Split::validation, found, config.eval.max_samples, better);
}

Evaluation Trainer::Impl::evaluate_average(Split split, std::int64_t most_samples) {
  world.at("evaluate", state.step);
  Evaluation found;
  settle(UpTo::outcomes);
  profile::Phase phase("evaluate", found.seconds);
  settle(UpTo::weights);
  auto change = world.change();
  std::optional<WithAverage> with(std::in_place, average(), model.params());
  change.unlock();
  found.metrics =
      evaluate(comm, model, split, threads, &found.tables, {.most_samples = most_samples, .signals = signals});
  phase.end();
  if (split == Split::validation && !found.metrics.empty() && !state.finished) add_diagnostics(found.metrics);
  change.lock();
  with.reset();
  change.unlock();
  state.evaluation_seconds = found.seconds;
  interval.evaluate += found.seconds;
  if (found.metrics.empty())
    if (signals->received() != 0) stopped_by = signals->name();
  return found;
}

const Metric& Trainer::Impl::deciding(const std::vector<Metric>& metrics) const {
  return deciding_of(metrics, config.eval.best);
}

unsigned Trainer::Impl::flags() {
  unsigned flags = 0;
  if (signals->received() != 0) {
    stopped_by = signals->name();
    flags |= kStop;
  }
  if (saving && saving->sharded && writer.busy()) flags |= kWriting;
  if (!writes()) return flags;  // rank 0's clock decides
  if (time_is_over(0)) {
    stopped_by = kMaxHours;
    flags |= kStop;
  }
  const double minutes = config.checkpoint.every_minutes;
  if (minutes > 0 && since_checkpoint.seconds() > 60 * minutes) flags |= kCheckpoint;
  return flags;
}

bool Trainer::Impl::time_is_over(double reserve_s) const {
  return too_late(process_seconds(), config.run.max_hours * 3600, state.checkpoint_seconds, reserve_s);
}

bool Trainer::Impl::too_late_to_evaluate(double reserve_s) {
  if (config.run.max_hours == 0 || steps_here == 0) return false;
  const bool over = !comm.agree(!writes() || !time_is_over(reserve_s), "time left for an evaluation");
  if (over && writes()) stopped_by = kMaxHours;
  return over;
}

Trainer::Trainer(World& world, const RunConfig& config, Task& model) {
  // A configuration error occurs on every rank: together() prints it once.
  world.together("preparing the training", [&] { impl_ = std::make_unique<Impl>(world, config, model); });
}
Trainer::~Trainer() {
  if (impl_) impl_->world.on_loss({});
}

std::int64_t Trainer::steps_per_epoch() const { return impl_->program->epoch().steps; }
std::string Trainer::decides() const { return impl_->decides(); }
std::int64_t Trainer::last_step() const { return impl_->last_step(); }
const TrainState& Trainer::state() const { return impl_->state; }
std::vector<std::pair<std::string, std::string>> Trainer::facts() { return impl_->facts(); }
void Trainer::resume(const std::filesystem::path& checkpoint) { impl_->resume(checkpoint); }
void Trainer::start_from(const std::filesystem::path& checkpoint) { impl_->start_from(checkpoint); }

void Trainer::profile(StepRange steps) {
  Impl& run = *impl_;
  run.world.together("choosing the profiled steps", [&] {
    require_usage(steps.last <= run.last_step(), "option profile = ", steps.first, "..", steps.last,
                  ": the run ends after step ", run.last_step());
  });
  if (!steps.empty() && steps.last <= run.state.step)
    log::info("option profile = ", steps.first, "..", steps.last, ": the run continues after step ", run.state.step,
              ", so nothing is recorded");
  run.profiled = steps;
}

Outcome Trainer::run(RunLog& log, const std::filesystem::path& run_dir) {
  const StopSignals signals;
  impl_->log = &log;
  impl_->folder.emplace(run_dir);
  if (impl_->writes() && !run_dir.empty()) create_directories_on_disk(run_dir);
  impl_->signals = &signals;
  impl_->session.restart();
  impl_->interval = impl_->first_interval();
  impl_->open_monitors();
  impl_->check_best();
  if (std::filesystem::exists(run_dir)) impl_->run_dir.emplace(run_dir);
  impl_->open_proof(run_dir);
  impl_->prepare_rescue();
  return impl_->run();
}

Replayed Trainer::replay(const ProofChain& chain, std::int64_t until) { return impl_->replay(chain, until); }

}  // namespace lockstep
