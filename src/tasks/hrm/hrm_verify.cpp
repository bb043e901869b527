#include <algorithm>
#include <optional>

#include "lockstep/nn/own_tape.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "tasks/hrm/hrm_program.hpp"
#include "tasks/hrm/hrm_verify_parts.hpp"

namespace lockstep {
namespace {

// Tolerances in single precision, relative to an array's largest value. In brackets: the difference between PyTorch's
// own single and double precision.
constexpr double kValue = 2e-5;                          // [logits 6e-6]
constexpr double kSegments = 1e-4;                       // of an evaluation, whose rounding accumulates over segments
constexpr double kGradient = 2e-5;                       // [4e-6]
constexpr double kWeights = 2e-6;                        // absolute [3e-7]
constexpr double kDouble = 1e-10, kStoredSingle = 1e-6;  // in double; of arrays that the file stores in single

/// The label of ignored cells. 0 is a valid label in training batches.
constexpr std::uint8_t kIgnored = 255;

/// Batches, draws and observed values of a reference file. Training part t of the data is the batch of step t, one row
/// per slot.
class ReferenceModel final : public HrmTask {
 public:
  /// least  of each step, the values of least_steps() by slot
  ReferenceModel(Options options, PuzzleData data, std::vector<std::vector<std::int32_t>> least)
      : HrmTask(std::move(options), std::move(data)), least_(std::move(least)) {}
  void move_to(Device device) override {
    HrmTask::move_to(device);
    const HrmArch& a = network().arch();
    logits = OwnedTensor(options().dtype, {batch(), a.seq_len, a.vocab}, device);
    q = OwnedTensor(options().dtype, {batch(), 2}, device);
    next_q = OwnedTensor(options().dtype, {batch(), 2}, device);
  }
  std::int64_t steps() const { return std::ssize(least_); }
  std::int64_t batch() const { return std::ssize(least_.front()); }
  OwnedTensor logits, q, next_q;  ///< of the last step, rows by slot

 protected:
  void read_batch(const Shard& shard, std::int64_t first, std::span<PuzzleExample> rows) const override {
    const PuzzlePart& part = data().train[shard.step];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t row = first + static_cast<std::int64_t>(i);
      rows[i] = {.part = &part, .row = row, .identifier = part.puzzle_identifiers.data<std::int32_t>()[row]};
    }
  }
  std::int64_t least_steps(const Shard& shard, std::int64_t slot) const override { return least_[shard.step][slot]; }
  void observe(Tape& t, const Shard& shard, const Hrm::Output& out, const Tensor& next) const override {
    const auto keep = [&](const Tensor& all, const Tensor& part) {
      const Tensor to = all.slice(shard.first % batch(), shard.count);
      ops::cast(t.stream(), {to}, part.reshaped(to.shape()));
    };
    keep(logits, out.logits.value()), keep(q, out.q.value());
    if (next) keep(next_q, next);
  }

 private:
  std::vector<std::vector<std::int32_t>> least_;
};

std::vector<std::int32_t> labels_of(const H5File& file, const std::string& dataset) {
  std::vector<std::int32_t> labels = file.read<std::int32_t>(dataset);
  for (std::int32_t& label : labels) label = std::max(label, -1);
  return labels;
}

std::vector<std::vector<std::int32_t>> read_draws(const H5File& file) {
  const double explore = file.real_attribute("/", "explore");
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t t = 0; t < file.int_attribute("/", "steps"); ++t) {
    const std::string group = "/steps/" + std::to_string(t) + "/draws/";
    std::vector<std::int32_t>& least = all.emplace_back(file.read<std::int32_t>(group + "explore_n"));
    const std::vector<double> u = file.read<double>(group + "explore_u");
    for (std::size_t i = 0; i < u.size(); ++i)
      if (!(u[i] < explore)) least[i] = 0;
  }
  return all;
}

std::vector<std::uint8_t> bytes_of(const std::vector<std::int32_t>& values) { return {values.begin(), values.end()}; }

/// Puzzles 0..n-1 with one example each.
PuzzlePart plain_part(DataMemory& data_memory, const std::string& name, const std::vector<std::uint8_t>& inputs,
                      const std::vector<std::uint8_t>& labels, const std::vector<std::int32_t>& identifiers,
                      std::int64_t cells) {
  const auto n = std::ssize(identifiers);
  std::vector<std::int64_t> index(identifiers.size() + 1);
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(i);
  PuzzlePart part;
  part.name = name;
  part.inputs = place(data_memory, inputs, {n, cells});
  part.labels = place(data_memory, labels, {n, cells});
  part.puzzle_indices = part.group_indices = place(data_memory, index, {n + 1});
  part.puzzle_identifiers = place(data_memory, identifiers, {n});
  return part;
}

PuzzleData reference_data(const H5File& file, DataMemory& data_memory) {
  PuzzleData data;
  data.path = file.path();
  data.seq_len = file.int_attribute("/", "seq_len");
  data.vocab_size = file.int_attribute("/", "vocab");
  data.identifiers = file.int_attribute("/", "num_ids");
  data.ignore_label_id = kIgnored;
  for (std::int64_t t = 0; t < file.int_attribute("/", "steps"); ++t) {
    const std::string group = "/steps/" + std::to_string(t) + "/batch/";
    // An ignored label, -1, becomes kIgnored.
    data.train.push_back(plain_part(data_memory, "steps", bytes_of(file.read<std::int32_t>(group + "inputs")),
                                    bytes_of(labels_of(file, group + "labels")),
                                    file.read<std::int32_t>(group + "puzzle_identifiers"), data.seq_len));
  }
  for (const std::string& name : file.list("/eval")) {
    const std::string group = "/eval/" + name + "/data/";
    if (name == "batches") continue;
    auto labels = file.read<std::uint8_t>(group + "labels");
    std::ranges::replace(labels, std::uint8_t{0}, kIgnored);
    data.test.push_back(plain_part(data_memory, name, file.read<std::uint8_t>(group + "inputs"), labels,
                                   file.read<std::int32_t>(group + "puzzle_identifiers"), data.seq_len));
  }
  return data;
}

HrmTask::Options reference_options(const H5File& file, DType dtype) {
  const auto number = [&](const char* name) { return file.int_attribute("/", name); };
  HrmTask::Options o;
  o.arch = {.hidden = number("hidden"),
            .heads = number("heads"),
            .expansion = file.real_attribute("/", "expansion"),
            .h_layers = number("h_layers"),
            .l_layers = number("l_layers"),
            .h_cycles = number("h_cycles"),
            .l_cycles = number("l_cycles"),
            .puzzle_ndim = number("puzzle_ndim"),
            .positions = file.text_attribute("/", "pos"),
            .rms_eps = file.real_attribute("/", "rms_norm_eps"),
            .rope_theta = file.real_attribute("/", "rope_theta")};
  if (file.has_attribute("/", "mlp_t")) {  // TRM
    o.arch.mlp_t = o.arch.one_network = o.arch.last_cycle_gradient = true;
    o.arch.puzzle_positions = number("puzzle_emb_len");
  }
  o.loss = {.tokens = reference_choice<ops::TokenLoss>(file, "loss", "_cross_entropy"),
            .halt_max_steps = number("halt_max_steps"),
            .q_continue = !o.arch.one_network};
  o.puzzle_lr = file.real_attribute("/", "puzzle_lr");
  o.puzzle_weight_decay = file.real_attribute("/", "puzzle_wd");
  o.dtype = dtype;
  return o;
}

/// Compares one training file: intermediate values, steps with their updates, evaluation.
class NetworkCheck {
 public:
  NetworkCheck(World& world, const H5File& file, const VerifyOptions& options, Verifier& v)
      : world_(world),
        file_(file),
        options_(options),
        v_(v),
        dtype_(options.f64 ? DType::f64 : DType::f32),
        model_(reference_options(file, dtype_), reference_data(file, data_memory_), read_draws(file)) {
    load_reference_weights(model_.params(), file);
    model_.move_to(options.device);
    if (is_half(options.storage)) model_.params().store_as(options.storage);
  }

  void run() {
    trace();
    evaluation();
    steps();
  }

 private:
  /// In double the file's own precision is the limit.
  double tolerance(const std::string& dataset, double single) const {
    if (!options_.f64 || !file_.has("/" + dataset)) return single;
    return file_.info("/" + dataset).type == H5Type::f32 ? kStoredSingle : kDouble;
  }
  void compare(const std::string& group, const std::string& name, const Values& values, double single) {
    v_.relative(group, name, values, tolerance(group + "/" + name, single));
  }

  /// The first inner call of the first step, call by call.
  void trace() {
    const HrmArch& a = model_.network().arch();
    const auto inputs = file_.read<std::int32_t>("/steps/0/batch/inputs"),
               ids = file_.read<std::int32_t>("/steps/0/batch/puzzle_identifiers");
    const auto batch = std::ssize(ids);
    OwnTape tape(model_.network().params());
    const Tensor z_h = tape.keep({batch, a.length(), a.hidden}), z_l = tape.keep(z_h.shape());
    model_.network().reset(tape, z_h, z_l);
    const auto kept = [&](const std::vector<std::int32_t>& values, Shape shape) {
      return Tensor::of(tape.keep(std::span(values)).data(), shape);
    };
    const Var x = model_.network().embed(tape, kept(inputs, {batch, a.seq_len}), {kept(ids, {batch}), {}});
    compare("trace", "input_embeddings", x.value(), kValue);
    int calls = 0;
    std::vector<std::string> seen;
    const Observer watch = [&](const std::string& name, const Tensor& value) {
      if (name.find('.') == std::string::npos) {
        const std::string number = std::to_string(calls++);
        compare("trace", (number.size() < 2 ? "0" : "") + number + "_" + name, value, kValue);
      } else if (std::find(seen.begin(), seen.end(), name) == seen.end()) {
        seen.push_back(name);
        compare("trace", "first_" + name, value, kValue);
      }
    };
    model_.network().inner(tape, z_h, z_l, x, Hrm::Ask::all, &watch);
  }

  void evaluation() {
    const std::int64_t segments = model_.options().eval_segments;
    for (int b = 0; file_.has("/eval/batches/" + std::to_string(b)); ++b) {
      const std::string group = "eval/batches/" + std::to_string(b);
      const auto inputs = file_.read<std::int32_t>("/" + group + "/inputs"),
                 ids = file_.read<std::int32_t>("/" + group + "/puzzle_identifiers"),
                 labels = labels_of(file_, "/" + group + "/labels");
      OwnTape tape(model_.network().params());
      const Hrm::Output out = model_.run_segments(tape, inputs, ids, segments);
      compare(group, "logits", out.logits.value(), kSegments);
      const std::vector<double> q = doubles(out.q.value());
      std::vector<double> halt;
      for (std::size_t i = 0; i < q.size(); i += 2) halt.push_back(q[i]);
      compare(group, "q_halt_logits", halt, kSegments);
      const auto scores = tape.host_arena().array<ops::SequenceScore>(std::ssize(ids));
      const Shape cells{std::ssize(ids), model_.network().arch().seq_len};
      ops::sequence_loss(tape.stream(), {}, scores, out.logits.value(),
                         Tensor::of(tape.keep(std::span(labels)).data(), cells), model_.options().loss.tokens);
      tape.stream().synchronize();
      double lm = 0, halting = 0;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        lm += scores[i].loss;
        halting += ops::binary_cross_entropy(halt[i], scores[i].exact() ? 1 : 0).loss;
      }
      attribute(group, "metric_lm_loss", lm, kSegments);
      attribute(group, "metric_q_halt_loss", halting, kSegments);
    }
    std::int64_t first = 0;
    for (const PuzzlePart& part : model_.data().test) {
      OwnTape tape(model_.network().params());
      std::vector<double> sums(model_.sum_count(), 0);
      model_.evaluate(tape, Split::test, first, part.examples(), sums.data());
      first += part.examples();
      for (const Metric& m : model_.metrics(Split::test, sums))
        if (m.name != "q_halt_loss" && file_.has_attribute("/eval/" + part.name, m.name))
          attribute("eval/" + part.name, m.name, m.value, kSegments);
    }
  }

  void attribute(const std::string& group, const std::string& name, double value, double single) {
    if (file_.has_attribute("/" + group, name))
      v_.value(group + "@" + name, value, file_.real_attribute("/" + group, name), options_.f64 ? kDouble : single);
  }

  void steps() {
    RunConfig config;
    config.batch = {.size = model_.batch()};
    config.run.reproducible = options_.step.reproducible;
    config.dist.shards = options_.step.shards;
    config.dist.bucket_bytes = 1 << 16;
    config.optim.name = "adam_atan2";
    config.optim.beta1 = file_.real_attribute("/", "beta1");
    config.optim.beta2 = file_.real_attribute("/", "beta2");
    config.optim.weight_decay = file_.real_attribute("/", "wd");
    config.optim.atan2_bias = file_.text_attribute("/", "adam_atan2_bias");
    config.optim.lr = file_.real_attribute("/", "lr");
    const LrSchedule schedule({.name = "cosine",
                               .unit = "step",
                               .warmup = file_.int_attribute("/", "warmup"),
                               .total = file_.int_attribute("/", "total_steps"),
                               .origin = 1,
                               .min_ratio = file_.real_attribute("/", "min_ratio")},
                              config.optim.lr);
    HrmProgram program(world_, config, model_, options_.step.threads);
    std::optional<Ema> average;
    if (file_.has_attribute("/", "ema")) average.emplace(model_.params(), file_.real_attribute("/", "ema"));
    TrainState state;
    for (std::int64_t t = 0; t < model_.steps(); ++t) {
      const double lr = schedule.lr(t, 0);
      StepResult done = program.step(state, lr, average ? &*average : nullptr, 0);
      if (const std::optional<StepOutcome> last = program.settle(UpTo::weights)) done.outcome = last;
      ++state.step, state.position += done.advance;
      step(program, "steps/" + std::to_string(t), done, lr);
      const std::string after = join("after_steps/", t + 1);
      for (const Param& p : model_.params().all()) v_.absolute(after, p.name, p.value, kWeights);
      if (!average) continue;
      for (const auto& [name, values] : by_parameter(model_.params(), average->flat()))
        v_.absolute("average_" + after, name, values, kWeights);
    }
  }

  void step(HrmProgram& program, const std::string& group, const StepResult& done, double lr) {
    const double batch = static_cast<double>(model_.batch());
    const HrmSlots& slots = model_.slots();
    for (const auto& [name, value] : {std::pair{"steps", &slots.steps},
                                      {"halted", &slots.halted},
                                      {"current_inputs", &slots.inputs},
                                      {"current_puzzle_identifiers", &slots.identifiers}})
      v_.relative(group + "/carry", name, *value, 0);
    compare(group + "/carry", "z_H", slots.z_h, kValue);
    compare(group + "/carry", "z_L", slots.z_l, kValue);

    const std::string outputs = group + "/outputs";
    for (const auto& [rows, what] : {std::pair{&model_.logits, "logits"}, {&model_.q, "q"}, {&model_.next_q, "next q"}})
      program.gather(*rows, what);
    compare(outputs, "logits", model_.logits, kValue);
    const std::vector<double> both = doubles(model_.q), both_next = doubles(model_.next_q),
                              done_steps = doubles(slots.steps);
    std::vector<double> q[2], next[2], target;
    for (std::size_t i = 0; i < done_steps.size(); ++i) {
      for (std::size_t k = 0; k < 2; ++k) q[k].push_back(both[2 * i + k]), next[k].push_back(both_next[2 * i + k]);
      const bool last = done_steps[i] >= static_cast<double>(model_.options().loss.halt_max_steps);
      target.push_back(ops::logistic(last ? next[0].back() : std::max(next[0].back(), next[1].back())));
    }
    compare(outputs, "q_halt_logits", q[0], kValue);
    compare(outputs, "q_continue_logits", q[1], kValue);
    if (model_.options().loss.q_continue) {
      compare(outputs, "next_q_halt_logits", next[0], kValue);
      compare(outputs, "next_q_continue_logits", next[1], kValue);
      compare(outputs, "target_q_continue", target, kValue);
    }
    compare(outputs, "loss", done.outcome->loss, kValue);
    const auto [sum, sequences] = program.take_scores();
    for (const auto& [name, value] : {std::pair{"count", sum.count},
                                      {"accuracy", sum.accuracy},
                                      {"exact_accuracy", sum.exact},
                                      {"q_halt_accuracy", sum.q_halt_accuracy},
                                      {"steps", sum.steps},
                                      {"lm_loss", sum.lm_loss},
                                      {"q_halt_loss", sum.q_halt_loss},
                                      {"q_continue_loss", sum.q_continue_loss}})
      attribute(outputs, std::string("metric_") + name, value, kValue);
    for (const Metric& m : score_metrics(sum, sequences, ""))
      attribute(outputs, "reduced_train_" + m.name, m.value, kValue);
    attribute(outputs, "lr", lr, 1e-12);
    attribute(outputs, "lr_puzzle_emb", lr / file_.real_attribute("/", "lr") * model_.options().puzzle_lr, 1e-12);

    for (const auto& [name, values] : by_parameter(model_.params(), program.gradient(), 1 / batch))
      compare(group + "/grads", name, values, kGradient);
    std::vector<double> rows = doubles(slots.puzzle_gradient);
    for (double& g : rows) g /= batch;
    compare(group + "/grads", "puzzle_emb.local_weights", rows, kGradient);
    v_.absolute(group + "/after", "puzzle_emb.weights", model_.network().puzzle_table()->value,
                options_.f64 ? 1e-12 : kWeights);
  }

  World& world_;
  const H5File& file_;
  const VerifyOptions& options_;
  Verifier& v_;
  DType dtype_;
  LocalDataMemory data_memory_;
  ReferenceModel model_;
};

}  // namespace

void verify_hrm(World& world, const H5File& file, const VerifyOptions& options, ReferenceReport& report) {
  const std::string mode = file.text_attribute("/", "mode");
  VerifyOptions plain = options;
  plain.f64 = false;  // the file's arrays are the double ones already
  Verifier v(file, plain, report);
  if (mode == "train") {
    NetworkCheck(world, file, options, v).run();
  } else if (mode == "optim") {
    verify_hrm_rules(v, file, options.device);
  } else {
    verify_hrm_sampler(v, file);
  }
}

}  // namespace lockstep
