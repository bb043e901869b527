#include "lockstep/tasks/hrm/hrm_config.hpp"

#include <algorithm>
#include <cctype>

#include "lockstep/base/text.hpp"
#include "lockstep/data/names.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

namespace {
/// Words of TRM's guide.
void add_trm_words(Options& o) {
  using Reply = Options::Reply;
  o.word("arch", true, "trm: --config configs/hrm-trm-sudoku.ini", [](const std::string& name) {
    require_usage(name != "trm",
                  "option --arch = trm: --config configs/hrm-trm-sudoku.ini (or hrm-trm-sudoku-mlp.ini) ",
                  "has TRM's network; leave arch out");
    require_usage(name == "hrm_v1", "option --arch = ", name, ": there are hrm_v1 and trm");
    return Reply{};
  });
  o.word("evaluators", true, "nothing: evaluations of ARC have pass@K",
         [](const std::string&) { return Reply{.note = "nothing: evaluations of ARC have pass@K"}; });
  o.word("run_name", true, "--run-dir runs/VALUE", [](const std::string& name) {
    return Reply{.keys = {{"run.dir", "runs/" + name}}};
  });
  o.word("ema", false, "--optim.ema 0.999", [](const std::string& value) {
    return value == "true" ? Reply{.keys = {{"optim.ema", "0.999"}}} : Reply{};
  });
  o.word("data_paths", true, "--data.path, of one file", [](const std::string& list) {
    const bool brackets = list.starts_with('[') && list.ends_with(']');
    const std::string path = trim(brackets ? list.substr(1, list.size() - 2) : list);
    require_usage(path.find(',') == std::string::npos, "option --data_paths = ", list, ": a run reads one data set");
    return Reply{.keys = {{"data.path", path}}};
  });
}
}  // namespace

void HrmConfig::add_options(Options& o) {
  HrmArch& a = model_.arch;
  o.add("model.hidden_size", &a.hidden, 512, between(1, kMostWidth), "width of the states");
  o.add("model.num_heads", &a.heads, 8, between(1, kMostWidth), "heads of the attention");
  o.add("model.expansion", &a.expansion, 4, between(1e-6, 1000),
        "width of the gated layers: 2/3 of expansion times hidden_size, rounded up to a multiple of 256");
  o.add("model.h_layers", &a.h_layers, 4, between(1, kMostLayers), "blocks of the slow level");
  o.add("model.l_layers", &a.l_layers, 4, between(1, kMostLayers), "blocks of the fast level");
  o.add("model.h_cycles", &a.h_cycles, 2, between(1, kMostCycles), "calls of the slow level per segment");
  o.add("model.l_cycles", &a.l_cycles, 2, between(1, kMostCycles), "calls of the fast level per call of the slow one");
  o.choice("model.pos_encodings", &a.positions, "rope", {"rope", "learned", "none"},
           "encoding of the cells' positions");
  o.add("model.puzzle_emb_ndim", &a.puzzle_ndim, -1, between(-1, kMostWidth),
        "width of a puzzle embedding; -1: hidden_size; 0: no puzzle embedding");
  o.add("model.puzzle_emb_len", &a.puzzle_positions, -1, between(-1, kMostWidth),
        "positions for the puzzle embedding; -1: as many as it fills");
  o.add("model.one_network", &a.one_network, false, "both levels share the blocks of the fast level (TRM)");
  o.add("model.last_cycle_gradient", &a.last_cycle_gradient, false,
        "differentiate all calls of the last cycle instead of the last two (TRM)");
  o.add("model.mlp_t", &a.mlp_t, false,
        "a gated layer across positions replaces attention (TRM); the network then fits one length of sequences");
  o.add("model.halt_max_steps", &model_.loss.halt_max_steps, 16, between(1, kMostCycles),
        "maximum number of segments per puzzle");
  o.add("model.halt_exploration_prob", &model_.loss.explore, 0.1, fraction,
        "probability that a puzzle must run a random minimum number of segments");
  o.add("model.q_continue", &model_.loss.q_continue, true,
        "halt when halting has a higher value than continuing; off (TRM): when the answer is more likely right than "
        "wrong");
  o.section("loss", "Loss");
  o.choice("loss.name,arch.loss.loss_type", &model_.loss.tokens, ops::TokenLoss::stablemax,
           "cross-entropy of the cells")
      .value_alias("stablemax_cross_entropy", "stablemax")
      .value_alias("softmax_cross_entropy", "softmax");
  o.add("loss.segment_decay", &model_.loss.decay, 1, fraction,
        "weight of a segment's loss relative to that of the puzzle's segment before (CGAR: 0.7)");
  o.choice("schedule.depth", &depth_, "full", {"full", "cgar"},
           "cycles of a training step: all, or a third of model.h_cycles and l_cycles below 30 % of the run (of "
           "schedule.total, if set), two thirds below 60 %, then all");
  o.add("data.group_visits", &model_.visits, 1, between(1, 1e9),
        "visits of every puzzle group per epoch; evaluations follow epochs");
  o.add("eval.max_examples", &model_.eval_examples, 0, non_negative,
        "number of validation puzzles (or test puzzles if there are none) of an evaluation during training; 0: all");
  o.add("eval.segments", &model_.eval_segments, 0, between(0, kMostCycles),
        "segments of an evaluation; 0: model.halt_max_steps");
  Tries& tries = model_.tries;
  o.add("eval.tries,tries", &tries.count, 1, between(1, 1e6),
        "number of tries at each puzzle, also for predict: the puzzle itself, then random images of it (digits, rows, "
        "columns, bands, stacks, transposition; mazes: the 8 images of a square), whose answers are mapped back and "
        "combined");
  o.choice(
      "eval.combine", &tries.combine, "halting", {"halting", "votes", "rules"},
      "how the answers of several tries are combined: halting: the largest sum of sigma(q_halt); votes: the answer of "
      "most tries; rules: an answer that satisfies the rules (Sudoku: also the givens; mazes: a shortest path), "
      "otherwise as halting");
  o.add("eval.noise", &tries.noise, 0, non_negative,
        "tries add normal noise of this standard deviation to the initial states; 0: they use symmetries instead");
  o.add("eval.halt,halt", &model_.eval_halt, false,
        "a try ends when the network halts (q_halt > q_continue; TRM: q_halt > 0), at the latest after eval.segments; "
        "evaluations with one try run all segments");
  o.add("optim.puzzle_lr,puzzle_emb_lr", &model_.puzzle_lr, 0, non_negative,
        "learning rate of the puzzle embeddings, with the same schedule; 0: optim.lr");
  o.add("optim.puzzle_weight_decay,puzzle_emb_weight_decay", &model_.puzzle_weight_decay, 0.1, non_negative,
        "weight decay of the puzzle embeddings that a step uses");
  o.set_defaults({"batch.size = 768", "optim.name = adam_atan2", "optim.weight_decay = 0.1", "optim.beta2 = 0.95",
                  "schedule.name = cosine", "schedule.unit = step", "schedule.origin = 1", "schedule.warmup = 2000",
                  "schedule.min_ratio = 1", "eval.best = exact_accuracy", "stop.patience = 0", "stop.tolerance = 0"});
  o.alias("eval.every", "eval_interval");
  o.alias("schedule.warmup", "lr_warmup_steps");
  o.alias("schedule.min_ratio", "lr_min_ratio");
  for (const char* name :
       {"hidden_size", "num_heads", "expansion", "H_layers", "L_layers", "H_cycles", "L_cycles", "pos_encodings",
        "puzzle_emb_ndim", "puzzle_emb_len", "halt_max_steps", "halt_exploration_prob", "mlp_t"}) {
    std::string key = join("model.", name);
    std::ranges::transform(key, key.begin(), [](unsigned char c) { return std::tolower(c); });
    o.alias(key, join("arch.", name));
  }
  add_trm_words(o);
}

void HrmConfig::check() const { model_.arch.check(); }

HrmTask::Options HrmConfig::model_options(DType dtype, std::uint64_t seed) const {
  HrmTask::Options options = model_;
  options.depth_curriculum = depth_ == "cgar";
  options.dtype = dtype;
  options.seed = options.tries.seed = seed;
  return options;
}

void HrmConfig::require_supported(const RunConfig& config, int) const {
  const std::int64_t count = tries().count;
  require_usage(config.eval.max_samples == 0 || count == 1, "option eval.max_samples = ", config.eval.max_samples,
                ": with eval.tries = ", count, " an evaluation tries all puzzles; set eval.max_examples instead");
}

std::unique_ptr<Task> HrmConfig::load(const TaskSource& source) const {
  PuzzleData data = source.data_memory.data_set(source.path, PuzzleData::open);
  if (source.checkpoint != nullptr && model_.arch.mlp_t) {
    const std::int64_t trained = source.checkpoint->int_attribute("/", "seq_len");
    require_data(data.seq_len == trained, "data set '", source.path.string(), "': its puzzles have ", data.seq_len,
                 " cells, but those of checkpoint ", source.checkpoint->path().string(), " have ", trained,
                 "; a network with model.mlp_t needs puzzles of its own length, so name such a data set");
  }
  if (source.checkpoint != nullptr)
    require_names(*source.checkpoint, data.identifier_names, source.path.string(), "puzzle identifiers");
  return std::make_unique<HrmTask>(model_options(source.dtype, source.seed), std::move(data));
}

std::unique_ptr<HrmTask> HrmConfig::load_trained(const H5File& checkpoint, DType dtype) const {
  PuzzleData data;
  data.path = checkpoint.path();
  data.task = checkpoint.text_attribute("/", "task");
  data.seq_len = checkpoint.int_attribute("/", "seq_len");
  data.vocab_size = checkpoint.int_attribute("/", "vocab_size");
  data.identifiers = checkpoint.int_attribute("/", "num_puzzle_identifiers");
  return std::make_unique<HrmTask>(model_options(dtype, 0), std::move(data));
}

TaskNeeds HrmConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "format") && file.text_attribute("/", "format") == "hrm-puzzles",
               "planning for '", path.string(), "': not a prepared puzzle file; make it with lockstep-prep");
  HrmArch arch = model_.arch;
  arch.seq_len = file.int_attribute("/", "seq_len");
  arch.vocab = file.int_attribute("/", "vocab_size");
  arch.identifiers = file.int_attribute("/", "num_puzzle_identifiers");
  TaskNeeds needs;
  for (const std::string& name : file.list("/train")) {
    const std::string set = "/train/" + name;
    if (!file.is_group(set)) continue;
    const auto rows = [&](const char* dataset) { return file.info(set + dataset).shape[0]; };
    const double examples = static_cast<double>(rows("/inputs")) / static_cast<double>(rows("/puzzle_identifiers"));
    const auto samples =
        static_cast<std::int64_t>(static_cast<double>(model_.visits * (rows("/group_indices") - 1)) * examples);
    needs.train_samples += samples;
    needs.steps_per_epoch += samples / step.samples;  // as PuzzleSampler::nominal_batches()
    needs.gpu_data_bytes += 2.0 * static_cast<double>(rows("/inputs") * arch.seq_len);
  }
  require_usage(needs.steps_per_epoch > 0, "planning for '", path.string(), "': an epoch of ", needs.train_samples,
                " puzzles does not fill a batch of ", step.samples, "; lower batch.size or raise data.group_visits");
  needs.parameters = arch.parameters();
  needs.fixed_parameters = arch.identifiers * arch.puzzle_width();
  needs.state_divided = true;
  needs.carried_bytes_per_sample =
      2.0 * static_cast<double>(arch.length() * arch.hidden) * static_cast<double>(size_bytes(dtype)) +
      4.0 * static_cast<double>(2 * arch.seq_len + 3);
  for (const std::string& dataset : file.datasets_under("/"))
    if (dataset.ends_with("/inputs")) needs.data_rows += file.info(dataset).shape[0];
  needs.row_bytes = 2.0 * static_cast<double>(arch.seq_len);
  needs.data_bytes = needs.row_bytes * static_cast<double>(needs.data_rows);
  // Values of a position that a pass keeps: the states, their gradients and the heads; per block of the differentiated
  // calls its inputs, q, k and v (or gate and up across positions), the result, and gate, up and their product.
  const auto d = static_cast<double>(arch.hidden), i = static_cast<double>(arch.inter());
  const auto blocks = static_cast<double>((arch.last_cycle_gradient ? arch.l_cycles : 1) * arch.l_layers +
                                          (arch.one_network ? arch.l_layers : arch.h_layers));
  const double mixing =
      arch.mlp_t ? 4 * d + 2 * static_cast<double>(arch.mixing_inter()) * d / static_cast<double>(arch.length())
                 : 8 * d;
  needs.activation_bytes_per_sample = static_cast<double>(size_bytes(dtype)) * static_cast<double>(arch.length()) *
                                      (blocks * (mixing + 3 * i) + 24 * d);
  needs.least_shard = needs.least_tree_shard = HrmTask::least_shard(arch);
  return needs;
}

}  // namespace lockstep
