#include <filesystem>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/run_log.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;

std::string default_run_dir(const Args& args) {
  const std::vector<std::string> files = Options::config_files(args);
  return (fs::path("runs") / (files.empty() ? fs::path("run") : fs::path(files.back()).stem())).string();
}

/// The checkpoint to continue from, or nothing. On rank 0; says which were refused and why.
fs::path choose_checkpoint(const Options& options, const RunConfig& config) {
  const CheckpointFolder folder(config.run.dir);
  fs::path chosen = config.run.resume;
  if (config.run.resume == "never") return {};
  if (config.run.resume == "auto") {
    remove_stale_temporaries(folder.path());
    std::vector<CheckpointFolder::Rejected> rejected;
    chosen = folder.newest_whole(rejected);
    for (const auto& [path, reason] : rejected) log::warning("checkpoint ", path.string(), " is refused: ", reason);
    require_data(!chosen.empty() || rejected.empty(), "run directory '", config.run.dir,
                 "': none of its checkpoints is whole; --resume never begins again (and keeps what is there)");
    if (chosen.empty()) return {};
  }
  const CheckpointReader reader(chosen);
  std::string list;
  for (const std::string& key : options.differences(reader.config(), chosen.string())) list += "\n  " + key;
  require_usage(list.empty(), "checkpoint ", chosen.string(), " is of another configuration:", list);
  log::info("continuing from ", chosen.string(), ", step ", reader.state().step);
  return chosen;
}

/// The run as one rank of it, from the loading of the data to the last evaluation.
int train(World& world, const RunConfig& config, const Options& options) {
  const auto placement = make_node_placement(world);
  const auto model = load_model(world, config, *placement);
  Trainer trainer(world, config, *model);
  fs::path checkpoint;
  world.together("choosing the checkpoint", [&] {
    if (world.rank() == 0) checkpoint = choose_checkpoint(options, config);
  });
  checkpoint = world.communicator().broadcast_text(checkpoint.string(), 0, "checkpoint's name");
  if (!checkpoint.empty()) trainer.resume(checkpoint);

  RunFacts facts{.title = std::string(model->kind()) + ", " + fs::path(config.data.path).filename().string(),
                 .steps = trainer.last_step(),
                 .steps_per_epoch = trainer.steps_per_epoch(),
                 .resumed_at = trainer.state().step,
                 .config = config.text,
                 .facts = trainer.facts()};
  RunLog log;
  world.together("opening the log", [&] {
    if (world.rank() != 0) return;
    log = RunLog(config.run.dir, facts);
    for (const auto& [what, value] : facts.facts) log::info(what, ": ", value);
  });
  return trainer.run(log, config.run.dir) == Outcome::interrupted ? kExitInterrupted : 0;
}

}  // namespace

int run_train(World& world, const Args& args) {
  RunConfig config;
  Options options(
      "lockstep train", "Train a model on all ranks together.",
      "Each step computes the gradient of one global batch, shared among all ranks and threads, and all ranks "
      "take the same optimizer step. A run continues by itself from the newest whole checkpoint of its run "
      "directory. SIGTERM and SIGUSR1 stop it after the step under way, with a checkpoint and exit code 85.");
  options.example("mpirun -n 2 lockstep train --config configs/emulator-icecolumn.ini", "train on two ranks");
  options.example("lockstep train --config run.ini --set optim.lr=0.002 --run-dir runs/lr2",
                  "another learning rate, another directory");
  if (!parse(world, options, args, config)) return 0;
  const StopSignals signals;  // one that comes while data load stops the run after its first step
  if (config.run.dir.empty()) config.run.dir = default_run_dir(args);
  config.text = options.ini();
  log::set_all_ranks(config.run.all_ranks_log);
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  require_same_program(world);
  world.together("opening the run directory", [&] {
    check(config);
    if (world.rank() != 0) return;
    open_run_directory(config.run.dir, options, config.run.resume == "never" ? RunStart::fresh : RunStart::resume);
  });
  return on_each_gpu(world, config, [&](World& rank) { return train(rank, config, options); });
}

}  // namespace lockstep::apps
