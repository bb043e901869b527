#include "lockstep/train/run_config.hpp"

#include <bit>
#include <cmath>
#include <filesystem>
#include <set>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

void add_run(Options& o, RunConfig::Run& run) {
  o.section("run", "Run", "Run directory, device and limits.");
  o.add(
      "run.dir,output.model_dir=DIR", &run.dir, "",
      "run directory for logs, metrics, checkpoints and report; empty: runs/<name of the configuration file>, so that "
      "the same command continues its run; auto: a new one, runs/<that name>-<date>-<time>");
  o.add(
      "run.resume,resume=auto|never|FILE", &run.resume, "auto",
      "auto: continue from the newest whole checkpoint of the run directory; never: start again and move the existing "
      "files to previous-N; FILE: continue from this checkpoint");
  o.add(
      "run.init,init-from=FILE", &run.init, "",
      "initial weights of a new run: a checkpoint, whose data and options may differ, but its arrays must match, or a "
      "file that lockstep import reads (.pth, .safetensors, .npz), with the same options; a resumed run ignores it");
  o.add("run.seed,seed", &run.seed, 0, "seed of all random numbers, such as initial weights and the order of samples");
  o.add("run.reproducible,reproducible", &run.reproducible, false,
        "sum gradients in one fixed tree: the same weights, bit for bit, for any number of ranks and threads");
  o.add("run.proof_every", &run.proof_every, 1000, non_negative,
        "run.reproducible: steps between two hashes of the run's state, which `lockstep replay` and `lockstep "
        "checkpoint verify` compare with; 0: off");
  o.add("run.threads,threads,num_threads", &run.threads, 0, between(0, 1024),
        "threads per rank; 0: OMP_NUM_THREADS, else the rank's cores divided by the ranks that may use the same ones");
  o.choice("run.device,device", &run.device, "cpu", {"cpu", "cuda"}, "device that computes");
  o.choice("run.backend,backend", &run.backend, "auto", {"auto", "mpi", "nccl"},
           "library that sums gradients over ranks: nccl from GPU to GPU, mpi through host memory; auto: nccl if every "
           "rank has its own GPU")
      .value_alias("gloo", "mpi");
  o.choice("run.graphs,graphs", &run.graphs, "auto", {"auto", "on", "off"},
           "capture training steps in CUDA graphs and repeat these; auto: if the model allows it; on: fail if it does "
           "not");
  o.add("run.tune_products,tune-products", &run.tune_products, false,
        "GPUs: time algorithms of cuBLASLt at the first use of each shape of a matrix product, and keep the fastest. "
        "Results depend on the timings in the last digits; a resumed run takes the algorithms from its checkpoint");
  o.choice("run.isa", &run.isa, "auto", {"auto", "generic", "avx2", "avx512", "asimd"},
           "instruction set of the CPU kernels, the same on all ranks; results differ between sets in the last digits. "
           "auto: that of the checkpoint if the run is resumed and all processors have it, else the widest one that "
           "the processors of all ranks have; without run.reproducible, a new training measures whether a narrower one "
           "is faster");
  o.choice(
      "run.precision,precision", &run.precision, "auto", {"auto", "fp32", "fp64", "tf32", "bf16", "fp16"},
      "type of weights and activations. auto: fp32, but on GPUs bf16 if the model's publication trains in it. GPUs "
      "only: tf32 rounds the operands of fp32 matrix products to 10 mantissa bits; bf16 and fp16 store weights and "
      "activations in 16 bits, but keep fp32 master weights and sums; fp16 also scales the loss");
  o.add(
       "run.max_hours,max-hours", &run.max_hours, 0, non_negative,
       "time limit, from the start of the process: the run writes a checkpoint and exits with code 85 before this time "
       "is over; 0: no limit")
      .unit("h");
  o.choice("run.log_level,log-level", &run.log_level, "info", {"warning", "info", "detail"},
           "what the console shows: warnings and errors; also a table of the training; or each record with all its "
           "values. The files of the run have everything");
  o.add("run.all_ranks_log", &run.all_ranks_log, false,
        "print the log lines of every rank, not only of rank 0, with rank and host");
  o.may_change("run", {"run.seed", "run.reproducible", "run.init"});
}

void add_data_and_model(Options& o, RunConfig& c, const std::vector<std::string>& kinds) {
  o.section("data", "Data");
  o.add("data.path,data.data_path=FILE", &c.data.path, "", "data set: a file prepared by lockstep-prep");
  o.add("data.stage=DIR", &c.data.stage, "",
        "directory on storage of each node, such as $TMPDIR: one rank of each node copies the data set there, and all "
        "ranks of the node read the copy, which is removed after loading. $NAME and ${NAME} are variables of the "
        "node's environment; empty: read data.path itself");
  o.choice(
      "data.layout", &c.data.layout, "auto", {"auto", "replicate", "divided"},
      "where the rows of the data set are: all in the memory of every node (replicate), or divided over the nodes, "
      "which then exchange the rows of each step; rows that exceed data.memory on all nodes together stay in the "
      "file. auto: replicate while they fit into data.memory");
  o.add("data.memory", &c.data.memory_gib, 0, non_negative,
        "GiB of a node for the rows of the data set; 0: half of what the node has");
  o.may_change("data");

  o.section("model", "Model");
  o.choice("model.kind", &c.model_kind, c.model_kind, kinds, "kind of model; decides which other keys exist")
      .decides_others();
}

/// Translates keys of earlier versions. batch.scope: whether batch.size counts the samples of all ranks (global) or of
/// each (rank).
void translate_old_keys(std::vector<IniEntry>& entries, const std::string& source) {
  static std::set<std::string> said;  // a text is read several times
  const auto named = [&](const char* key) { return std::ranges::find(entries, key, &IniEntry::key); };
  for (const auto& [old, key] : {std::pair{"loss.kind", "loss.name"}, {"eval.ks", "eval.k"}}) {
    const auto found = named(old);
    if (found == entries.end()) continue;
    found->key = key;
    if (said.insert(old).second) log::info(source, ":", found->line, ": ", old, " is now called ", key);
  }
  const auto scope = named("batch.scope");
  if (scope == entries.end()) return;
  const IniEntry found = *scope;
  entries.erase(scope);
  if (found.value == "global") return;
  const auto size = named("batch.size");
  require_usage(size != entries.end(), source, ":", found.line, ": batch.scope = ", found.value,
                ": write batch.per_rank = N instead, N samples on each rank");
  size->key = "batch.per_rank";
  if (said.insert(found.key).second)
    log::info(source, ":", found.line, ": batch.scope = rank with batch.size = ", size->value,
              " is read as batch.per_rank = ", size->value, "; write that instead");
}

void add_batch_and_optimizer(Options& o, RunConfig& c) {
  o.section("batch", "Batch");
  o.add("batch.size,global_batch_size,train_batch_size,training.batch_size", &c.batch.size, 1000, at_least(1),
        "samples per micro-batch, over all ranks: the same training on any number of ranks");
  o.add("batch.per_rank,batch_size_per_gpu,per_device_train_batch_size", &c.batch.per_rank, 0, at_least(1),
        "samples per micro-batch on each rank, instead of batch.size: the batch grows with the ranks")
      .instead_of("batch.size");
  o.add("batch.accumulate,gradient_accumulation_steps", &c.batch.accumulate, 1, between(1, 1e6),
        "micro-batches per optimizer step");

  o.section("optim", "Optimizer");
  o.choice("optim.name,training.optimizer,training.optimizer.type", &c.optim.name, "adam",
           {"adam", "adamw", "adam_atan2", "sgd"},
           "update rule; adam and sgd add the weight decay to the gradient, adamw and adam_atan2 decay the weights "
           "directly");
  o.add("optim.lr,lr,learning_rate,training.learning_rate,training.optimizer.learning_rate", &c.optim.lr, 1e-4,
        positive, "learning rate, before optim.scale_lr");
  o.choice("optim.scale_lr,lr-scaling", &c.optim.scale_lr, "none", {"none", "linear", "sqrt"},
           "multiply the learning rate by the number of ranks (dp: of replicas) or by its square root");
  o.add("optim.weight_decay,weight_decay,training.weight_decay,training.optimizer.weight_decay", &c.optim.weight_decay,
        1e-4, non_negative, "weight decay of all parameters, including biases");
  o.add("optim.momentum,training.momentum,training.optimizer.momentum", &c.optim.momentum, 0.9, below_one,
        "sgd: momentum");
  o.add("optim.beta1", &c.optim.beta1, 0.9, below_one, "adam, adamw, adam_atan2: decay rate of the mean gradient");
  o.add("optim.beta2", &c.optim.beta2, 0.999, below_one, "adam, adamw, adam_atan2: decay rate of the mean square");
  o.add("optim.eps", &c.optim.eps, 1e-8, positive, "adam, adamw: added to the square root of the mean square");
  o.choice("optim.atan2_bias", &c.optim.atan2_bias, "package", {"package", "paper"},
           "adam_atan2: correct the bias of the first moment outside the arc tangent (package) or inside it (paper)");
  o.add("optim.lazy,lazy-adam", &c.optim.lazy, false,
        "do not update rows of embedding tables without a gradient, neither weights nor moments: faster with large "
        "tables, but a different training");
  o.add("optim.clip_norm,clip-norm", &c.optim.clip_norm, 0, non_negative,
        "upper limit of the L2 norm of the gradient over all parameters; 0: no clipping");
  o.add("optim.ema", &c.optim.ema, 0, below_one,
        "decay rate of an exponential moving average of the weights, which evaluation and export use; 0: off");

  o.section("schedule", "Learning rate schedule");
  o.choice("schedule.name,training.scheduler.type", &c.schedule.name, "constant",
           {"constant", "step", "cosine", "exponential", "plateau"}, "how the learning rate changes during training");
  o.choice("schedule.unit", &c.schedule.unit, "epoch", {"epoch", "step"}, "unit in which the schedule counts");
  o.add("schedule.warmup", &c.schedule.warmup, 0, non_negative, "length of the linear warm-up, in units");
  o.add("schedule.total", &c.schedule.total, 0, non_negative,
        "cosine: length until the lowest rate, in units; 0: the whole run");
  o.add("schedule.origin", &c.schedule.origin, 0, between(0, 1),
        "index that step, cosine and exponential give to the first unit after the warm-up");
  o.add("schedule.late", &c.schedule.late, false,
        "use the rate of the previous unit in each unit, and the full rate in the first");
  o.add("schedule.step_size,training.scheduler.step_size", &c.schedule.step_size, 30, at_least(1),
        "step, exponential: units per factor of schedule.gamma");
  o.add("schedule.gamma,training.scheduler.gamma", &c.schedule.gamma, 0.1, positive,
        "step, exponential: factor of the learning rate");
  o.add("schedule.min_lr", &c.schedule.min_lr, 0, non_negative, "cosine: lowest learning rate");
  o.add("schedule.min_ratio", &c.schedule.min_ratio, 0, fraction,
        "cosine: lowest learning rate as a fraction of optim.lr");
  o.add("schedule.factor,training.scheduler.factor", &c.schedule.factor, 0.5, between(0, 1),
        "plateau: factor of the learning rate");
  o.add("schedule.patience,training.scheduler.patience", &c.schedule.patience, 10, non_negative,
        "plateau: number of evaluations without improvement before the next one lowers the rate");
  o.add("schedule.threshold", &c.schedule.threshold, 1e-4, fraction,
        "plateau: smallest relative improvement that counts");
}

void add_training(Options& o, RunConfig& c) {
  o.section("train", "Training");
  o.add("train.epochs,epochs,training.epochs", &c.train.epochs, 100000, at_least(1),
        "passes over the training samples");
  o.add("train.steps,steps", &c.train.steps, 0, non_negative, "stop after this many steps; 0: after train.epochs");
  o.add("train.log_every", &c.train.log_every, 0, non_negative, "steps per log record; 0: one record per epoch");
  o.may_change("train");

  o.section("eval", "Evaluation");
  o.add("eval.every", &c.eval.every, 1, at_least(1),
        "epochs between two evaluations of the validation samples; the last step of a run is always evaluated");
  o.add("eval.every_steps", &c.eval.every_steps, 0, non_negative,
        "steps between two additional evaluations, for long epochs; 0: off");
  o.add("eval.max_samples", &c.eval.max_samples, 0, non_negative,
        "number of samples of an evaluation during training, spread over the split; 0: all. The final evaluation uses "
        "all");
  o.add("eval.best,monitor", &c.eval.best, "",
        "metric that selects the best weights, such as rmse; empty: the model's first metric");
  o.choice("eval.final", &c.eval.final, "all", {"all", "none"},
           "all: evaluate all validation and test samples with the best weights at the end of the run; none: do not")
      .may_change();

  o.section("stop", "Stopping rules", "All ranks decide from the same metrics.");
  o.choice("stop.rule,early-stop", &c.stop.rule, "val", {"val", "train_loss", "none"},
           "val: the rules below, after each evaluation; train_loss: compare the training loss every 10 epochs with "
           "that of 20 epochs before, and stop after three checks in a row with less than 0.5 % improvement; none: "
           "train to the last epoch")
      .value_alias("valid", "val")
      .value_alias("validation", "val");
  o.add("stop.patience,stopping_step,training.early_stopping_patience", &c.stop.patience, 10, non_negative,
        "stop after this many evaluations without improvement; 0: off");
  o.add("stop.min_delta", &c.stop.min_delta, 0, non_negative,
        "stop.patience: smallest improvement of eval.best that counts");
  o.add("stop.tolerance,training.convergence_tolerance", &c.stop.tolerance, 1e-6, non_negative,
        "stop when the last stop.window validation losses differ by less than this fraction of the largest; 0: off");
  o.add("stop.window,training.convergence_window", &c.stop.window, 5, at_least(2),
        "number of evaluations for stop.tolerance");
  o.add("stop.min_epochs,training.min_epochs", &c.stop.min_epochs, 10, non_negative,
        "epochs before stop.tolerance can stop the run");
}

/// For models with diagnostics.
void add_diagnostics(Options& o, RunConfig& c) {
  o.section("jacobian", "Sensitivity metrics");
  o.add("jacobian.every,training.jacobian_freq", &c.jacobian.every, 5, non_negative,
        "epochs between two computations of the network's sensitivities; 0: never");
  o.add("stop.jacobian_tolerance,training.jacobian_convergence_tolerance", &c.stop.jacobian_tolerance, 1e-4,
        non_negative,
        "stop when the last stop.jacobian_window mean absolute sensitivities differ by less than this fraction of the "
        "largest; 0: off");
  o.add("stop.jacobian_window,training.jacobian_convergence_window", &c.stop.jacobian_window, 5, at_least(2),
        "number of computations for stop.jacobian_tolerance");
  o.add("stop.jacobian_min_epochs,training.min_epochs_jacobian", &c.stop.jacobian_min_epochs, 20, non_negative,
        "epochs before stop.jacobian_tolerance can stop the run");
}

void add_checkpoint_and_dist(Options& o, RunConfig& c) {
  o.section("checkpoint", "Checkpoints");
  o.add(
      "checkpoint.every,training.save_interval", &c.checkpoint.every, -1, at_least(-1),
      "epochs between two checkpoints; 0: off; -1: one after each epoch, but only as often as they cost less than 1 % "
      "of the time; off with every_steps or every_minutes");
  o.add("checkpoint.every_steps", &c.checkpoint.every_steps, 0, non_negative, "steps between two checkpoints; 0: off");
  o.add("checkpoint.every_minutes", &c.checkpoint.every_minutes, 0, non_negative,
        "time between two checkpoints; 0: off")
      .unit("min");
  o.add("checkpoint.partner_steps", &c.checkpoint.partner_steps, -1, at_least(-1),
        "steps between two copies of the state in the memory of every rank, for the loss of another one, if the state "
        "is divided over the ranks or lies on GPUs; 0: none; -1: as often as they cost less than 1 % of the time");
  o.add("checkpoint.keep", &c.checkpoint.keep, 3, at_least(1),
        "number of step-N.h5 files to keep, in addition to best.h5, final.h5 and those of `lockstep checkpoint keep`");
  o.add("checkpoint.best_keep,save_top_k", &c.checkpoint.best_keep, 1, at_least(1),
        "number of best evaluations whose weights are kept: best.h5, best-2.h5, ...");
  o.choice(
      "checkpoint.layout", &c.checkpoint.layout, "single", {"single", "sharded"},
      "single: rank 0 writes one file; sharded: every rank writes a part beside a manifest, for large models; a run "
      "can continue from either");

  o.add("checkpoint.copy", &c.checkpoint.copy, true,
        "write a copy of weights and optimizer state while the training goes on; false: the training waits, and the "
        "memory of the copies is saved");
  o.add("checkpoint.retry_minutes", &c.checkpoint.retry_minutes, 10, non_negative,
        "time for which the last checkpoint of a start, if it cannot be written (a full disk), is tried again");
  o.may_change("checkpoint");

  o.section("dist", "Distribution over ranks");
  const Check limit{"0, or >= 1", [](long double v) { return v == 0 || v >= 1; }};  // steps and files take a while
  o.add("dist.timeout,timeout", &c.dist.timeout, 600, limit, "longest wait for another rank; 0: no limit").unit("s");
  o.add("dist.check_every", &c.dist.check_every, 1000, non_negative,
        "steps between two comparisons of the weights of all ranks; 0: never");
  o.add("dist.check_collectives", &c.dist.check_collectives, false,
        "check that all ranks call the same collective before data are sent (slow)");
  o.add("dist.bucket_bytes", &c.dist.bucket_bytes, std::int64_t{4} << 20, at_least(1),
        "minimum size of a gradient bucket; buckets are sent during the backward pass")
      .unit("bytes");
  o.add("dist.gpu_bucket_bytes", &c.dist.gpu_bucket_bytes, std::int64_t{32} << 20, at_least(1),
        "the same between GPUs by NCCL, which sends large messages faster")
      .unit("bytes");
  o.add("dist.gpu_row_bytes", &c.dist.gpu_row_bytes, 0, non_negative,
        "between GPUs by NCCL, tables of at least this size are sent without the rows that no rank has touched, if "
        "that saves a quarter; such steps cannot be graphs. 0: 100 MB within a host, 5 MB between hosts")
      .unit("bytes");
  o.choice("dist.compress", &c.dist.compress, "none", {"none", "bf16"},
           "none: send gradients in full precision; bf16: send them as bf16 (half the bytes) and sum them in fp32");
  o.add("dist.shards", &c.dist.shards, 0, non_negative,
        "number of shards of a batch over all ranks and threads (fewer if they would be too small, more with more "
        "threads); with run.reproducible exactly this number, which must be a power of two, and threads without a "
        "shard are idle. 0: 16 or, with run.reproducible on CPUs, as many from 16 to 256 as the batch allows. A "
        "resumed run keeps the value of its first start and refuses another one")
      .settled_by_first_start("0");
  o.choice(
      "dist.parallel,parallel,multi-gpu", &c.dist.parallel, "ddp", {"ddp", "dp"},
      "ddp: one process per device, started by mpirun; dp: one process drives several devices with the same result: "
      "the GPUs of dist.gpu_ids, or dist.replicas on the CPU");
  o.add("dist.replicas,replicas", &c.dist.replicas, 1, between(1, 1e6),
        "dp on the CPU: number of simulated devices, each with its own batch; the threads of the process share their "
        "work");
  o.add("dist.gpu_ids,gpu-ids=N,N", &c.dist.gpu_ids, {},
        "numbers of the GPUs to use; empty: all visible GPUs. ddp: the ranks of a host use them in turn; dp: one "
        "process uses all of them");
  o.may_change("dist", {"dist.shards"});
}

/// Words of the guides of the public programs that are no keys.
void add_words(Options& o, RunConfig& c) {
  const auto note = [&](const char* names, bool takes_value, const std::string& text) {
    o.word(names, takes_value, text, [text](const std::string&) { return Options::Reply{.note = text}; });
  };
  const auto answer = [&](const char* names, bool takes_value, const std::string& text) {
    o.word(names, takes_value, text, [names, text](const std::string& value) {
      require_usage(value == "false", "option --", split(names, ',').front(), ": ", text);
      return Options::Reply{};
    });
  };
  note("num_workers,num-workers", true, "nothing: the threads of a rank draw its samples; --threads sets their number");
  note("multi_gpu", false, "nothing: mpirun or srun starts a rank for each GPU");
  note("master_port,master-port", true, "nothing: ranks find one another through MPI, without a port");
  answer("nnodes,node_rank,node-rank,master_addr,master-addr,nproc_per_node,nproc-per-node", true,
         "srun or mpirun --hostfile starts the ranks of all nodes, see docs/launching.md");
  answer("inference_only", false, "lockstep eval --checkpoint FILE evaluates a trained network");
  o.word("use_amp,use-amp", false, "--precision bf16 on a GPU; nothing on CPUs, which compute in fp32",
         [&c](const std::string& value) {
           if (value == "false") return Options::Reply{};
           if (c.run.device != "cuda") return Options::Reply{.note = "CPUs compute in fp32"};
           return Options::Reply{.note = "--precision bf16", .keys = {{"run.precision", "bf16"}}};
         });
  o.word("fp16", false, "--precision fp16 on a GPU", [&c](const std::string& value) {
    if (value == "false") return Options::Reply{};
    require_usage(c.run.device == "cuda",
                  "option --fp16: CPUs compute in fp32 or fp64; leave it out, or add --device cuda");
    return Options::Reply{.keys = {{"run.precision", "fp16"}}};
  });
  o.word("num_gpus,num-gpus", true, "--parallel dp --gpu-ids 0,1,...: one process on several GPUs",
         [&c](const std::string& value) {
           const std::int64_t n =
               value.empty() || value.size() > 4 || value.find_first_not_of("0123456789") != std::string::npos
                   ? 0
                   : std::stoll(value);
           require_usage(n >= 1 && n <= 1024, "option --num_gpus = ", value, ": must be a number of GPUs");
           require_usage(c.run.device == "cuda", "option --num_gpus = ", n, ": with --device cuda; on CPUs, mpirun -n ",
                         n, " lockstep train ... starts the ranks");
           std::string ids = "0";
           for (std::int64_t i = 1; i < n; ++i) ids += join(",", i);
           return Options::Reply{.keys = {{"dist.parallel", "dp"}, {"dist.gpu_ids", ids}}};
         });
  o.word("dataset", true, "data/[KIND-]VALUE.h5; without --config, configs/KIND-VALUE.ini",
         [&c](const std::string& name) {
           const std::string kind = c.model_kind, own = "data/" + kind + "-" + name + ".h5",
                             plain = "data/" + name + ".h5";
           const std::string path = std::filesystem::exists(own) ? own : plain;
           require_usage(std::filesystem::exists(path), "option --dataset = ", name, ": there is neither ", plain,
                         " nor ", own, "; prepare the data with ", c.task->preparation(), " --output ", plain,
                         ", or name a file with --data.path");
           return Options::Reply{.note = "data.path = " + path, .keys = {{"data.path", path}}};
         });
}

}  // namespace

void add_options(Options& options, RunConfig& config, const std::string& kind, std::unique_ptr<TaskConfig> task,
                 const std::vector<std::string>& kinds) {
  config.task = std::move(task);
  config.model_kind = kind;
  add_run(options, config.run);
  add_data_and_model(options, config, kinds);
  add_batch_and_optimizer(options, config);
  add_training(options, config);
  if (config.task->has_diagnostics()) add_diagnostics(options, config);
  add_checkpoint_and_dist(options, config);
  options.expert({"run.proof_every",
                  "run.backend",
                  "run.graphs",
                  "run.tune_products",
                  "run.isa",
                  "run.all_ranks_log",
                  "data.stage",
                  "data.memory",
                  "checkpoint.partner_steps",
                  "checkpoint.copy",
                  "checkpoint.layout",
                  "checkpoint.retry_minutes",
                  "dist.check_every",
                  "dist.check_collectives",
                  "dist.bucket_bytes",
                  "dist.gpu_bucket_bytes",
                  "dist.gpu_row_bytes",
                  "dist.compress",
                  "dist.shards",
                  "dist.replicas"});
  config.task->add_options(options);
  add_words(options, config);
  options.translate_entries(translate_old_keys);
}

std::string asked_model_kind(const std::vector<std::string>& args,
                             const std::function<std::string(const std::string& path)>& read) {
  for (const std::string& arg : args)
    if (arg == "--no_time" || arg == "--no-time") return "sasrec";  // options of the public TiSASRec code
  return Options::peek(args, {"model.kind"}, read);
}

void check(const RunConfig& c) {
  require_usage(!c.data.path.empty(), "option data.path is empty: set it to a file of lockstep-prep");
  require_usage(!std::filesystem::is_directory(c.data.path), "option data.path = ", c.data.path, ": it is a folder; ",
                c.task->preparation(), " --output FILE.h5 makes a data set of public data");
  c.task->check();
  require_usage(c.run.init.empty() || !c.resumes_file(), "option run.init = ", c.run.init,
                ": run.resume = ", c.run.resume,
                " names another checkpoint; choose one: init starts at step 0 with its weights, resume "
                "continues its run");
  require_usage(c.run.device == "cuda" || c.precision() == "fp32" || c.precision() == "fp64",
                "option run.precision = ", c.run.precision,
                ": only with run.device = cuda; CPUs compute in fp32 or fp64");
  require_usage(!c.run.reproducible || std::has_single_bit(static_cast<std::uint64_t>(c.shards())),
                "option dist.shards = ", c.dist.shards, ": must be a power of two with run.reproducible");
  require_usage(!c.run.reproducible || !c.run.tune_products,
                "option run.tune_products = true: results would depend on timings, but run.reproducible promises the "
                "same bits to every run; choose one");
  require_usage(!c.threads_are_ranks() || c.dist.replicas == 1, "option dist.replicas = ", c.dist.replicas,
                ": each GPU is a replica; select them with dist.gpu_ids");
  require_usage(c.dist.parallel == "dp" || c.dist.replicas == 1, "option dist.replicas = ", c.dist.replicas,
                ": only with dist.parallel = dp; with ddp start this many processes");
}

std::string RunConfig::batch_text(std::int64_t samples, int ranks) const {
  const std::int64_t n = devices(ranks);
  const char* what = dist.parallel == "dp" && !threads_are_ranks() ? "replica" : "rank";
  const std::string each = samples % n == 0
                               ? std::to_string(samples / n)
                               : printed("about %.1f", static_cast<double>(samples) / static_cast<double>(n));
  return join(samples, n == 1 ? " on " : " over ", n, " ", what, n == 1 ? "" : join("s (", each, " each)"));
}

std::int64_t RunConfig::devices(int ranks) const {
  if (threads_are_ranks()) return ranks;
  require_usage(dist.parallel != "dp" || ranks == 1, "option dist.parallel = dp: one process drives all replicas, but ",
                ranks, " were started; start one, or choose ddp");
  return dist.parallel == "dp" ? dist.replicas : ranks;
}

std::string RunConfig::precision() const {
  if (run.precision != "auto") return run.precision;
  return run.device == "cuda" ? task->published_precision() : "fp32";
}

RowOptions RunConfig::row_options() const {
  return {.layout = data.layout == "divided"     ? DataLayout::divided
                    : data.layout == "replicate" ? DataLayout::replicate
                                                 : DataLayout::automatic,
          .memory_bytes = std::ldexp(data.memory_gib, 30)};
}

std::int64_t RunConfig::shards(std::int64_t samples, std::int64_t least) const {
  constexpr std::int64_t kFewest = 16, kMost = 256;
  if (dist.shards > 0) return dist.shards;
  if (!run.reproducible || run.device == "cuda" || least == 0) return kFewest;
  return std::clamp(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(samples / least))), kFewest,
                    kMost);
}

StepOptions RunConfig::step_options(int threads, std::int64_t shards) const {
  return {.threads = threads,
          .shards = shards,
          .reproducible = run.reproducible,
          .bucket_bytes = dist.bucket_bytes,
          .gpu_bucket_bytes = dist.gpu_bucket_bytes,
          .gpu_row_bytes = dist.gpu_row_bytes,
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
  const auto n = static_cast<double>(scale(ranks));
  return optim.lr * (optim.scale_lr == "linear" ? n : optim.scale_lr == "sqrt" ? std::sqrt(n) : 1.0);
}

}  // namespace lockstep
