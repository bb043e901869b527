#include "lockstep/tasks/sequences/sequence_config.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/data/names.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/ops/hyper_connections.hpp"
#include "lockstep/ops/item_softmax.hpp"
#include "lockstep/train/run_config.hpp"
#include "tasks/sequences/item_shard_program.hpp"

namespace lockstep {

void SequenceConfig::add_options(Options& o) {
  const bool timed = arch_.timed;
  const auto integer = [&](const char* key, std::int64_t* target, std::int64_t initial, double most, const char* help) {
    o.add(key, target, initial, between(1, most), help);
    o.alias(key, std::string(key).substr(6));
  };
  integer("model.maxlen", &arch_.slots, 200, kMostWidth, "number of a user's newest events that the model sees");
  integer("model.hidden_units", &arch_.hidden, 100, kMostWidth, "width");
  integer("model.num_blocks", &arch_.blocks, 2, kMostLayers, "blocks of attention and feed-forward network");
  integer("model.num_heads", &arch_.heads, timed ? 1 : 2, kMostWidth, "attention heads; must divide the width");
  o.add("model.dropout,dropout,dropout_rate", &arch_.dropout, 0.2, between(0, 0.999), "dropout probability");
  if (!timed) o.shorthand("no_time", "model.kind", "sasrec");
  integer("model.time_span", &arch_.time_span, 256, kMostWidth,
          "tisasrec: largest scaled time between events; longer gaps count as this");
  o.choice("model.time_dropout,time-dropout", &arch_.time_dropout, ops::TimeBuckets::Drop::element,
           "tisasrec: dropout of time vectors per pair of events, or per bucket of a sequence");
  o.choice("model.norm,norm", &arch_.norm, timed ? SasRecArch::Norm::original : SasRecArch::Norm::pre,
           "place of a block's layer norms, see docs/models/sasrec.md; tisasrec without streams requires original");
  o.choice("model.pad_mask,pad-mask", &arch_.pad_mask, SasRecArch::PadMask::key,
           "key: padding is masked; none (sasrec), query (tisasrec): as in the public code");
  o.add("model.ffn_residual,ffn-residual", &arch_.ffn_residual, true,
        "norm original: add the feed-forward network to its input");
  o.add("model.ln_eps,ln-eps", &arch_.ln_eps, 1e-8, positive, "epsilon added to the variance in layer norms");
  o.choice("model.mhc,mhc", &arch_.mhc, SasRecArch::Mhc::none,
           "manifold-constrained hyper-connections: residual streams, or the public code's collapsed form (always in "
           "double)");
  o.shorthand("no_mhc", "model.mhc", "none");
  o.add("model.mhc_expansion_rate,mhc-expansion-rate", &arch_.streams, 4,
        between(1, ops::HyperConnection::kMostStreams), "residual streams");
  o.add("model.mhc_init_gate,mhc-init-gate", &arch_.mhc_gate, 0.01, "initial factor of the dynamic part of the maps");
  o.add("model.mhc_sinkhorn_iter,mhc-sinkhorn-iter", &arch_.sinkhorn_iterations, 20,
        between(1, ops::HyperConnection::kMostSteps), "Sinkhorn iterations for the mixing matrix");
  o.add("model.recompute,recompute", &arch_.recompute, false,
        "recompute a block's values in the backward pass instead of storing them: less memory, the same bits")
      .may_change();
  o.choice("model.init", &initial_, "xavier_normal", {"xavier_normal", "xavier_uniform"},
           "initial matrices and tables");

  o.section("loss", "Loss");
  o.choice(
      "loss.name,loss.kind", &arch_.loss.kind, ItemLoss::Kind::bce,
      "bce: one negative per position; gbce: several, calibrated; sampled_softmax: cross-entropy among drawn items; "
      "softmax: among all items");
  o.add("loss.negatives", &arch_.loss.negatives, 256, at_least(1),
        "gbce: items drawn for each position; sampled_softmax: for each step");
  o.add("loss.calibration", &arch_.loss.calibration, 0.75, between(0, 1),
        "gbce: strength t of the correction for few negatives; 0: none, 1: full");
  o.add("loss.popularity", &arch_.loss.popularity, 0.75, between(0, 1),
        "sampled_softmax: items are drawn by their number of training events to this power; 0: uniformly");
  o.add("loss.l2_emb,l2-emb", &arch_.l2, timed ? 5e-5 : 0, non_negative,
        "L2 penalty: factor of the sum of squares of the embedding tables");
  o.choice("loss.l2_tables", &l2_tables_, "all", {"all", "items"},
           "tables with the penalty: all except sasrec's positions, or items only");

  o.choice("dist.items", &items_, "replicate", {"replicate", "shard"},
           "softmax: replicate: each rank compares its targets with all items; shard: each rank compares all targets "
           "with its share of the items, and keeps the gradient and the optimizer state of these rows alone")
      .may_change();

  o.choice("eval.candidates", &candidates_, "sampled", {"sampled", "full"},
           "rank the held-out item against drawn items, or all items, outside the user's history");
  o.add("eval.both", &ranking_.both, true,
        "also report the other ranking, under its own name; full scores all items for each user");
  o.add("eval.negatives", &ranking_.candidates, 100, between(1, 1e6),
        "sampled: number of drawn items; they may repeat if the user lacks ten times as many");
  o.choice("eval.repeats", &ranking_.repeats, Repeats::drop,
           "held-out items that the user had before. drop: these users are not evaluated; keep: they are, and known "
           "items are candidates, also in the lists of lockstep predict; refuse: an error");
  o.add("eval.k,topk", &ranking_.at, {10}, between(1, 1e6),
        "K of NDCG@K, HR@K and MRR@K; the first NDCG selects the best weights");
  o.add("eval.users", &ranking_.users, 0, non_negative, "number of users to evaluate, drawn once; 0: all");

  o.set_defaults({"batch.size = 128", "optim.lr = 1e-3", "optim.beta2 = 0.98", "optim.weight_decay = 0",
                  "schedule.name = exponential", "schedule.unit = step", "schedule.warmup = 200",
                  "schedule.step_size = 1000", "schedule.gamma = 0.98", "train.epochs = 300", "eval.every = 20",
                  "stop.patience = 3", "stop.tolerance = 0"});
  o.alias("optim.name", "optimizer");
  o.alias("optim.scale_lr", "lr_scale");
  o.alias("schedule.step_size", "lr_decay_step");
  o.alias("schedule.gamma", "lr_decay_rate");
  o.alias("schedule.warmup", "warmup_steps");
  o.alias("train.epochs", "num_epochs");
  o.alias("stop.patience", "patience");
  o.alias("run.dir", "train_dir");
  o.alias("run.init", "state_dict_path");
  o.word("mhc_no_amp", false, "nothing: all sums are fp32; with --precision bf16 the streams are stored in bf16, too",
         [](const std::string&) {
           return Options::Reply{
               .note = "all sums are fp32 anyway; with --precision bf16 the streams are stored in bf16, too"};
         });
}

SequenceTask::Options SequenceConfig::model_options(DType dtype, std::uint64_t seed) const {
  SequenceTask::Options options{.arch = arch_, .ranking = ranking_, .dtype = dtype, .seed = seed};
  SasRecArch& a = options.arch;
  options.shard_items = items_ == "shard";
  require_usage(!options.shard_items || a.loss.kind == ItemLoss::Kind::softmax,
                "option dist.items = shard: only with loss.name = softmax; loss.name = ", name(a.loss.kind),
                " reads few rows of the table; set dist.items = replicate, or loss.name = softmax");
  a.l2_items_only = l2_tables_ == "items";
  a.xavier_uniform = initial_ == "xavier_uniform";
  options.ranking.full = candidates_ == "full";
  std::vector<std::int64_t> cutoffs = ranking_.at;
  std::ranges::sort(cutoffs);
  require_usage(!cutoffs.empty() && std::ranges::adjacent_find(cutoffs) == cutoffs.end(),
                "option eval.k: must have at least one K, and none twice");
  return options;
}

void SequenceConfig::check() const {
  SasRecArch arch = model_options(DType::f32, 0).arch;
  arch.items = 1;  // unknown without the data set
  arch.check(Fault::usage);
}

void SequenceConfig::require_supported(const RunConfig& config, int ranks) const {
  if (items_ == "shard")
    require_item_shards(config, H5File::open(config.data.path).int_attribute("/", "n_items"), ranks);
}

std::unique_ptr<Task> SequenceConfig::load(const TaskSource& source) const {
  SequenceData data = source.data_memory.data_set(source.path, SequenceData::read);
  SequenceTask::Options options = model_options(source.dtype, source.seed);
  if (source.checkpoint != nullptr) {
    const std::int64_t trained = source.checkpoint->int_attribute(kSequenceGroup, "items");
    require_data(trained == data.n_items, "checkpoint '", source.checkpoint->path().string(), "' was trained on ",
                 trained, " items; '", source.path.string(), "' has ", data.n_items,
                 "; use the data set of the checkpoint");
    require_names(*source.checkpoint, data.item_names, source.path.string(), "items");
  }
  return std::make_unique<SequenceTask>(std::move(options), std::move(data));
}

TaskNeeds SequenceConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "n_items") && file.has("/users/n_train"), "planning for '", path.string(),
               "': not a prepared interaction set; make it with lockstep-prep sequences");
  const std::vector<std::int32_t> trained = file.read<std::int32_t>("/users/n_train");
  const SequenceTask::Options options = model_options(dtype, 0);
  SasRecArch arch = options.arch;
  arch.items = file.int_attribute("/", "n_items");
  arch.check(Fault::usage);

  TaskNeeds needs;
  double tokens = 0;
  std::int64_t longest = 0;
  for (const std::int32_t m : trained) {
    if (m < 2) continue;
    ++needs.train_samples;
    const std::int64_t length = std::min<std::int64_t>(m - 1, arch.slots);
    tokens += static_cast<double>(length);
    longest = std::max(longest, length);
  }
  needs.parameters = arch.parameters();
  const auto rows = static_cast<double>(file.int_attribute("/", "n_interactions"));
  const auto users = static_cast<double>(trained.size());
  needs.data_rows = std::ssize(trained);
  needs.row_bytes = rows * (file.int_attribute("/", "has_time") != 0 ? 12 : 4) / users;
  needs.data_bytes = users * (needs.row_bytes + 20);
  if (step.on_gpu) {  // as in SequenceTask::move_to()
    const bool candidates = arch.loss.kind == ItemLoss::Kind::sampled_softmax;
    needs.gpu_data_bytes = rows * (4 + (arch.loss.negatives_each() > 0 ? 4 : 0) + (arch.timed ? 8 : 0)) +
                           static_cast<double>(sizeof(ops::HistorySample)) * static_cast<double>(needs.train_samples) +
                           (candidates ? 16 * static_cast<double>(arch.items + 1) : 0);
  }
  // Stored values per token: embedding and loss; per block its norms, queries, keys, values, attention,
  // feed-forward network and residuals; with streams also these, before and after each site, and their maps.
  const auto d = static_cast<double>(arch.hidden), n = static_cast<double>(arch.streams);
  const bool streams = arch.mhc == SasRecArch::Mhc::streams;
  const double block =
      (arch.timed ? 15 : 12) * d + static_cast<double>(arch.heads) + 4 + (streams ? 3 * n * (d + 4) : 0);
  const double values =
      7 * d + 4 + (streams ? 3 * n * (d + 2) : 0) + static_cast<double>(arch.blocks) * block +
      2 * static_cast<double>(arch.loss.negatives_each()) +
      (arch.loss.kind == ItemLoss::Kind::softmax && step.on_gpu ? static_cast<double>(arch.items) : 0);
  // Memory of the largest group of samples that is computed at a time. In a small group, all samples may be long.
  const double mean = tokens / std::max<double>(1, static_cast<double>(needs.train_samples));
  const std::int64_t cached = SequenceTask::samples_in_cache(arch);
  const std::int64_t part = step.samples / (step.on_gpu ? step.ranks : step.shards);
  const auto group =
      static_cast<double>(std::max<std::int64_t>(1, step.on_gpu || cached == 0 ? part : std::min(part, cached)));
  const double longer = (static_cast<double>(longest) / std::max(1.0, mean) - 1) / std::sqrt(group);
  needs.activation_bytes_per_sample = mean * (1 + longer) * values * static_cast<double>(size_bytes(dtype));
  needs.samples_in_cache = cached;
  needs.least_tree_shard = SequenceTask::least_tree_shard(arch);
  needs.rows_vary = true;

  const auto size = static_cast<double>(size_bytes(real_dtype(dtype)));
  const double step_tokens = mean * static_cast<double>(step.samples);
  if (arch.loss.kind == ItemLoss::Kind::softmax) {
    const bool parts = step.reproducible || options.shard_items;
    needs.scratch_bytes = size * static_cast<double>(ops::softmax_scratch(
                                     {}, false, static_cast<std::int64_t>(step_tokens) / step.shards + 1, arch.items,
                                     arch.hidden, parts ? step.shards : 1));
  }
  needs.row_sparse = needs.state_divided = options.shard_items;
  if (arch.loss.kind != ItemLoss::Kind::softmax) {
    needs.table_rows = arch.items + 1;
    needs.table_columns = arch.hidden;
    needs.touched_rows_per_sample = mean * static_cast<double>(2 + arch.loss.negatives_each());
    if (arch.loss.kind == ItemLoss::Kind::sampled_softmax)  // the drawn items, of each shard
      needs.touched_rows_per_sample += static_cast<double>(arch.loss.negatives * step.shards) /
                                       std::max<double>(1, static_cast<double>(step.samples));
  }
  if (options.shard_items) {
    needs.owned_parameters = (arch.items + 1) * arch.hidden;
    // Features, their gradient, the inputs' gradient; sums; per part of this rank the features' gradient; per shard the
    // gradient of the rows that are inputs or targets.
    const auto width = static_cast<double>(arch.hidden), shards = static_cast<double>(step.shards),
               rows = std::min(step_tokens, static_cast<double>(arch.items));
    needs.gathered_bytes = size * (step_tokens * (3 * width + 3 + 2 * shards) +
                                   shards * width * (step_tokens + rows) / static_cast<double>(step.ranks));
  }
  const RankingOptions& ranking = options.ranking;
  if (ranking.full || ranking.both)
    needs.evaluation_bytes =
        8 * static_cast<double>(SequenceTask::evaluation_block(arch.items) * (arch.items + 1));  // baselines: in f64
  return needs;
}

}  // namespace lockstep
