#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/commands.hpp"
#include "apps/lockstep/supervise.hpp"
#include "apps/lockstep/training_run.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/report/run_records.hpp"
#include "lockstep/train/ensemble.hpp"
#include "lockstep/train/rank_memory.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

namespace {

namespace fs = std::filesystem;
constexpr const char* kStartFile = ".start";

/// The value of dist.shards in a checkpoint.
std::int64_t shards_of(const CheckpointReader& reader) {
  for (const IniEntry& entry : read_ini(reader.config(), reader.path().string()))
    if (entry.key == "dist.shards") return std::stoll(entry.value);
  return 0;
}

/// The checkpoint to continue from, or "". Logs the checkpoints that it refuses, with the reason. Sets
/// config.first_devices, first_isa and dist.shards. Call it on rank 0.
fs::path choose_checkpoint(const Options& options, RunConfig& config) {
  const CheckpointFolder folder(config.run.dir);
  fs::path chosen = config.run.resume;
  if (config.run.resume == "never") return {};
  if (config.run.resume == "auto") {
    std::vector<CheckpointFolder::Rejected> rejected;
    chosen = folder.newest_whole(rejected);
    for (const auto& [path, reason] : rejected) log::warning("checkpoint ", path.string(), " is refused: ", reason);
    require_data(
        !chosen.empty() || rejected.empty(), "run directory '", config.run.dir,
        "': none of its checkpoints is whole; use --resume never to start again (the existing files are kept)");
    if (chosen.empty()) return {};
    const std::vector<fs::path> all = folder.candidates();
    for (auto older = std::ranges::find(all, chosen); older != all.end(); ++older)
      if (older->filename().string().starts_with("rescue-") && *older != chosen)
        log::info(older->string(), " is not newer than ", chosen.filename().string(), " and is not used");
  }
  const CheckpointReader reader(chosen);
  std::string list;
  for (const std::string& key : options.differences(reader.config(), chosen.string())) list += "\n  " + key;
  require_usage(list.empty(), "checkpoint ", chosen.string(), " is of another configuration:", list);
  config.dist.shards = shards_of(reader);
  config.first_devices = reader.devices();
  config.first_isa = reader.isa();
  const std::string then = trained_precision(reader), now = config.precision();
  log::info("continuing from ", chosen.string(), ", step ", reader.state().step,
            then == now ? "" : join("; the steps up to here were computed in ", then, ", the next ones in ", now));
  return chosen;
}

/// Sets dist.shards of a new reproducible run, so that its checkpoints name the number. Call it on rank 0.
void choose_shards(RunConfig& config, int ranks) {
  if (!config.run.reproducible || config.dist.shards > 0) return;
  try {
    const std::int64_t batch = config.global_batch(ranks);
    config.dist.shards = config.shards(batch, needs_of(config, ranks, batch).least_tree_shard);
  } catch (const Error&) {
    // Loading the data refuses these options with a message.
  }
}

/// Whether this is a later start of a requeued Slurm job that has written checkpoints since its first start. Slurm
/// repeats the command of such a job, and `--resume FILE` or `--resume never` in it would lose the work of the earlier
/// starts. Call it on rank 0.
bool continues_its_own_job(const fs::path& run_dir, const std::string& start) {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  const fs::path file = run_dir / kStartFile;
  if (restarts == nullptr || std::string_view(restarts) == "0" || !fs::exists(file) || read_text_file(file) != start)
    return false;
  const auto first_start = fs::last_write_time(file);
  std::vector<fs::path> runs = nested_runs(run_dir);
  runs.push_back(run_dir);
  for (const fs::path& run : runs) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(CheckpointFolder(run).path(), failed))
      if (entry.path().extension() == ".h5" && entry.last_write_time() > first_start) return true;
  }
  return false;
}

/// Whether the run has results, but no checkpoint: it begins again and would replace them. Call it on rank 0.
bool begins_again(const RunConfig& config) {
  const CheckpointFolder folder(config.run.dir);
  return config.run.resume == "auto" && nested_runs(config.run.dir).empty() && folder.candidates().empty() &&
         (fs::exists(folder.best_file()) || read_run_records(config.run.dir).step > 0);
}

/// Broadcasts what rank 0 has read about the run's first start, which determines batch, shards and learning rate.
/// Collective.
void share_first_start(World& world, RunConfig& config) {
  Communicator& comm = world.communicator();
  comm.broadcast(std::as_writable_bytes(std::span(&config.first_devices, 1)), 0, "number of devices");
  comm.broadcast(std::as_writable_bytes(std::span(&config.dist.shards, 1)), 0, "number of shards");
  config.first_isa = comm.broadcast_text(config.first_isa, 0, "instruction set");
}

/// Opens the run directory. Returns the checkpoint to continue from, or "". Collective.
fs::path open_run(World& world, const Options& options, RunConfig& config, TakeOver take_over) {
  world.together("opening the run directory", [&] {
    if (world.rank() != 0) return;
    open_directory(config, options, take_over);
    if (!begins_again(config)) return;
    if (!config.is_trial())
      log::warning("run directory '", config.run.dir,
                   "' has results, but no checkpoint to continue from: the run begins again");
    open_run_directory(config.run.dir, options, RunStart::fresh, take_over);
  });
  require_shared_directory(world, config);
  // Chosen before the model is made, because the checkpoint determines batch and learning rate.
  fs::path checkpoint;
  world.together("choosing the checkpoint", [&] {
    if (world.rank() != 0) return;
    checkpoint = choose_checkpoint(options, config);
    if (checkpoint.empty()) choose_shards(config, world.size());
  });
  checkpoint = world.communicator().broadcast_text(checkpoint.string(), 0, "checkpoint's name");
  share_first_start(world, config);
  config.text = options.ini();
  return checkpoint;
}

/// Seconds until the Slurm job ends, or until the time limit of the run; 0: neither is known.
double seconds_to_limit(double max_hours) {
  const char* end = std::getenv("SLURM_JOB_END_TIME");
  const double job = end == nullptr ? 0 : std::atof(end) - static_cast<double>(std::time(nullptr)),
               own = max_hours > 0 ? 3600 * max_hours - process_seconds() : 0;
  return job > 0 && own > 0 ? std::min(job, own) : std::max({job, own, 0.0});
}

/// The run on one rank, from loading the data to the last evaluation.
///
/// checkpoint  to continue from, or ""
/// profiled    the steps whose timeline is written
/// data        holds the data set, for several trainings; or null
int train(World& world, const RunConfig& config, const fs::path& checkpoint, StepRange profiled,
          std::shared_ptr<DataMemory> data) {
  require_memory(world, config);
  if (!data) data = make_node_data_memory(world, config.row_options());
  const auto model = load_task(world, config, *data, nullptr, weights_of(checkpoint));
  RunLog log;  // outlives the trainer
  Trainer trainer(world, config, *model);
  if (!checkpoint.empty()) {
    trainer.resume(checkpoint);
  } else if (!config.run.init.empty()) {
    trainer.start_from(config.initial.empty() ? config.run.init : config.initial);
  }

  trainer.profile(profiled);

  RunFacts facts{.title = std::string(model->kind()) + ", " + fs::path(config.data.path).filename().string(),
                 .steps = trainer.last_step(),
                 .steps_per_epoch = trainer.steps_per_epoch(),
                 .resumed_at = trainer.state().step,
                 .decides = trainer.decides(),
                 .limit_s = seconds_to_limit(config.run.max_hours),
                 .config = config.text,
                 .facts = {{"run", join(version_line(), "; seed ", config.run.seed, "; directory ", config.run.dir)}},
                 .searched = config.searched};
  if (!config.given.empty()) facts.facts.emplace_back("configuration", config.given);
  for (auto& fact : trainer.facts()) facts.facts.push_back(std::move(fact));
  if (const char* nodes = std::getenv("LOCKSTEP_LEFT_OUT"); nodes != nullptr && *nodes != 0)
    facts.facts.emplace_back(kNodesLeftOut, nodes);
  const auto first = config.task->pretraining();
  const fs::path first_run = fs::path(config.run.dir) / kPretrainingFolder;
  if (first) facts.facts.emplace_back("initial weights", join("trained as ", first->kind, " in ", first_run.string()));
  world.together("opening the log", [&] {
    if (world.rank() != 0) return;
    if (config.resumes_file()) {
      const fs::path place = CheckpointFolder(config.run.dir).set_aside_after(facts.resumed_at);
      if (!place.empty())
        log::info("moved the checkpoints after step ", facts.resumed_at, " to ", place.string(),
                  "; this run replaces them");
    }
    log = RunLog(config.run.dir, facts);
    for (const auto& [what, value] : facts.facts) log::info(what, ": ", value);
    if (first) log.made(first_run / "report.html", join("the run that trained the initial weights, as ", first->kind));
  });
  return trainer.run(log, config.run.dir) == Outcome::interrupted ? kExitInterrupted : kExitDone;
}

/// Runs or continues the pretraining, which is a separate run. Then sets config.pretrained, first_devices and
/// first_isa. Returns its exit code. Collective.
int pretrain(World& world, NestedRun& first, RunConfig& config, TakeOver take_over) {
  log::info("pretraining: model.kind = ", first.config.model_kind, " in ", first.config.run.dir);
  const fs::path checkpoint = open_run(world, first.options, first.config, take_over);
  const int code =
      on_each_gpu(world, first.config, [&](World& rank) { return train(rank, first.config, checkpoint, {}, nullptr); });
  if (code != kExitDone) return code;
  world.together("choosing the initial weights", [&] {
    if (world.rank() != 0) return;
    const CheckpointFolder folder(first.config.run.dir);
    const fs::path file = fs::exists(folder.best_file()) ? folder.best_file() : folder.final_file();
    const CheckpointReader reader(file);
    config.first_devices = reader.devices();
    config.first_isa = reader.isa();
    config.pretrained = fs::absolute(file).string();
  });
  config.pretrained = world.communicator().broadcast_text(config.pretrained, 0, "initial weights");
  share_first_start(world, config);
  return kExitDone;
}

/// Warns if the network of the checkpoint `config.run.init` has the same arrays, but computes otherwise. Call it on rank
/// 0.
void compare_first_network(const Options& options, const RunConfig& config) {
  const CheckpointReader reader(config.run.init, true);
  const TaskKind& kind = task_kind(config.model_kind);
  if (kind.exchange == nullptr || reader.model_kind() != config.model_kind) return;
  std::string list;
  for (const std::string& line : options.differences(reader.config(), config.run.init))
    for (const AskedOption& asked : kind.exchange().asked)
      if (line.starts_with(join(asked.key, ": "))) list += "\n  " + line;
  if (!list.empty())
    log::warning("run.init = ", config.run.init,
                 ": its weights were trained in a network that computes otherwise:", list);
}

/// Makes the checkpoint of a run's first weights, if another program has written them. Collective.
void import_weights(World& world, RunConfig& config, std::optional<ForeignWeights> weights) {
  if (!weights) return;
  config.initial = (fs::path(config.run.dir) / "initial.h5").string();
  world.together("importing the first weights", [&] {
    if (world.rank() == 0)
      log::info("first weights, from ", config.run.init, ": ", weights->write(config.initial, config, config.text));
  });
}

/// Trains the members of an ensemble, each a run of its own. Returns the exit code. Collective.
int train_members(World& world, const Options& options, RunConfig& config, TakeOver take_over,
                  std::optional<ForeignWeights> first_weights, std::int64_t ranks_per_member) {
  const std::int64_t members = member_count(options);
  world.together("opening the run directory", [&] {
    require_usage(!config.resumes_file(), "option run.resume = ", config.run.resume, ": an ensemble has ", members,
                  " runs, each with checkpoints of its own; use auto or never");
    if (world.rank() != 0) return;
    const std::int64_t before = member_count_in(config.run.dir);  // an ensemble may grow and shrink
    open_directory(
        config,
        before > 1 ? make_training(options, config, {{kMembersKey, std::to_string(before)}}, "")->options : options,
        take_over);
    write_text_atomically(fs::path(config.run.dir) / "config.ini", config.text);
  });
  std::vector<Training> plan;
  for (std::int64_t number = 1; number <= members; ++number) {
    const std::string seed = std::to_string(config.run.seed + static_cast<std::uint64_t>(number - 1));
    plan.push_back({.folder = member_folder(number),
                    .title = join("member ", number, " of ", members, ": seed ", seed, ", in ",
                                  (fs::path(config.run.dir) / member_folder(number)).string()),
                    .changes = {{kMembersKey, "1"}, {"run.seed", seed}}});
  }
  Campaign campaign;
  campaign.ranks_per_run = ranks_per_member;
  campaign.plan = [&](const TrainingEnds&) { return plan; };
  campaign.result = [](const fs::path&, const Training&) { return std::string(); };
  campaign.first_weights = std::move(first_weights);
  TrainingEnds ends;
  if (const int code = train_campaign(world, options, config, campaign, ends); code != kExitDone) return code;
  log::info("the ensemble is complete: lockstep eval --checkpoint ", config.run.dir);
  return kExitDone;
}

/// Names options of the command line that have no effect with the value of another one.
void note_without_effect(const Options& options) {
  struct Need {
    std::vector<const char*> keys;
    const char* other;
    std::vector<std::string> values;
    bool with;  ///< they act with these values of the other one; else without them
  };
  static const std::vector<Need> kNeeds = {
      {{"optim.momentum"}, "optim.name", {"sgd"}, true},
      {{"optim.beta1", "optim.beta2"}, "optim.name", {"sgd"}, false},
      {{"optim.eps"}, "optim.name", {"adam", "adamw"}, true},
      {{"optim.atan2_bias"}, "optim.name", {"adam_atan2"}, true},
      {{"optim.lazy"}, "model.kind", {"sasrec", "tisasrec"}, true},
      {{"schedule.min_lr", "schedule.min_ratio"}, "schedule.name", {"cosine"}, true},
      {{"schedule.step_size", "schedule.gamma"}, "schedule.name", {"step", "exponential"}, true},
      {{"schedule.factor", "schedule.patience", "schedule.threshold"}, "schedule.name", {"plateau"}, true},
      {{"stop.patience", "stop.min_delta", "stop.tolerance", "stop.window", "stop.min_epochs",
        "stop.jacobian_tolerance", "stop.jacobian_window", "stop.jacobian_min_epochs"},
       "stop.rule",
       {"val"},
       true},
      {{"model.conv_channels", "model.conv_kernel_size"}, "model.use_conv1d", {"true"}, true},
      {{"loss.smooth_order"}, "loss.smooth_weight", {"0"}, false},
      {{"loss.jacobian_directions"}, "loss.jacobian", {"0"}, false},
      {{"loss.constraint_weight"}, "loss.constraint", {""}, false},
      {{"optim.lazy"}, "optim.name", {"adam_atan2"}, false},
      {{"optim.lazy"}, "loss.name", {"softmax"}, false},
      {{"loss.negatives"}, "loss.name", {"gbce", "sampled_softmax"}, true},
      {{"loss.calibration"}, "loss.name", {"gbce"}, true},
      {{"loss.popularity"}, "loss.name", {"sampled_softmax"}, true},
      {{"loss.l2_tables"}, "loss.l2_emb", {"0"}, false},
      {{"model.mhc_expansion_rate", "model.mhc_init_gate", "model.mhc_sinkhorn_iter"}, "model.mhc", {"none"}, false},
      {{"model.norm", "model.ffn_residual"}, "model.mhc", {"streams"}, false},
      {{"model.time_span", "model.time_dropout"}, "model.kind", {"sasrec"}, false},
      {{"model.pretrain_epochs", "model.pretrain_lr", "model.pretrain_l2"}, "model.pretrain", {"bprmf"}, true},
      {{"model.pretrain_scale"}, "model.pretrain", {"", "none"}, false},
      {{"loss.kg_l2", "batch.kg_size"}, "model.kge", {"true"}, true},
      {{"dist.row_threshold"}, "dist.mode", {"replicate"}, false}};
  for (const Need& need : kNeeds)
    for (const char* key : need.keys) {
      if (!options.knows(key) || !options.knows(need.other) || options.origin(key) != "command line") continue;
      const std::string other = options.value(need.other);
      if ((std::ranges::find(need.values, other) != need.values.end()) != need.with)
        log::info("option ", key, " = ", options.value(key), " has no effect with ", need.other, " = ",
                  other.empty() ? "''" : other);
    }
}

}  // namespace

void require_shared_directory(World& world, const RunConfig& config) {
  if (world.size() == 1) return;
  const fs::path lock = fs::path(config.run.dir) / ".lock";
  Communicator& comm = world.communicator();
  const std::string owner = comm.broadcast_text(world.rank() == 0 ? read_text_file(lock) : "", 0, "owner of the lock");
  const auto sees = [&] { return fs::exists(lock) && read_text_file(lock) == owner; };
  bool seen = sees();
  for (int i = 0; i < 50 && !seen; ++i) {  // network file systems show new files late
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = sees();
  }
  const std::vector<std::string> blind = comm.all_gather_text(seen ? "" : world.host(), "view of the run directory");
  const auto first = std::find_if(blind.begin(), blind.end(), [](const std::string& host) { return !host.empty(); });
  if (first == blind.end()) return;
  const std::string where = join("run directory '", config.run.dir, "': rank ", first - blind.begin(), " on ", *first,
                                 " does not see the one of rank 0");
  world.together("looking for the run directory", [&] {
    require_usage(config.checkpoint.layout != "sharded", where,
                  ", so it cannot write its part of a checkpoint; choose a directory that all hosts share");
    require_usage(
        world.rank() != 0 || std::getenv("LOCKSTEP_REQUEUE") == nullptr, where,
        ": if the job is requeued on other nodes, it does not find its checkpoints; choose a directory that all "
        "hosts share, or submit the job with --no-requeue");
    if (world.rank() == 0)
      log::warning(where,
                   "; a start with another first host would not find the checkpoints: choose a directory that all "
                   "hosts share");
  });
}

std::optional<ForeignWeights> complete(World& world, RunConfig& config, Options& options, const Args& args) {
  std::optional<ForeignWeights> first_weights;
  world.together("reading the first weights", [&] {
    if (holds_foreign_weights(config.run.init))
      first_weights.emplace(config.run.init, "", config.model_kind).set_options(options);
  });
  const bool timed = config.run.dir == "auto";
  if (timed || config.run.dir.empty()) {
    const std::vector<std::string> files = Options::config_files(args);
    std::string name = !files.empty() ? fs::path(files.back()).stem().string() : timed ? config.model_kind : "run";
    if (timed) {
      world.together("naming the run directory", [&] {
        require_usage(
            std::getenv("LOCKSTEP_REQUEUE") == nullptr,
            "option run.dir = auto: if the job is requeued, it begins again in another directory; name one, or "
            "submit the job with --no-requeue");
      });
      std::string time = world.communicator().broadcast_text(local_time(), 0, "time of the start");
      std::erase_if(time, [](char c) { return c == '-' || c == ':'; });
      std::ranges::replace(time, ' ', '-');
      name += "-" + time;
    }
    config.run.dir = (fs::path("runs") / name).string();
    if (timed) log::info("run directory: ", config.run.dir);
  }
  // Checkpoints hold the configuration: other commands find the files from any folder.
  for (std::string* path : {&config.data.path, &config.run.init})
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  config.text = options.ini();
  config.given = listed(Options::config_files(args));
  for (const std::string& key : options.keys())
    if (options.origin(key) == "command line" && key != "run.dir" && key != "data.path")
      config.given += (config.given.empty() ? "" : ", ") + key + " = " + options.value(key);
  note_without_effect(options);
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  require_same_program(world);
  return first_weights;
}

void open_directory(RunConfig& config, const Options& options, TakeOver take_over) {
  const char* job = std::getenv("SLURM_JOB_ID");
  const bool once = config.run.resume != "auto" && job != nullptr;
  const std::string start = once ? join("job ", job, ", --resume ", config.run.resume, "\n") : "";
  if (once && continues_its_own_job(config.run.dir, start)) {
    log::info("--resume ", config.run.resume, " was for the first start of job ", job,
              ": this start continues the job");
    config.run.resume = "auto";
  }
  open_run_directory(config.run.dir, options, config.run.resume == "never" ? RunStart::fresh : RunStart::resume,
                     take_over);
  if (once && config.run.resume != "auto") write_text_atomically(fs::path(config.run.dir) / kStartFile, start);
}

int training_run(World& world, const Options& options, RunConfig& config, TakeOver take_over,
                 const std::string& profiled_steps, std::optional<ForeignWeights> first_weights,
                 std::shared_ptr<DataMemory> data, std::int64_t ranks_per_member) {
  std::unique_ptr<NestedRun> first;
  StepRange profiled;
  world.together("checking the configuration", [&] {
    check(config);
    profiled = read_step_range("profile", profiled_steps);
    first = make_pretraining(options, config);
    require_usage(member_count(options) == 1 || profiled.empty(), "option profile = ", profiled_steps,
                  ": it records one run; an ensemble has ", member_count(options));
  });
  if (member_count(options) > 1)
    return train_members(world, options, config, take_over, std::move(first_weights), ranks_per_member);
  const fs::path checkpoint = open_run(world, options, config, take_over);
  if (first && checkpoint.empty()) {  // a resumed run needs no pretraining
    if (const int code = pretrain(world, *first, config, take_over); code != kExitDone) return code;
  }
  if (checkpoint.empty() && !config.run.init.empty() && !first_weights)
    world.together("comparing the networks", [&] {
      if (world.rank() == 0) compare_first_network(options, config);
    });
  if (checkpoint.empty()) import_weights(world, config, std::exchange(first_weights, {}));
  return on_each_gpu(world, config, [&](World& rank) { return train(rank, config, checkpoint, profiled, data); });
}

int run_train(World& world, const Args& args) {
  RunConfig config;
  Options options(
      "lockstep train", "Train a model on all ranks together.",
      "In each step all ranks and threads together compute the gradient of one global batch, and all ranks take the "
      "same optimizer step. A run continues automatically from the newest whole checkpoint of its run directory. "
      "SIGTERM, SIGUSR1 and SIGINT stop it after the current step, with a checkpoint and exit code 85.");
  options.example("mpirun -n 2 lockstep train --config configs/emulator-icecolumn.ini", "train on two ranks");
  options.example("lockstep train --config run.ini --set optim.lr=0.002 --run-dir runs/lr2",
                  "another learning rate, another directory");
  bool take_over = false;
  options.add("take-over", &take_over, false,
              "take over the run directory of a hanging run; if that run continues after all, it ends before its next "
              "record or checkpoint");
  std::int64_t restarts = 0;
  std::string launcher;
  options.add("restarts", &restarts, 0, at_least(0),
              "after a lost rank or another fault with a new checkpoint, start the ranks again, at most this often");
  options.add("launcher=COMMAND", &launcher, "",
              "with restarts: what starts the ranks, such as \"mpirun -n 4\"; start this command itself without it");
  std::string steps;
  options.add("profile=A..B", &steps, "",
              "record what every thread of every rank does in these steps, counted from 1, and write the timeline to "
              "profile-A-B.json in the run directory; see docs/profiling.md");
  std::int64_t ranks_per_member = 0;
  add_ranks_per_run(options, &ranks_per_member, 0);
  if (!parse(world, options, args, config)) return 0;
  const bool timed = config.run.dir == "auto";
  std::optional<ForeignWeights> first_weights = complete(world, config, options, args);
  if (restarts > 0) {
    world.together("checking the options", [&] {
      require_usage(
          world.size() == 1, "option restarts = ", restarts, ": ", world.size(),
          " ranks cannot start themselves again; start one process, and the ranks with --launcher \"mpirun -n ",
          world.size(), "\"");
      require_usage(!timed, "option run.dir = auto: a restart would begin again in another directory; name one");
    });
    return supervise(args, restarts, launcher, config.run.dir);
  }
  require_usage(launcher.empty(), "option launcher = ", launcher, ": it needs --restarts N");
  return training_run(world, options, config, take_over ? TakeOver::yes : TakeOver::no, steps, std::move(first_weights),
                      nullptr, ranks_per_member);
}

}  // namespace lockstep::apps
