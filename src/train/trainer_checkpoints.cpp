#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/ops/product_choices.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/first_weights.hpp"
#include "lockstep/train/stopping.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

namespace {
/// Minimum time between two writes of best.h5 during the run.
constexpr double kBestEverySeconds = 10;

/// TrainState::products names the rank of a choice that rank 0 has not made.
constexpr const char* kOfRank = "rank ";
std::string of_rank(int rank) { return join(kOfRank, rank, ": "); }

/// The algorithms of all ranks' products: those of rank 0, then the different ones of every other rank.
std::vector<std::string> gather_products(Communicator& comm) {
  std::string mine;
  for (const std::string& choice : ops::product_choices()) mine += choice + "\n";
  std::vector<std::string> gathered;
  std::set<std::string> of_first;
  int rank = 0;
  for (const std::string& lines : comm.all_gather_text(mine, "algorithms of products")) {
    std::istringstream text(lines);
    for (std::string choice; std::getline(text, choice);) {
      if (rank == 0) of_first.insert(choice);
      if (rank == 0 || !of_first.contains(choice)) gathered.push_back(rank == 0 ? choice : of_rank(rank) + choice);
    }
    ++rank;
  }
  return gathered;
}
}  // namespace

CheckpointParts Trainer::Impl::parts(const TrainState& s, bool resumable) {
  ProgramState more = resumable ? program->state() : ProgramState();
  return {.model = &model,
          .params = &model.params(),
          .optimizers = std::move(more.optimizers),
          .vectors = std::move(more.vectors),
          .ema = average(),
          .state = &s,
          .config = config.text,
          .seed = config.run.seed,
          .data_hash = model.data_hash(),
          .ranks = world.size(),
          .threads = threads,
          .devices = config.scale(world.size())};
}

void Trainer::Impl::keep_best(const Metric& decides, bool better) {
  best_place = 1;
  if (config.checkpoint.best_keep > 1) {
    const std::string series = decides.name == "loss" ? kValidationLoss : decides.name;
    const std::vector<double> values = state.history.known(series);  // the last value is of this evaluation
    const auto ahead = std::count_if(values.begin(), values.end() - 1, [&](double v) {
      return decides.larger_is_better ? v >= decides.value : v <= decides.value;
    });
    best_place = better ? 1 : std::max<std::int64_t>(2, ahead + 1);
  }
  if (!std::isfinite(decides.value) || best_place > (better ? 1 : config.checkpoint.best_keep) ||
      (!better && config.checkpoint.best_keep == 1))
    return;
  if (!writes() && (replays || world.size() == 1 || !config.checkpoint.copy)) return;
  {
    const auto change = world.change();
    best_copy.take(parts(state, false), 0, 1, !config.checkpoint.copy);
  }
  if (!writes()) return;
  best_pending = true;
  if (saving) return;
  // Small models improve many times a second.
  if (!config.checkpoint.copy || config.checkpoint.best_keep > 1 || since_best_file.seconds() > kBestEverySeconds)
    start_writing({.path = {}, .step = state.step});
}

void Trainer::Impl::write_best(const CheckpointCopy& weights, std::int64_t place, std::int64_t step) const {
  if (!resumed_from.empty() || !folder->candidates().empty()) folder->set_best_aside();
  folder->make_room_for_best(place, config.checkpoint.best_keep, step);
  weights.write(folder->best_file(place));
}

void Trainer::Impl::save_best() {
  await_writers();
  if (best_pending) start_writing({.path = {}, .step = state.step});
  await_writers();
  if (writes()) folder->prune(config.checkpoint.keep);  // nothing continues this run
}

void Trainer::Impl::start_writing(Saving what) {
  const auto change = world.change();
  if (best_pending) {
    std::swap(best_copy, best_writing);
    best_pending = false;
    since_best_file.restart();
    what.best_place = best_place;
  }
  saving = std::move(what);
  writer.start([this] {
    Saving& now = *saving;
    if (writes()) create_directories_on_disk(folder->path());
    if (now.best_place > 0) {
      const profile::Span span("write the best weights", profile::Kind::phase);
      write_best(best_writing, now.best_place, now.step);
    }
    if (now.path.empty()) return;
    const profile::Span span("write the checkpoint", profile::Kind::phase);
    // A resume finds the records of the steps before the checkpoint.
    if (writes()) now.unsynced = log->sync();
    if (proof && now.unsynced.empty()) now.unsynced = proof->sync();
    if (now.sharded) {
      now.mark = copy.write_part(part_file(now.path, now.number, world.rank(), world.size()));
    } else {
      copy.write(now.path);
      folder->prune(config.checkpoint.keep);
    }
  });
}

void Trainer::Impl::complete() {
  const auto end = [&] {
    const auto change = world.change();
    return writer.finish();
  };
  const auto give_up = [&](const char* why) {
    if (saving->best_place > 0 && !best_pending) {
      std::swap(best_copy, best_writing);
      best_pending = true;
    }
    if (!writes()) return;
    if (saving->path.empty()) {
      log::error("the best weights, of step ", saving->step, ", were not written: ", why,
                 "; they are written with the next checkpoint");
    } else {
      log::error("the checkpoint of step ", saving->step, " was not written: ", why, "; earlier ones are unchanged");
    }
  };
  double seconds = 0;
  try {
    if (saving->sharded) {
      const auto mark = [&] {
        seconds = end();
        return saving->mark;
      };
      finish_sharded_checkpoint(world, saving->path, saving->number, mark, copy);
      if (writes()) folder->prune(config.checkpoint.keep);
    } else {
      seconds = end();
    }
    if (!saving->path.empty()) {
      written = true;
      last_written = saving->path.filename();
    }
  } catch (const CollectiveError&) {
    give_up("a rank failed");  // it has printed its own message
  } catch (const std::exception& error) {
    if (saving->sharded) throw;                                    // only this rank failed
    if (saving->best_place > 0 && !config.checkpoint.copy) throw;  // no other copy exists
    give_up(log::as_error(error).what());
  }
  if (!saving->unsynced.empty()) log::warning(saving->unsynced, "; records before the checkpoint may be lost");
  if (!saving->path.empty()) checkpoint_cost = saving->copy_seconds + seconds;
  state.checkpoint_seconds = std::max(state.checkpoint_seconds, saving->copy_seconds + seconds);
  saving.reset();
}

void Trainer::Impl::await_writers() {
  const profile::Span span("wait for the writers", profile::Kind::phase);
  constexpr double kPoll_s = 0.5;  // between collectives, so that a long write does not look like a hang
  Stopwatch since_progress;
  for (std::uint64_t moved = file_bytes_moved;;) {
    if (writer.busy()) writer.wait(kPoll_s);
    if (const std::uint64_t now = file_bytes_moved; std::exchange(moved, now) != now) since_progress.restart();
    if (writer.busy() && config.dist.timeout > 0 && since_progress.seconds() > config.dist.timeout) {
      world.abort(1, join("writing the checkpoint of step ", saving->step, " into ", folder->path(),
                          ": no progress for ", config.dist.timeout, " s (dist.timeout); its file system hangs"));
    }
    if (comm.agree(!writer.busy(), "writers of the checkpoint")) break;
  }
  if (saving) complete();
}

/// Single file: rank 0 copies and writes. Sharded: every rank copies and writes its part.
void Trainer::Impl::save(const std::filesystem::path& path, bool in_place) {
  settle(UpTo::outcomes);
  last_flags.reset();  // they belong to steps before this checkpoint
  profile::Phase phase("checkpoint", interval.checkpoint);
  const Stopwatch watch;
  settle(UpTo::optimizers);
  if (tunes()) state.products = gather_products(comm);
  // A checkpoint must not hold the weights of a faulty rank.
  if (config.dist.check_every > 0) require_same_weights(world, model.params().hash(), state.step);
  world.at("checkpoint", state.step);  // on all ranks: their next collectives belong to the same step
  await_writers();
  require_run_directory();
  const bool sharded = config.checkpoint.layout == "sharded" && world.size() > 1;
  written = !writes() && !sharded;
  if (!written) {
    state.seconds = seconds_before + session.seconds();
    state.schedule = schedule.state();
    Saving next{.path = path, .step = state.step, .sharded = sharded};
    if (sharded) {
      next.number = comm.broadcast_text(fresh_number(), 0, "checkpoint's number");
      world.together("writing the checkpoint", [&] {
        if (writes()) create_directories_on_disk(folder->path());
      });
    }
    copy.take(parts(state, true), sharded ? world.rank() : 0, sharded ? world.size() : 1, in_place);
    next.copy_seconds = watch.seconds();
    start_writing(std::move(next));
  }
  if (in_place) await_writers();
  phase.end();
  since_checkpoint.restart();
}

bool Trainer::Impl::save_now(const std::filesystem::path& path) {
  constexpr double kRetryEvery_s = 10;
  const double limit_s = 60 * config.checkpoint.retry_minutes;
  const int before = signals->received();
  const auto told_to_end = [&] { return signals->received() != before; };
  const Stopwatch watch;
  for (bool first = true;; first = false) {
    save(path, true);
    if (comm.agree(written, "result of the checkpoint")) return true;
    if (!comm.agree(!told_to_end() && (!writes() || watch.seconds() < limit_s), "time for another try")) return written;
    if (first && writes())
      log::warning("the state stays in memory and is written again every 10 s, for ", config.checkpoint.retry_minutes,
                   " minutes (checkpoint.retry_minutes): free some space");
    const Stopwatch pause;
    while (pause.seconds() < kRetryEvery_s && !told_to_end())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool Trainer::Impl::holds_state() { return !model.params().device().is_cuda() && program->settle_alone(); }

void Trainer::Impl::prepare_rescue() {
  if (world.size() == 1 || std::string_view(comm.backend()) == "threads") return;
  if (!holds_state()) {
    if (config.checkpoint.partner_steps == 0) return;
    rescue_copy_due = state.step;
  }
  world.on_loss([this] { return rescue(); });
}

void Trainer::Impl::copy_for_rescue() {
  constexpr double kShare = 0.01;
  const double trained = session.seconds();
  settle(UpTo::outcomes);
  const Stopwatch watch;
  settle(UpTo::optimizers);
  {
    const auto change = world.change();
    rescue_copy.take(parts(state, true));
  }
  double seconds[] = {watch.seconds(), trained};
  comm.all_reduce(std::span(seconds), ReduceOp::max, "cost of a copy of the state");
  interval.checkpoint += watch.seconds();
  std::int64_t steps = config.checkpoint.partner_steps;
  if (steps < 0)
    steps = 1 + static_cast<std::int64_t>(seconds[0] / kShare * static_cast<double>(steps_here) / seconds[1]);
  if (steps_here > 0 && !std::exchange(copies_logged, true))
    log::info("copies: the state is ", model.params().device().is_cuda() ? "on GPUs" : "divided over the ranks",
              ", so each rank keeps a copy of all of it for the loss of another; a copy takes ",
              printed("%.2g", seconds[0]), " s and is renewed after ", steps, " steps");
  rescue_copy_due = state.step + steps;
}

bool Trainer::Impl::rescue() {
  const bool whole = holds_state();
  const std::int64_t step = whole ? state.step : rescue_copy.whole_step();
  const auto failed = [&](const std::exception& problem, const char* what) {
    log::error(what, " after step ", state.step, " could not be saved: ", log::as_error(problem).what());
  };
  try {
    require(step >= 0, "it is not on this rank, and there is no copy yet");
    require(run_dir && run_dir->in_place(), "this host does not see the run directory");
    require_run_directory();
    if (writer.busy()) writer.wait(config.dist.timeout > 0 ? config.dist.timeout : 600);
    if (whole && ema && ema->exchanged()) ema->exchange(model.params());
    create_directories_on_disk(folder->path());
    state.schedule = schedule.state();
    state.seconds = seconds_before + session.seconds();
    if (whole) rescue_copy.take(parts(state, true), 0, 1, true);
    rescue_copy.write(folder->rescue_file(step));
  } catch (const std::exception& problem) {
    failed(problem, "the state");
    return false;
  }
  log::warning("the state after step ", step, " is saved, ",
               step == state.step ? "so no step is lost" : join("so ", state.step - step, " steps are lost"),
               "; the same command continues from there");
  try {
    const std::filesystem::path file = folder->best_file();
    const bool unsaved = !std::filesystem::exists(file) || CheckpointReader(file, true).state().step != state.best_step;
    if (state.best_step < 0 || state.best_step > step || !unsaved) return true;
    const bool now = whole && state.best_step == step;
    if (now) best_copy.take(parts(state, false), 0, 1, true);
    if (now || best_copy.whole_step() == state.best_step) write_best(best_copy, 1, state.best_step);
  } catch (const std::exception& problem) {
    failed(problem, "the best weights");
  }
  return true;
}

void Trainer::Impl::require_run_directory() const {
  if (!writes()) return;
  const std::string successor = successor_in(run_dir->path());
  require(successor.empty(), "run directory ", run_dir->path(), ": another run has taken it over (", successor,
          "); this run ends without a further checkpoint");
  if (run_dir->in_place()) return;
  const std::filesystem::path now = run_dir->now();
  const std::string last = last_written.empty() ? "" : (std::filesystem::path("checkpoints") / last_written).string();
  throw Error(
      Fault::internal,
      join("run directory ", run_dir->path(), ": this path is no longer the directory that this run opened; ",
           now.empty()    ? "the original directory was removed, with its checkpoints"
           : last.empty() ? join("the original directory is now ", now)
                          : join("the original directory is now ", now, ", and its last checkpoint ", now / last),
           "; do not move the directory of a run"));
}

Outcome Trainer::Impl::interrupt() {
  end_profile();
  if (interval.samples > 0) log_interval();
  const std::filesystem::path path = folder->step_file(state.step);
  require(save_now(path), "stopping after step ", state.step, ": its checkpoint could not be written");
  comm.barrier("stop");  // no rank exits before the checkpoint is complete
  const std::string by = stopped_by.empty() ? "" : " by " + stopped_by;
  log::info(
      "stopped", by, " after step ", state.step, ": ", path.string(),
      config.run.resume == "auto" ? "; the same command continues from there" : "; --resume auto continues from there");
  report_time();
  log->finish(join("stopped", by, " after step ", state.step));
  return Outcome::interrupted;
}

Outcome Trainer::Impl::finish() {
  end_profile();
  if (interval.samples > 0) log_interval();  // the run ends within an epoch
  const bool ended_before = state.finished;
  if (ended_before)
    log::info(
        "this run has finished its ", state.step,
        " steps: only the final evaluation is repeated; --resume never starts it again, more train.epochs continue it");
  if (!ended_before && !evaluate_last()) return interrupt();
  if (!ended_before || resumed_from != folder->final_file()) {  // a finished run leaves its file as it is
    state.finished = true;
    if (state.stop_reason.empty()) state.stop_reason = all_done(state.step);
    if (config.is_trial()) {
      save_best();
    } else {
      require(save_now(folder->final_file()), "ending after step ", state.step,
              ": the final checkpoint could not be written");
    }
  }
  world.on_loss([] { return true; });  // the files have all
  const auto validation = static_cast<double>(model.size(Split::validation));
  const double whole = validation + static_cast<double>(model.size(Split::test));
  const auto used = static_cast<double>(evaluated_samples(model.size(Split::validation), config.eval.max_samples));
  const bool late = too_late_to_evaluate(state.evaluation_seconds * whole / std::max(1.0, used));
  if (!late && report_final(config.is_trial() ? "" : take_best_weights())) return Outcome::finished;
  const std::string outcome =
      join("stopped", stopped_by.empty() ? "" : " by " + stopped_by, " before the end of the final evaluation");
  log::info(outcome, "; all steps are done, and the same command repeats the evaluation");
  log->finish(outcome);
  return Outcome::interrupted;
}

/// Loads best.h5 if there is one, so that the final evaluation uses the weights that users will take. Returns a
/// description of the weights.
std::string Trainer::Impl::take_best_weights() {
  std::string description = "final weights";
  world.together("reading the best weights", [&] {
    if (!writes() || state.best_epoch < 0) return;
    CheckpointReader(folder->best_file()).load_average_or_weights(model.params());
    description = join("best weights, of ", best_moment());
  });
  description = comm.broadcast_text(description, 0, "description of the weights");
  if (description == "final weights") return description;
  share(model.params().values(), "best weights");
  ema.reset();  // the weights are the average already
  return description;
}

/// If the best weights so far are lost, the run must choose among the following evaluations.
void Trainer::Impl::check_best() {
  std::int64_t lost = 0;
  world.together("comparing the best weights with the checkpoint", [&] {
    if (!writes()) return;
    folder->restore_best(state.step);
    if (state.best_epoch < 0) return;
    const std::filesystem::path file = folder->best_file();
    std::string defect = std::filesystem::exists(file) ? checkpoint_defect(file) : "it is missing";
    if (defect.empty() && state.best_step >= 0) {
      const std::int64_t step = CheckpointReader(file, true).state().step;
      if (step != state.best_step) defect = join("it is of step ", step, ", not ", state.best_step);
    }
    lost = defect.empty() ? 0 : 1;
    if (lost != 0)
      log::warning(
          "the best weights so far, of ", best_moment(), " in ", file, ", are lost: ", defect,
          "; stop this run and restore a whole copy of the file, or the best of the following evaluations replaces it");
  });
  if (comm.all_reduced(lost, ReduceOp::max, "best weights") == 0) return;
  state.best_epoch = state.best_step = -1;
  state.best = 0;
}

void Trainer::Impl::start_from(const std::filesystem::path& checkpoint) {
  world.together("reading the first weights", [&] {
    if (!writes()) return;
    const CheckpointReader reader(checkpoint);
    reader.require_arrays_of(model.params());
    reader.load_average_or_weights(model.params());
    const std::string where = join("run.init = ", checkpoint, ": ");
    if (model.tied_to_data() && reader.data_hash() != hex64(model.data_hash()))
      log::warning(where, "it was trained on other data than ", config.data.path,
                   "; its rows must belong to the same users, items or puzzles");
    if (auto* task = dynamic_cast<FirstWeights*>(&model))
      if (const std::string other = task->adapt_from(reader.file()); !other.empty()) log::warning(where, other);
  });
  share(model.params().values(), "first weights");
  if (ema) ema.emplace(model.params(), config.optim.ema);
  program->resumed();
}

void Trainer::Impl::share(const Tensor& tensor, const char* what) {
  const HostView host(tensor, HostView::Access::write);
  comm.broadcast(std::span(static_cast<std::byte*>(host->raw()), host->size_bytes()), 0, what);
}

/// A rank that the earlier start did not have takes the algorithms of rank 0.
void Trainer::Impl::recall_products() {
  std::vector<std::string> choices;
  const std::string mine = of_rank(world.rank());
  for (const std::string& choice : state.products) {
    if (choice.starts_with(mine))
      choices.push_back(choice.substr(mine.size()));
    else if (!choice.starts_with(kOfRank))
      choices.push_back(choice);
  }
  const std::int64_t usable = ops::recall_product_choices(model.params().device(), choices);
  if (usable > 0)
    log::info("matrix products: ", usable, " algorithms as before the resume; those of new shapes are timed");
  else if (!choices.empty())
    log::info(
        "matrix products: the checkpoint's algorithms are of another GPU or another cuBLASLt; they are timed again");
}

void Trainer::Impl::resume(const std::filesystem::path& checkpoint) {
  std::string packed;
  const ProgramState own = program->state();
  world.together("reading the checkpoint", [&] {
    if (!writes()) return;
    const CheckpointReader reader(checkpoint);
    require_data(reader.model_kind() == model.kind(), "checkpoint ", checkpoint, ": its model is ", reader.model_kind(),
                 ", this configuration's is ", model.kind());
    reader.load_weights(model.params());
    for (const NamedOptimizer& o : own.optimizers) reader.load_optimizer(o);
    reader.load_vectors(own.vectors);
    if (ema) reader.load_ema(*ema);
    const std::string data = hex64(model.data_hash());
    require_data(reader.data_hash() == data, "checkpoint ", checkpoint, ": it was trained on other data (hash ",
                 reader.data_hash(), ") than ", config.data.path, " (hash ", data,
                 "); name the data set of its training, or choose another --run-dir");
    const TrainState stored = reader.state();
    require_data(
        stored.position >= 0 && stored.position <= program->epoch().positions && stored.step >= 0 && stored.epoch >= 0,
        "checkpoint ", checkpoint, ": position ", stored.position, " in an epoch of ", program->epoch().positions,
        " at step ", stored.step);
    packed = pack(stored);
  });
  share(model.params().values(), "weights");
  std::vector<std::int64_t> numbers;
  for (const NamedOptimizer& o : own.optimizers) {
    for (const NamedTensor& slot : o.optimizer->state()) share(slot.value, "optimizer state");
    numbers.push_back(o.optimizer->steps());
  }
  for (const NamedTensor& vector : own.vectors) share(vector.value, "program state");
  if (ema) share(ema->flat(), "averaged weights");
  comm.broadcast(std::as_writable_bytes(std::span<std::int64_t>(numbers)), 0, "optimizer steps");
  for (std::size_t i = 0; i < own.optimizers.size(); ++i) own.optimizers[i].optimizer->set_steps(numbers[i]);
  state = unpack(comm.broadcast_text(packed, 0, "training state"));
  if (tunes()) recall_products();
  program->resumed();
  // The next start must find a checkpoint in the run directory, also if this file lies elsewhere.
  checkpoint_due = config.resumes_file();
  schedule.set_state(state.schedule);
  seconds_before = state.seconds;
  resumed_from = checkpoint;
  // The configuration may ask for more steps. A run that a stopping rule has ended stays as it is.
  if (state.finished && state.step < last_step() && state.stop_reason == all_done(state.step)) {
    state.finished = false;
    state.stop_reason.clear();
    const std::vector<double>& steps = state.history.series("step");
    if (model.size(Split::validation) > 0 && state.evaluated_step != state.step && !steps.empty() &&
        steps.back() == static_cast<double>(state.step))
      state.history.drop_last();  // of evaluate_last()
  }
}

}  // namespace lockstep
