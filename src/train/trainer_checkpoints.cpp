#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/stopping.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

CheckpointParts Trainer::Impl::parts(const TrainState& s, bool resumable) {
  return {.model = &model,
          .params = &model.params(),
          .optimizers = resumable ? program->optimizers() : std::vector<NamedOptimizer>(),
          .vectors = resumable ? program->vectors() : std::vector<NamedTensor>(),
          .ema = average(),
          .state = &s,
          .config = config.text,
          .seed = config.run.seed,
          .data_hash = model.data_hash(),
          .ranks = world.size(),
          .threads = threads,
          .devices = config.scale(world.size())};
}

void Trainer::Impl::write_best() {
  if (!writes() || !best.pending()) return;
  std::filesystem::create_directories(folder->path());
  best.write(model.params(), average(),
             [&](const TrainState& s) { save_checkpoint(folder->best_file(), parts(s, false)); });
  since_best_file.restart();
}

/// Single file: rank 0 writes, and the other ranks wait for it in the next step. Sharded: every rank writes its part.
/// Returns whether it was written.
bool Trainer::Impl::save(const std::filesystem::path& path) {
  program->settle();
  const bool sharded = config.checkpoint.layout == "sharded" && world.size() > 1;
  // A checkpoint must not hold the weights of a faulty rank.
  if (config.dist.check_every > 0) require_same_weights(world, model.params().hash(), state.step);
  world.at("checkpoint", state.step);  // on all ranks: their next collectives belong to the same step
  if (!writes() && !sharded) return true;
  Stopwatch watch;
  state.seconds = seconds_before + session.seconds();
  state.schedule = schedule.state();
  bool written = true;
  const auto give_up = [&](const char* why) {
    written = false;
    if (writes())
      log::error("the checkpoint of step ", state.step, " was not written: ", why, "; earlier ones are unchanged");
  };
  try {
    const auto prepare = [&] {
      if (!writes()) return;
      log->sync();
      std::filesystem::create_directories(folder->path());
      write_best();
    };
    if (sharded) {
      world.together("writing the checkpoint", prepare);
      save_sharded_checkpoint(world, path, parts(state, true));
    } else {
      prepare();
      save_checkpoint(path, parts(state, true));
    }
  } catch (const CollectiveError&) {
    give_up("a rank failed");  // it has printed its own message
  } catch (const std::exception& error) {
    if (sharded) throw;  // only this rank failed
    give_up(error.what());
  }
  const double seconds = watch.seconds();
  checkpoint_seconds = std::max(checkpoint_seconds, seconds);
  interval.checkpoint += seconds;
  since_checkpoint.restart();
  return written;
}

void Trainer::Impl::save_step_file() {
  if (save(folder->step_file(state.step)) && writes()) folder->prune(config.checkpoint.keep);
}

Outcome Trainer::Impl::interrupt() {
  const std::filesystem::path path = folder->step_file(state.step);
  require(save(path), "stopping after step ", state.step, ": its checkpoint could not be written");
  if (writes()) folder->prune(config.checkpoint.keep);
  comm.barrier("stop");  // no rank exits before the checkpoint is complete
  const std::string by = stopped_by.empty() ? "" : " by " + stopped_by;
  log::info(
      "stopped", by, " after step ", state.step, ": ", path.string(),
      config.run.resume == "auto" ? "; the same command continues from there" : "; --resume auto continues from there");
  log->finish(join("stopped", by, " after step ", state.step));
  return Outcome::interrupted;
}

Outcome Trainer::Impl::finish() {
  if (interval.samples > 0) log_interval();  // the run ends within an epoch
  state.finished = true;
  if (state.stop_reason.empty()) state.stop_reason = join("all ", state.step, " steps are done");
  require(save(folder->final_file()), "ending after step ", state.step, ": the final checkpoint could not be written");
  if (writes()) folder->prune(config.checkpoint.keep);
  report_final(take_best_weights());
  return Outcome::finished;
}

/// Replaces the weights in memory by those of best.h5, so that the final evaluation is of the weights that users take.
/// Returns which weights they are.
std::string Trainer::Impl::take_best_weights() {
  std::string whose = "final weights";
  world.together("reading the best weights", [&] {
    if (!writes() || state.best_epoch < 0 || !std::filesystem::exists(folder->best_file())) return;
    CheckpointReader(folder->best_file()).load_average_or_weights(model.params());
    whose = join("best weights, of epoch ", state.best_epoch);
  });
  whose = comm.broadcast_text(whose, 0, "whose weights");
  if (whose == "final weights") return whose;
  share(model.params().values(), "best weights");
  ema.reset();  // the weights are the average already
  return whose;
}

void Trainer::Impl::share(const Tensor& tensor, const char* what) {
  const HostView host(tensor, HostView::Access::write);
  comm.broadcast(std::span(static_cast<std::byte*>(host->raw()), host->size_bytes()), 0, what);
}

void Trainer::Impl::resume(const std::filesystem::path& checkpoint) {
  std::vector<std::byte> packed;
  const std::vector<NamedOptimizer> optimizers = program->optimizers();
  const std::vector<NamedTensor> vectors = program->vectors();
  world.together("reading the checkpoint", [&] {
    if (!writes()) return;
    const CheckpointReader reader(checkpoint);
    require_data(reader.model_kind() == model.kind(), "checkpoint ", checkpoint, ": its model is ", reader.model_kind(),
                 ", this configuration's is ", model.kind());
    reader.load_weights(model.params());
    for (const NamedOptimizer& o : optimizers) reader.load_optimizer(o);
    reader.load_vectors(vectors);
    if (ema) reader.load_ema(*ema);
    const std::string data = hex64(model.data_hash());
    require_data(reader.data_hash() == data, "checkpoint ", checkpoint, ": it was trained on other data (hash ",
                 reader.data_hash(), ") than ", config.data.path, " (hash ", data, ")");
    const TrainState stored = reader.state();
    require_data(
        stored.position >= 0 && stored.position <= program->epoch_length() && stored.step >= 0 && stored.epoch >= 0,
        "checkpoint ", checkpoint, ": position ", stored.position, " in an epoch of ", program->epoch_length(),
        " at step ", stored.step);
    packed = pack(stored);
  });
  share(model.params().values(), "weights");
  std::vector<std::int64_t> numbers;
  for (const NamedOptimizer& o : optimizers) {
    for (const NamedTensor& slot : o.optimizer->state()) share(slot.value, "optimizer state");
    numbers.push_back(o.optimizer->steps());
  }
  for (const NamedTensor& vector : vectors) share(vector.value, "program state");
  if (ema) share(ema->flat(), "averaged weights");
  numbers.push_back(static_cast<std::int64_t>(packed.size()));
  comm.broadcast(std::as_writable_bytes(std::span<std::int64_t>(numbers)), 0, "checkpoint");
  packed.resize(static_cast<std::size_t>(numbers.back()));
  comm.broadcast(packed, 0, "training state");
  for (std::size_t i = 0; i < optimizers.size(); ++i) optimizers[i].optimizer->set_steps(numbers[i]);
  state = unpack(packed);
  program->resumed();
  // The next start must find this line of checkpoints in the run directory, also if the file lies elsewhere.
  checkpoint_due = config.resumes_file();
  schedule.set_state(state.schedule);
  seconds_before = state.seconds;
  if (state.finished && state.step < last_step()) {  // the configuration now asks for more steps
    state.finished = false;
    state.stop_reason = stop_reason(config.stop, state);
  }
}

}  // namespace lockstep
