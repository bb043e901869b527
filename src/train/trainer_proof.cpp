#include <utility>

#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/ops/isa.hpp"
#include "lockstep/train/agreement.hpp"
#include "train/trainer_impl.hpp"

namespace lockstep {

ProofRun Trainer::Impl::proof_run() const {
  const RunConfig& c = config;
  const bool scales = c.batch.per_rank > 0 || c.optim.scale_lr != "none";
  const bool spans = c.schedule.name == "cosine" && c.schedule.total == 0;
  ProofRun now{.step = state.step,
               .kind = model.kind(),
               .data_hash = hex64(model.data_hash()),
               .build = proof_build(),
               .isa = ops::record_name(ops::active_isa()),
               .device = c.run.device,
               .precision = c.precision(),
               .seed = c.run.seed,
               .devices = scales ? c.scale(world.size()) : 0,
               .total = spans ? schedule.total() : 0,
               .every = c.run.proof_every,
               .parameters = {}};
  for (const Param& p : model.params().all()) now.parameters.push_back(p.name);
  return now;
}

void Trainer::Impl::open_proof(const std::filesystem::path& dir) {
  proves = config.run.reproducible && config.run.proof_every > 0 && !dir.empty();
  if (!proves) return;
  proof_from = state.step;
  settle(UpTo::optimizers);
  world.together("opening the proof chain", [&] {
    if (!writes()) return;
    proof.emplace(dir, proof_run());
    if (world.size() > 1) copy.take(parts(state, true));  // for go_back() before the first checkpoint
  });
}

ProofLink Trainer::Impl::link() {
  settle(UpTo::optimizers);
  return proof_link(parts(state, true));
}

bool Trainer::Impl::agree_on(const ProofLink& mine) {
  if (world.size() == 1) return true;
  const std::pair<const char*, std::uint64_t> kinds[] = {
      {"weights", hash64(mine.weights.data(), mine.weights.size() * sizeof mine.weights[0])},
      {"optimizer states", mine.optimizer},
      {"carried states", mine.program},
      {"averaged weights", mine.average},
      {"losses", mine.loss ^ mine.batch}};
  std::uint64_t all = 0;
  for (const auto& [what, hash] : kinds) all = hash64(&hash, sizeof hash, all);
  if (same_on_all_ranks(world, all)) return true;
  for (const auto& [what, hash] : kinds) {
    if (same_on_all_ranks(world, hash)) continue;
    go_back(odd_ranks(world, what, hash));
    break;
  }
  return false;
}

bool Trainer::Impl::ranks_agree() {
  if (!proves || world.size() == 1 || agreed_at == state.step) return true;
  const Stopwatch watch;
  const bool agree = agree_on(link());
  if (agree) agreed_at = state.step;
  interval.proof += watch.seconds();
  return agree;
}

bool Trainer::Impl::prove(bool ends) {
  const bool due = proves && state.step % config.run.proof_every == 0;
  if (!proves || (!due && !ends)) return true;
  const Stopwatch watch;
  ProofLink mine = link();
  if (!agree_on(mine)) return false;
  agreed_at = state.step;
  mine.last = !due;
  const ProofLink* known = proof ? proof->chain().link(state.step) : nullptr;
  if (state.step == proof_from) {
    world.together("comparing the state with the proof chain", [&] {
      if (known == nullptr) return;
      const std::string difference = proof_difference(*known, mine, proof_run().parameters);
      require_data(difference.empty(), "proof chain '", proof->chain().source(), "': the state of step ", state.step,
                   " that this run continues from differs from its link in: ", difference,
                   "; the checkpoint or the chain is of another run, or the memory of this host is faulty");
    });
  }
  if (proof && known == nullptr) proof->append(mine);
  interval.proof += watch.seconds();
  return true;
}

void Trainer::Impl::go_back(const std::string& difference) {
  const std::int64_t failed = state.step;
  await_writers();
  world.together("repeating steps", [&] {
    require(failed > repeated_to, "step ", failed, ": ", difference, ", also after the steps since ", proof_from,
            " were repeated; exclude this host and resume from the last checkpoint");
  });
  repeated_to = failed;
  std::filesystem::path checkpoint;
  world.together("choosing the checkpoint to go back to", [&] {
    if (!writes()) return;
    log::warning("step ", failed, ": ", difference);
    std::vector<CheckpointFolder::Rejected> rejected;
    checkpoint = folder->newest_whole(rejected);
    if (!checkpoint.empty()) return;
    require(copy.whole_step() >= 0, "step ", failed, ": ", difference,
            "; there is no whole checkpoint to repeat the steps from");
    create_directories_on_disk(folder->path());
    checkpoint = folder->step_file(copy.whole_step());
    copy.write(checkpoint);
  });
  checkpoint = comm.broadcast_text(checkpoint.string(), 0, "checkpoint's name");
  const auto change = world.change();  // collectives follow: until they are done, nothing can be saved
  resume(checkpoint);
  best_pending = false;
  check_best();
  checkpoint_due = false;
  if (rescue_copy_due >= 0) rescue_copy_due = state.step;
  proof_from = state.step;
  agreed_at = -1;
  session.restart();
  interval = first_interval();
  logged = {};
  world.together("going back", [&] {
    if (!writes()) return;
    proof->cut(state.step);
    log->continue_after(state.step);
    log::info("the steps from ", state.step, " to ", failed, " are computed again, from ", checkpoint.string());
  });
}

Replayed Trainer::Impl::replay(const ProofChain& chain, std::int64_t until) {
  RunLog none;
  const StopSignals stop;
  log = &none;
  signals = &stop;
  replays = true;
  Replayed result{.from = state.step, .until = state.step, .agreed = -1, .links = 0, .difference = {}};
  for (;;) {
    if (!end_step()) return result;  // a signal ended the evaluation, whose result is part of this step's state
    result.until = state.step;
    if (const ProofLink* known = chain.link(state.step)) {
      ProofLink mine = link();
      result.difference =
          comm.broadcast_text(proof_difference(*known, mine, chain.run(state.step).parameters), 0, "difference");
      if (!result.difference.empty()) return result;
      ++result.links;
      result.agreed = state.step;
    }
    if (state.step >= until) return result;
    world.at("replay", state.step);
    step();
    if (std::exchange(flags_seen, 0) & kStop) until = state.step;
  }
}

}  // namespace lockstep
