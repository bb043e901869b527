#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/model_config.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/sharded_step.hpp"

namespace lockstep {

class Options;

/// Everything that decides a run, one struct per section of the INI file. `add_options` is the table of names,
/// defaults, ranges and help.
struct RunConfig {
  struct Run {
    std::string dir;     ///< run directory; "" names it after the configuration
    std::string resume;  ///< auto | never | a checkpoint file
    std::uint64_t seed = 0;
    bool reproducible = false;
    std::int64_t threads = 0;  ///< per rank; 0: OMP_NUM_THREADS, or the cores of the node shared among its ranks
    std::string device, backend, precision, graphs;
    double max_hours = 0;  ///< 0: no limit
    bool all_ranks_log = false;
  } run;
  struct Data {
    std::string path;
  } data;
  std::string model_kind;              ///< model.kind, one of model_kinds()
  std::unique_ptr<ModelConfig> model;  ///< the options of that kind
  struct Batch {
    std::int64_t size = 0;
    std::string scope;            ///< global | rank: what `size` counts
    std::int64_t accumulate = 1;  ///< micro-batches of this size per optimizer step
  } batch;
  struct Optim : OptimizerOptions {
    double lr = 0;
    std::string scale_lr;  ///< none | linear | sqrt, in the number of ranks
    double clip_norm = 0;  ///< 0: off
    double ema = 0;        ///< decay; 0: off
  } optim;
  ScheduleOptions schedule;  ///< total 0: the run's epochs (or steps)
  struct Train {
    std::int64_t epochs = 0;
    std::int64_t steps = 0;      ///< 0: no limit beside the epochs
    std::int64_t log_every = 0;  ///< steps; 0: once per epoch
  } train;
  struct Eval {
    std::int64_t every = 1;  ///< epochs
    std::string best;        ///< figure that chooses the best weights; "": loss, or the model's first
  } eval;
  struct Jacobian {
    std::int64_t every = 0;  ///< epochs; 0: never
  } jacobian;
  struct Stop {
    std::string rule = "valid";  ///< valid (all that follows) | train_loss (upstream's rule) | none
    std::int64_t patience = 0;   ///< evaluations; 0: off
    double min_delta = 0;        ///< by which a better one must be better
    std::int64_t min_epochs = 0, window = 5;
    double tolerance = 0;  ///< loss plateau; 0: off
    std::int64_t jacobian_min_epochs = 0, jacobian_window = 5;
    double jacobian_tolerance = 0;
  } stop;
  struct Checkpoint {
    std::int64_t every = 10;  ///< epochs; 0: only best and final
    std::int64_t every_steps = 0;
    double every_minutes = 0;
    std::int64_t keep = 3;
    std::string layout;  ///< single | sharded
  } checkpoint;
  struct Dist {
    double timeout = 600;          ///< seconds
    std::int64_t check_every = 0;  ///< steps
    bool check_collectives = false;
    std::int64_t bucket_bytes = 0;
    std::string compress;  ///< none | bf16
    std::int64_t shards = 16;
    std::string parallel;              ///< ddp | dp
    std::int64_t replicas = 1;         ///< dp on the processor: devices that the one process stands for
    std::vector<std::string> gpu_ids;  ///< GPUs by number; none: all that the process sees
  } dist;

  std::string text;  ///< resolved INI text, as it is saved beside the run and in checkpoints

  /// How a step is carried out by so many threads per rank.
  StepOptions step_options(int threads) const;
  /// Whether one process drives several GPUs, each by a thread that is a rank: dp on GPUs.
  bool threads_are_ranks() const { return dist.parallel == "dp" && run.device == "cuda"; }
  /// What batch.scope = rank and optim.scale_lr count: ranks, or the replicas of the one process.
  /// errors  Error (usage): dp on the processor with several processes
  std::int64_t devices(int ranks) const;
  std::int64_t global_batch(int ranks) const { return (batch.scope == "rank" ? devices(ranks) : 1) * batch.size; }
  double scaled_lr(int ranks) const;
  /// Of the weights that are trained, of losses and gradients.
  DType dtype() const { return run.precision == "fp64" ? DType::f64 : DType::f32; }
  /// Of weights and activations as operations store them.
  DType storage() const {
    return run.precision == "bf16" ? DType::bf16 : run.precision == "fp16" ? DType::f16 : dtype();
  }
};

/// The table: every key of every section with its default, range and help, bound to the fields of `config`: those that
/// all runs share and those of the model. errors  Error (usage): an unknown kind
void add_options(Options& options, RunConfig& config, const std::string& model_kind);
/// The kind that a command line, or an INI file that it names, asks for: "" when neither does.
std::string asked_model_kind(const std::vector<std::string>& args,
                             const std::function<std::string(const std::string& path)>& read);
/// What no single key can check, such as a shard count that is no power of two. errors  Error (usage)
void check(const RunConfig& config);

}  // namespace lockstep
