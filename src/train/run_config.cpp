#include "lockstep/train/run_config.hpp"

#include <bit>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"

namespace lockstep {

namespace {

void add_run(Options& o, RunConfig::Run& run) {
  o.section("run", "Run", "Where the run lives, how it is carried out.");
  o.add("run.dir", &run.dir, "",
        "run directory: log, metrics, checkpoints, report; empty: runs/<name of the configuration file>")
      .value_name("DIR")
      .may_change();
  o.alias("run.dir", "output.model_dir");
  o.add("run.resume", &run.resume, "auto",
        "auto continues from the newest whole checkpoint of the run directory; never begins again and moves what is "
        "there to previous-N; or a checkpoint file")
      .value_name("auto|never|FILE")
      .may_change();
  o.alias("run.resume", "resume");
  o.add("run.seed", &run.seed, 0, "key of everything random: initial weights, order of samples");
  o.alias("run.seed", "seed");
  o.add("run.reproducible", &run.reproducible, false,
        "add gradients in one fixed tree: bitwise the same weights for any number of ranks and threads");
  o.alias("run.reproducible", "reproducible");
  o.add("run.threads", &run.threads, 0, non_negative,
        "threads per rank; 0: OMP_NUM_THREADS, or this node's cores divided among its ranks")
      .may_change();
  o.alias("run.threads", "threads");
  o.alias("run.threads", "num_threads");
  o.choice("run.device", &run.device, "cpu", {"cpu", "cuda"}, "where the mathematics runs").may_change();
  o.alias("run.device", "device");
  o.choice("run.backend", &run.backend, "auto", {"auto", "mpi", "nccl"},
           "what carries gradients between ranks: NCCL from GPU to GPU, or MPI through host memory; auto takes NCCL "
           "where every rank has a GPU of its own")
      .may_change();
  o.alias("run.backend", "backend");
  o.choice(
       "run.graphs", &run.graphs, "auto", {"auto", "on", "off"},
       "CUDA graphs: a step is put into one, samples and batches with it, while the GPU works on the step before it; "
       "auto where that can be done, on or not at all")
      .may_change();
  o.alias("run.graphs", "graphs");
  o.choice("run.precision", &run.precision, "fp32", {"fp32", "fp64", "tf32", "bf16", "fp16"},
           "type of weights and activations. On GPUs only: tf32 rounds the operands of fp32 products to 10 bits after "
           "the point; bf16 and fp16 store weights and activations in 16 bits while fp32 weights are trained and sums "
           "are fp32, fp16 with the loss scaled so that small gradients survive")
      .may_change();
  o.alias("run.precision", "precision");
  o.add("run.max_hours", &run.max_hours, 0, non_negative,
        "stop with a checkpoint and exit code 85 so that the run ends within this time; 0: no limit")
      .may_change();
  o.alias("run.max_hours", "max-hours");
  o.add("run.all_ranks_log", &run.all_ranks_log, false,
        "every rank prints what rank 0 prints, each line with its rank and host")
      .may_change();
}

void add_data_and_model(Options& o, RunConfig& c) {
  o.section("data", "Data");
  o.add("data.path", &c.data.path, "", "file that lockstep-prep made").value_name("FILE").may_change();
  o.alias("data.path", "data");
  o.alias("data.path", "data.data_path");

  o.section("model", "Model");
  o.choice("model.kind", &c.model_kind, c.model_kind, model_kinds(), "which network; decides which keys there are");
  o.alias("model.kind", "model");
}

void add_batch_and_optimizer(Options& o, RunConfig& c) {
  o.section("batch", "Batch");
  o.add("batch.size", &c.batch.size, 1000, at_least(1), "samples per micro-batch; batch.scope says of whom");
  o.alias("batch.size", "training.batch_size");
  o.choice("batch.scope", &c.batch.scope, "global", {"global", "rank"},
           "batch.size counts the samples of all ranks together, or of each rank");
  o.add("batch.accumulate", &c.batch.accumulate, 1, at_least(1), "micro-batches per optimizer step");

  o.section("optim", "Optimizer");
  o.choice("optim.name", &c.optim.name, "adam", {"adam", "adamw", "adam_atan2", "sgd"},
           "update rule; adam and sgd add weight decay to the gradient, adamw and adam_atan2 decay apart from it");
  o.alias("optim.name", "training.optimizer");
  o.add("optim.lr", &c.optim.lr, 1e-4, positive, "learning rate at one rank; see optim.scale_lr");
  o.alias("optim.lr", "lr");
  o.alias("optim.lr", "training.learning_rate");
  o.choice("optim.scale_lr", &c.optim.scale_lr, "none", {"none", "linear", "sqrt"},
           "multiply the learning rate by the number of ranks (dp: of replicas), or its root");
  o.alias("optim.scale_lr", "lr-scaling");
  o.add("optim.weight_decay", &c.optim.weight_decay, 1e-4, non_negative, "weight decay, of biases too");
  o.alias("optim.weight_decay", "training.weight_decay");
  o.add("optim.momentum", &c.optim.momentum, 0.9, below_one, "sgd: momentum");
  o.alias("optim.momentum", "training.momentum");
  o.add("optim.beta1", &c.optim.beta1, 0.9, below_one, "adam, adamw: decay of the mean gradient");
  o.add("optim.beta2", &c.optim.beta2, 0.999, below_one, "adam, adamw: decay of the mean square");
  o.add("optim.eps", &c.optim.eps, 1e-8, positive, "adam, adamw: added to the root");
  o.choice("optim.atan2_bias", &c.optim.atan2_bias, "package", {"package", "paper"},
           "adam_atan2: the first moment is corrected outside the arc tangent (package) or inside (paper)");
  o.add("optim.lazy", &c.optim.lazy, false,
        "rows of embedding tables without gradient keep their weights and moments: cheaper for large tables, not the "
        "same "
        "training");
  o.alias("optim.lazy", "lazy-adam");
  o.add("optim.clip_norm", &c.optim.clip_norm, 0, non_negative,
        "largest L2 norm of the gradient over all parameters; 0: off");
  o.alias("optim.clip_norm", "clip-norm");
  o.add("optim.ema", &c.optim.ema, 0, below_one,
        "decay of an exponential average of the weights, used by evaluation and export; 0: off");

  o.section("schedule", "Learning rate schedule");
  o.choice("schedule.name", &c.schedule.name, "constant", {"constant", "step", "cosine", "exponential", "plateau"},
           "how the learning rate changes");
  o.choice("schedule.unit", &c.schedule.unit, "epoch", {"epoch", "step"}, "what the schedule counts");
  o.add("schedule.warmup", &c.schedule.warmup, 0, non_negative, "units of linear warm-up");
  o.add("schedule.total", &c.schedule.total, 0, non_negative, "cosine: units until its floor; 0: the whole run");
  o.add("schedule.origin", &c.schedule.origin, 0, between(0, 1), "index of the first unit after the warm-up");
  o.add("schedule.late", &c.schedule.late, false,
        "each unit runs at the rate of the one before, the first at the full rate");
  o.add("schedule.step_size", &c.schedule.step_size, 30, at_least(1), "step, exponential: units per factor gamma");
  o.add("schedule.gamma", &c.schedule.gamma, 0.1, positive, "step, exponential: that factor");
  o.add("schedule.min_lr", &c.schedule.min_lr, 0, non_negative, "cosine: floor");
  o.add("schedule.min_ratio", &c.schedule.min_ratio, 0, fraction, "cosine: floor as a part of optim.lr");
  o.add("schedule.factor", &c.schedule.factor, 0.5, between(0, 1), "plateau: factor");
  o.add("schedule.patience", &c.schedule.patience, 10, non_negative,
        "plateau: evaluations without improvement that are forgiven");
  o.add("schedule.threshold", &c.schedule.threshold, 1e-4, fraction, "plateau: relative improvement that counts");
}

void add_training(Options& o, RunConfig& c) {
  o.section("train", "Training");
  o.add("train.epochs", &c.train.epochs, 100000, at_least(1), "passes over the training samples").may_change();
  o.alias("train.epochs", "epochs");
  o.alias("train.epochs", "training.epochs");
  o.add("train.steps", &c.train.steps, 0, non_negative, "stop after this many steps; 0: when the epochs are done")
      .may_change();
  o.alias("train.steps", "steps");
  o.add("train.log_every", &c.train.log_every, 0, non_negative, "steps per log record; 0: one per epoch").may_change();

  o.section("eval", "Evaluation");
  o.add("eval.every", &c.eval.every, 1, at_least(1),
        "epochs between two evaluations of the validation samples; the last epoch always has one");
  o.add("eval.best", &c.eval.best, "",
        "figure that decides which weights are best, such as rmse; empty: loss, or the model's first figure");

  o.section("stop", "Stopping rules", "Each is decided from figures that are the same on all ranks.");
  o.choice("stop.rule", &c.stop.rule, "valid", {"valid", "train_loss", "none"},
           "valid: the rules below, of validations; train_loss: every 10 epochs the training loss is compared with the "
           "one two looks before, three in a row that fell by less than 0.5 % end the run; none: to the last epoch");
  o.alias("stop.rule", "early-stop");
  o.add("stop.patience", &c.stop.patience, 10, non_negative,
        "stop after this many evaluations without a better one; 0: off");
  o.alias("stop.patience", "training.early_stopping_patience");
  o.add("stop.min_delta", &c.stop.min_delta, 0, non_negative, "stop.patience: how much better a better one must be");
  o.add("stop.tolerance", &c.stop.tolerance, 1e-6, non_negative,
        "stop when the last stop.window validation losses differ by less than this part of the largest; 0: off");
  o.alias("stop.tolerance", "training.convergence_tolerance");
  o.add("stop.window", &c.stop.window, 5, at_least(2), "evaluations that stop.tolerance looks at");
  o.alias("stop.window", "training.convergence_window");
  o.add("stop.min_epochs", &c.stop.min_epochs, 10, non_negative, "epochs before stop.tolerance may stop");
  o.alias("stop.min_epochs", "training.min_epochs");
}

/// For models that look at their own sensitivities.
void add_diagnostics(Options& o, RunConfig& c) {
  o.section("jacobian", "Sensitivity metrics");
  o.add("jacobian.every", &c.jacobian.every, 5, non_negative,
        "epochs between two looks at the network's sensitivities; 0: never");
  o.alias("jacobian.every", "training.jacobian_freq");
  o.add("stop.jacobian_tolerance", &c.stop.jacobian_tolerance, 1e-4, non_negative,
        "the same for the mean absolute sensitivity; 0: off");
  o.alias("stop.jacobian_tolerance", "training.jacobian_convergence_tolerance");
  o.add("stop.jacobian_window", &c.stop.jacobian_window, 5, at_least(2),
        "looks that stop.jacobian_tolerance considers");
  o.alias("stop.jacobian_window", "training.jacobian_convergence_window");
  o.add("stop.jacobian_min_epochs", &c.stop.jacobian_min_epochs, 20, non_negative,
        "epochs before stop.jacobian_tolerance may stop");
  o.alias("stop.jacobian_min_epochs", "training.min_epochs_jacobian");
}

void add_checkpoint_and_dist(Options& o, RunConfig& c) {
  o.section("checkpoint", "Checkpoints");
  o.add("checkpoint.every", &c.checkpoint.every, 10, non_negative, "epochs between two checkpoints; 0: none by epochs")
      .may_change();
  o.alias("checkpoint.every", "training.save_interval");
  o.add("checkpoint.every_steps", &c.checkpoint.every_steps, 0, non_negative,
        "steps between two checkpoints; 0: none by steps")
      .may_change();
  o.add("checkpoint.every_minutes", &c.checkpoint.every_minutes, 0, non_negative,
        "minutes between two checkpoints; 0: none by time")
      .may_change();
  o.add("checkpoint.keep", &c.checkpoint.keep, 3, at_least(1),
        "how many step-N.h5 stay; best.h5 and final.h5 are kept besides")
      .may_change();
  o.choice(
       "checkpoint.layout", &c.checkpoint.layout, "single", {"single", "sharded"},
       "rank 0 writes one file, or every rank its part beside a manifest (for large models); either continues either")
      .may_change();

  o.section("dist", "Ranks working together");
  o.add("dist.timeout", &c.dist.timeout, 600, non_negative, "longest wait for another rank; 0: for ever")
      .unit("s")
      .may_change();
  o.alias("dist.timeout", "timeout");
  o.add("dist.check_every", &c.dist.check_every, 1000, non_negative,
        "steps between two comparisons of all ranks' weights; 0: never")
      .may_change();
  o.add("dist.check_collectives", &c.dist.check_collectives, false, "agree on each collective before data move (slow)")
      .may_change();
  o.add("dist.bucket_bytes", &c.dist.bucket_bytes, std::int64_t{4} << 20, at_least(1),
        "gradients travel in pieces of at least this size, while the backward pass goes on")
      .unit("bytes")
      .may_change();
  o.choice("dist.compress", &c.dist.compress, "none", {"none", "bf16"},
           "how gradients travel between ranks: with all their digits, or as bf16 (half the bytes), added in f32")
      .may_change();
  o.add("dist.shards", &c.dist.shards, 16, at_least(1),
        "pieces that a batch is cut into over all ranks and threads (fewer when they would be too small); with "
        "run.reproducible exactly so many, and a power of two");
  o.choice("dist.parallel", &c.dist.parallel, "ddp", {"ddp", "dp"},
           "ddp: one process per device, started by mpirun; dp: one process drives several, the GPUs of dist.gpu_ids "
           "or, on "
           "the processor, dist.replicas, with the same result")
      .may_change();
  o.alias("dist.parallel", "parallel");
  o.alias("dist.parallel", "multi-gpu");
  o.add("dist.replicas", &c.dist.replicas, 1, at_least(1),
        "dp on the processor: devices, each with a batch of its own; the process's threads share their work")
      .may_change();
  o.alias("dist.replicas", "replicas");
  o.add("dist.gpu_ids", &c.dist.gpu_ids, {},
        "GPUs to use, by number; none: all that a process sees. The ranks of a host take them in turn; with dp one "
        "process uses them all")
      .value_name("N,N")
      .may_change();
  o.alias("dist.gpu_ids", "gpu-ids");
}

}  // namespace

void add_options(Options& options, RunConfig& config, const std::string& model_kind) {
  config.model = make_model_config(model_kind);
  config.model_kind = model_kind;
  add_run(options, config.run);
  add_data_and_model(options, config);
  add_batch_and_optimizer(options, config);
  add_training(options, config);
  if (config.model->has_diagnostics()) add_diagnostics(options, config);
  add_checkpoint_and_dist(options, config);
  config.model->add_options(options);
}

std::string asked_model_kind(const std::vector<std::string>& args,
                             const std::function<std::string(const std::string& path)>& read) {
  for (const std::string& arg : args)
    if (arg == "--no_time" || arg == "--no-time") return "sasrec";  // as public code says it
  return Options::peek(args, {"model.kind", "model"}, read);
}

void check(const RunConfig& c) {
  require_usage(!c.data.path.empty(), "option data.path is empty: name the file that lockstep-prep made");
  c.model->check();
  require_usage(c.run.device == "cuda" || c.run.precision == "fp32" || c.run.precision == "fp64",
                "option run.precision = ", c.run.precision,
                ": only with run.device = cuda; processors compute in fp32 "
                "or fp64");
  require_usage(!c.run.reproducible || std::has_single_bit(static_cast<std::uint64_t>(c.dist.shards)),
                "option dist.shards = ", c.dist.shards, ": must be a power of two with run.reproducible");
  require_usage(!c.threads_are_ranks() || c.dist.replicas == 1, "option dist.replicas = ", c.dist.replicas,
                ": on GPUs there is a replica for each of them; name them by dist.gpu_ids");
  require_usage(c.dist.parallel == "dp" || c.dist.replicas == 1, "option dist.replicas = ", c.dist.replicas,
                ": only with dist.parallel = dp; with ddp start as many processes");
}

std::int64_t RunConfig::devices(int ranks) const {
  if (threads_are_ranks()) return ranks;
  require_usage(dist.parallel != "dp" || ranks == 1, "option dist.parallel = dp: one process drives all replicas, but ",
                ranks, " were started; start one, or choose ddp");
  return dist.parallel == "dp" ? dist.replicas : ranks;
}

StepOptions RunConfig::step_options(int threads) const {
  return {.threads = threads,
          .shards = dist.shards,
          .reproducible = run.reproducible,
          .bucket_bytes = dist.bucket_bytes,
          .compression = dist.compress == "bf16" ? Compression::bf16 : Compression::none,
          .backend = run.backend == "nccl"  ? Backend::nccl
                     : run.backend == "mpi" ? Backend::mpi
                                            : Backend::automatic,
          .graphs = run.graphs == "on"    ? Graphs::on
                    : run.graphs == "off" ? Graphs::off
                                          : Graphs::automatic,
          .timeout_s = dist.timeout};
}

double RunConfig::scaled_lr(int ranks) const {
  const auto n = static_cast<double>(devices(ranks));
  return optim.lr * (optim.scale_lr == "linear" ? n : optim.scale_lr == "sqrt" ? std::sqrt(n) : 1.0);
}

}  // namespace lockstep
