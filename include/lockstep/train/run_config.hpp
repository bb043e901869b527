#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/options.hpp"
#include "lockstep/data/data_layout.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// The configuration of a run, one struct per section of the INI file. add_options() has names, defaults, ranges and
/// help.
struct RunConfig {
  struct Run {
    std::string dir;     ///< run directory; "": named after the configuration file
    std::string resume;  ///< auto | never | a checkpoint file
    std::string init;    ///< checkpoint with the first weights; "": random
    std::uint64_t seed = 0;
    bool reproducible = false;
    std::int64_t proof_every = 0;  ///< steps; 0: no chain of hashes
    std::int64_t threads = 0;      ///< per rank; 0: OMP_NUM_THREADS, else the node's cores divided by its ranks
    std::string device, backend, graphs;
    std::string precision;  ///< auto, or what RunConfig::precision() returns
    bool tune_products = false;
    std::string isa = "auto";  ///< auto | a name of ops::Isa
    double max_hours = 0;      ///< 0: no limit
    std::string log_level;     ///< warning | info | detail
    bool all_ranks_log = false;
  } run;
  struct Data {
    std::string path;
    std::string stage;      ///< directory on each node for a copy of `path` while it is loaded; "": none
    std::string layout;     ///< auto | replicate | divided
    double memory_gib = 0;  ///< data.memory: for rows, per node; 0: half of the node's memory
  } data;
  std::string model_kind;            ///< model.kind, a kind of the registry
  std::unique_ptr<TaskConfig> task;  ///< the options of that kind
  struct Batch {
    std::int64_t size = 0;        ///< samples of a micro-batch over all ranks
    std::int64_t per_rank = 0;    ///< samples of a micro-batch on each rank, instead of `size`; 0: size holds
    std::int64_t accumulate = 1;  ///< micro-batches per optimizer step
  } batch;
  struct Optim : OptimizerOptions {
    double lr = 0;
    std::string scale_lr;  ///< none | linear | sqrt: growth of lr with the number of ranks
    double clip_norm = 0;  ///< 0: off
    double ema = 0;        ///< decay; 0: off
  } optim;
  ScheduleOptions schedule;  ///< total 0: the run's epochs (or steps)
  struct Train {
    std::int64_t epochs = 0;
    std::int64_t steps = 0;      ///< 0: no limit other than the epochs
    std::int64_t log_every = 0;  ///< steps; 0: once per epoch
  } train;
  struct Eval {
    std::int64_t every = 1;        ///< epochs
    std::int64_t every_steps = 0;  ///< steps; 0: off
    std::int64_t max_samples = 0;  ///< samples of an evaluation during training; 0: all
    std::string best;              ///< metric that selects the best weights; "": the first metric of the task
    std::string final;             ///< all | none: whether the run ends with an evaluation of the best weights
  } eval;
  struct Jacobian {
    std::int64_t every = 0;  ///< epochs; 0: never
  } jacobian;
  struct Stop {
    std::string rule = "val";   ///< val (the fields below) | train_loss | none
    std::int64_t patience = 0;  ///< evaluations; 0: off
    double min_delta = 0;       ///< smallest improvement that counts
    std::int64_t min_epochs = 0, window = 5;
    double tolerance = 0;  ///< loss plateau; 0: off
    std::int64_t jacobian_min_epochs = 0, jacobian_window = 5;
    double jacobian_tolerance = 0;
  } stop;
  struct Checkpoint {
    std::int64_t every = -1;  ///< epochs; 0: off; -1: by cost, unless one of the next two is > 0
    std::int64_t every_steps = 0;
    double every_minutes = 0;
    std::int64_t partner_steps = -1;  ///< steps; 0: off; -1: by cost
    std::int64_t keep = 3;
    std::int64_t best_keep = 1;
    std::string layout;  ///< single | sharded
    bool copy = true;    ///< whether the training goes on while a copy is written
    double retry_minutes = 10;
  } checkpoint;
  struct Dist {
    double timeout = 600;          ///< seconds
    std::int64_t check_every = 0;  ///< steps
    bool check_collectives = false;
    std::int64_t bucket_bytes = 0, gpu_bucket_bytes = 0, gpu_row_bytes = 0;
    std::string compress;              ///< none | bf16
    std::int64_t shards = 0;           ///< 0: shards() decides
    std::string parallel;              ///< ddp | dp
    std::int64_t replicas = 1;         ///< dp on the CPU: devices that the process simulates
    std::vector<std::string> gpu_ids;  ///< GPU numbers; empty: all visible GPUs
  } dist;

  std::string text;   ///< resolved INI text, as saved in the run directory and in checkpoints
  std::string given;  ///< configuration files, and the keys of the command line
  /// devices() of the run's first start: a resumed run keeps that batch and learning rate; 0: this is the first start.
  std::int64_t first_devices = 0;
  std::string initial;     ///< checkpoint made of run.init, if another program has written that; "": none
  std::string pretrained;  ///< checkpoint with the best weights of the task's pretraining; "": none
  std::vector<std::pair<std::string, std::string>> searched;  ///< of a trial of a search: the keys that it changes
  /// Epochs after which this start stops, as if interrupted; 0: none.
  std::int64_t pause_after = 0;
  /// A trial ends with its best weights alone, and without a final evaluation.
  bool is_trial() const { return !searched.empty(); }
  std::string first_isa;  ///< instruction set of the checkpoint that a resumed run continues; "": none

  /// Whether run.resume names a checkpoint.
  bool resumes_file() const { return run.resume != "auto" && run.resume != "never"; }
  RowOptions row_options() const;
  /// dist.shards. For 0 it is 16 or, with run.reproducible on CPUs, the largest power of two from 16 to 256 whose shards
  /// have at least `least` of the batch's samples: a number that depends on neither ranks nor threads.
  ///
  /// samples  of a micro-batch
  /// least    ShardModel::least_tree_shard(); 0: the program has another use for the shards, so they are 16
  std::int64_t shards(std::int64_t samples = 0, std::int64_t least = 0) const;
  /// threads  per rank
  /// shards   shards()
  StepOptions step_options(int threads, std::int64_t shards) const;
  /// Whether one process drives several GPUs (dp on GPUs): each GPU has a thread that is a rank.
  bool threads_are_ranks() const { return dist.parallel == "dp" && run.device == "cuda"; }
  /// Ranks, or dp replicas on the CPU. errors  Error (usage): dp on the CPU with several processes
  std::int64_t devices(int ranks) const;
  /// The factor of batch.per_rank and optim.scale_lr. errors  as devices()
  std::int64_t scale(int ranks) const { return first_devices > 0 ? first_devices : devices(ranks); }
  /// The samples on all devices, for a size that counts as the batch does: of each rank with batch.per_rank.
  std::int64_t over_devices(std::int64_t size, int ranks) const {
    return (batch.per_rank > 0 ? scale(ranks) : 1) * size;
  }
  std::int64_t global_batch(int ranks) const {
    return over_devices(batch.per_rank > 0 ? batch.per_rank : batch.size, ranks);
  }
  /// "64 over 2 ranks (32 each)": samples on all devices.
  std::string batch_text(std::int64_t samples, int ranks) const;
  /// Whether devices() differs from that of the first start, and the batch or the learning rate depends on it.
  bool keeps_scale_of_first_start(int ranks) const {
    return scale(ranks) != devices(ranks) && (batch.per_rank > 0 || optim.scale_lr != "none");
  }
  double scaled_lr(int ranks) const;
  /// The precision that run.precision stands for on run.device.
  std::string precision() const;
  /// Type of the master weights, losses and gradients.
  DType dtype() const { return precision() == "fp64" ? DType::f64 : DType::f32; }
  /// Type in which operations store weights and activations.
  DType storage() const { return precision() == "bf16" ? DType::bf16 : precision() == "fp16" ? DType::f16 : dtype(); }
};

/// Adds the keys of all sections, bound to the fields of `config`: the common keys, and those of the task, which
/// `config` then owns.
///
/// kind   the value of model.kind for `task`
/// kinds  all values of model.kind
void add_options(Options& options, RunConfig& config, const std::string& kind, std::unique_ptr<TaskConfig> task,
                 const std::vector<std::string>& kinds);
/// The model.kind that a command line or one of its INI files sets, or "".
std::string asked_model_kind(const std::vector<std::string>& args,
                             const std::function<std::string(const std::string& path)>& read);
/// Checks combinations of keys. errors  Error (usage)
void check(const RunConfig& config);

}  // namespace lockstep
