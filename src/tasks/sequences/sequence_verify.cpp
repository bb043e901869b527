#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/text.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {
namespace {

// Tolerances relative to an array's largest value.
constexpr double kDouble = 1e-9;
constexpr Tolerance kOutput{2e-5, kDouble};
constexpr Tolerance kGradient{2e-4, kDouble};
constexpr Tolerance kWeights{2e-5, kDouble};
/// Absolute bound of gradients that are zero except for rounding. Adam normalises them, so their steps are arbitrary.
constexpr double kVanishing = 1e-7;

SasRecArch arch_of(const H5File& file) {
  const auto integer = [&](const char* name) { return file.int_attribute("/", name); };
  const auto text = [&](const char* name) { return file.text_attribute("/", name); };
  SasRecArch a;
  a.timed = text("model") == "tisasrec";
  a.items = integer("items"), a.slots = integer("maxlen"), a.hidden = integer("hidden"), a.heads = integer("heads");
  a.blocks = integer("blocks"), a.time_span = integer("time_span");
  a.norm = reference_choice<SasRecArch::Norm>(file, "norm");
  a.pad_mask = reference_choice<SasRecArch::PadMask>(file, "pad_mask");
  a.mhc = reference_choice<SasRecArch::Mhc>(file, "mhc");
  a.ffn_residual = integer("ffn_residual") != 0;
  a.ln_eps = file.real_attribute("/", "ln_eps");
  a.streams = integer("n_streams"), a.sinkhorn_iterations = integer("sinkhorn_iters");
  a.dropout = 0;
  a.l2 = file.real_attribute("/", "l2_emb");
  if (file.has_attribute("/", "loss")) {
    a.loss.kind = reference_choice<ItemLoss::Kind>(file, "loss");
    a.loss.negatives = integer("negatives");
    a.loss.calibration = file.real_attribute("/", "calibration");
  }
  a.l2_items_only = text("l2_tables") == "item_emb";
  a.check(Fault::data);
  return a;
}

/// The reference's windows as training samples: step s takes those of batch s.
class ReferenceModel final : public ShardModel {
 public:
  ReferenceModel(const H5File& file, DType dtype)
      : net_(arch_of(file), dtype, 0), samples_(file.int_attribute("/", "batch")) {
    load_reference_weights(net_.params(), file, sasrec_names());
    for (int b = 0; file.has(join("/inputs/batch", b)); ++b) {
      const SasRecArch& arch = net_.arch();
      const auto read = [&]<class T>(const char* name, const std::vector<std::int64_t>& shape, T largest) {
        const std::string dataset = join("/inputs/batch", b, "/", name);
        const auto found = file.info(dataset).shape;
        require_data(found == shape, file.path().string(), ": ", dataset, " has shape ", shape_text(found),
                     ", expected ", shape_text(shape));
        auto values = file.read<T>(dataset);
        for (const T value : values)
          require_data(value <= largest && (std::is_floating_point_v<T> || value >= 0), file.path().string(), ": ",
                       dataset, " has ", value, ", expected at most ", largest, ", and no negative item or time");
        return values;
      };
      const std::vector<std::int64_t> windows{samples_, arch.slots};
      auto negatives = windows;
      if (arch.loss.kind == ItemLoss::Kind::gbce) negatives.push_back(arch.loss.negatives);
      const auto items = [&](const char* name, const auto& shape) { return read(name, shape, arch.items); };
      batches_.push_back({items("seq", windows), items("pos", windows), items("neg", negatives), {}, {}, {}});
      if (arch.timed) batches_.back().time = read("time", windows, std::numeric_limits<std::int64_t>::max());
      if (arch.loss.kind != ItemLoss::Kind::sampled_softmax) continue;
      const auto drawn = file.info(join("/inputs/batch", b, "/candidates")).shape;
      batches_.back().candidates = items("candidates", drawn);
      batches_.back().bias = read("bias", drawn, std::numeric_limits<double>::max());
    }
  }
  ParamStore& params() override { return net_.params(); }
  std::int64_t samples() const { return samples_; }

  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    const SequenceBatch b = batch(tape, shard.step, shard.first, shard.count);
    return {net_.loss(tape, net_.features(tape, b, {}), b), static_cast<double>(b.targets)};
  }
  /// Windows [first, first + count) of a batch, packed as the network requires.
  SequenceBatch batch(Tape& tape, std::int64_t step, std::int64_t first, std::int64_t count) const {
    const Batch& from = batches_.at(static_cast<std::size_t>(step));
    std::vector<std::int64_t> tokens;
    Arena& arena = tape.host_arena();
    SequenceBatch b =
        allocate_batch(arena, net_.arch().slots, net_.arch().timed, count, [&](std::int64_t s, std::int64_t& user) {
          user = first + s;
          const std::vector<std::int64_t> more = tokens_of(step, user);
          tokens.insert(tokens.end(), more.begin(), more.end());
          return std::ssize(more);
        });
    const std::size_t each = from.neg.size() / from.pos.size();
    b.pos = allocate(arena, DType::i32, {b.tokens()});
    b.neg = allocate(arena, DType::i32, {b.tokens(), static_cast<std::int64_t>(each)});
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      const auto m = static_cast<std::size_t>(tokens[k]);
      b.item.data<std::int32_t>()[k] = static_cast<std::int32_t>(from.seq[m]);
      b.pos.data<std::int32_t>()[k] = static_cast<std::int32_t>(from.pos[m]);
      for (std::size_t i = 0; i < each; ++i)
        b.neg.data<std::int32_t>()[k * each + i] = static_cast<std::int32_t>(from.neg[m * each + i]);
      b.slot.data<std::int32_t>()[k] = static_cast<std::int32_t>(tokens[k] % b.slots);
      if (b.time) b.time.data<std::int64_t>()[k] = from.time[m];
      b.targets += from.pos[m] != 0;
    }
    const Shape drawn{std::ssize(from.candidates)};
    b.candidates = allocate(arena, DType::i32, drawn), b.bias = allocate(arena, tape.real_dtype(), drawn);
    std::ranges::transform(from.candidates, b.candidates.data<std::int32_t>(),
                           [](std::int64_t item) { return static_cast<std::int32_t>(item); });
    visit_float(tape.real_dtype(), [&]<class T>() {
      std::ranges::transform(from.bias, b.bias.data<T>(), [](double x) { return static_cast<T>(x); });
    });
    return b;
  }
  /// The positions of the tokens of one window in the arrays of a batch.
  std::vector<std::int64_t> tokens_of(std::int64_t step, std::int64_t sample) const {
    std::vector<std::int64_t> tokens;
    for (std::int64_t m = sample * net_.arch().slots; m < (sample + 1) * net_.arch().slots; ++m)
      if (net_.arch().padded() || batches_.at(static_cast<std::size_t>(step)).seq[m] != 0) tokens.push_back(m);
    return tokens;
  }
  bool is_padding(std::int64_t step, std::int64_t m) const {
    return batches_.at(static_cast<std::size_t>(step)).seq[m] == 0;
  }
  bool is_target(std::int64_t step, std::int64_t m) const {
    return batches_.at(static_cast<std::size_t>(step)).pos[m] != 0;
  }
  const SasRec& network() const { return net_; }
  std::int64_t batches() const { return std::ssize(batches_); }

 private:
  struct Batch {
    std::vector<std::int64_t> seq, pos, neg, time;  ///< (samples, T), neg (samples, T, K)
    std::vector<std::int64_t> candidates;           ///< of sampled_softmax
    std::vector<double> bias;
  };
  SasRec net_;
  std::int64_t samples_;
  std::vector<Batch> batches_;
};

/// Compares rows of packed arrays with those of the reference's padded ones.
class Tokens {
 public:
  Tokens(Verifier& v, const ReferenceModel& model, std::int64_t step) : v_(v), model_(model), step_(step) {
    for (std::int64_t s = 0; s < model.samples(); ++s)
      for (const std::int64_t m : model.tokens_of(step, s)) tokens_.push_back(m);
  }
  /// Compares the rows that `keep` accepts, by their position in the reference.
  void compare(const std::string& name, const std::vector<double>& all, const auto& keep) const {
    const std::size_t width = all.size() / tokens_.size();
    std::vector<double> values;
    std::vector<std::int64_t> rows;
    for (std::size_t k = 0; k < tokens_.size(); ++k) {
      if (!keep(tokens_[k])) continue;
      rows.push_back(tokens_[k]);
      values.insert(values.end(), all.begin() + k * width, all.begin() + (k + 1) * width);
    }
    v_.selected("outputs", name, values, rows, kOutput);
  }
  /// Compares rows of events, and of padding if the network computes padding like events.
  void events(const std::string& name, const std::vector<double>& packed) const {
    const bool all = model_.network().arch().pad_mask == SasRecArch::PadMask::none;
    compare(name, packed, [&](std::int64_t m) { return all || !model_.is_padding(step_, m); });
  }

 private:
  Verifier& v_;
  const ReferenceModel& model_;
  std::int64_t step_;
  std::vector<std::int64_t> tokens_;
};

/// Compares H_pre, H_post and H_res of a site with n streams, which are side by side.
void verify_maps(const Tokens& tokens, const std::string& site, const std::vector<double>& maps, std::int64_t n) {
  const auto columns = [&](const char* map, std::int64_t first, std::int64_t count) {
    std::vector<double> values;
    for (auto row = maps.begin(); row != maps.end(); row += n * (2 + n))
      values.insert(values.end(), row + first, row + first + count);
    tokens.events(site + map, values);
  };
  columns("H_pre", 0, n), columns("H_post", n, n), columns("H_res", 2 * n, n * n);
}

/// Compares all intermediate values of the first batch with the initial weights.
void verify_values(Verifier& v, const ReferenceModel& model) {
  OwnTape tape(model.network().params());
  const std::int64_t samples = model.samples();
  const SequenceBatch batch = model.batch(tape, 0, 0, samples);
  const Tokens tokens(v, model, 0);
  const Observer watch = [&](const std::string& name, const Tensor& value) {
    if (name.ends_with("/maps"))
      verify_maps(tokens, name.substr(0, name.rfind('/') + 1), doubles(value), model.network().arch().streams);
    else
      tokens.events(name, doubles(value));
  };
  const Var f = model.network().features(tape, batch, {}, &watch);

  visit_float(tape.real_dtype(), [&]<class T>() {
    const std::int64_t c = f.columns();
    const HostView all_items(model.network().item_table().value);
    const T *features = to_host(tape, f.value()).template data<T>(), *table = all_items->data<T>();
    const auto score = [&](std::int64_t token, std::int64_t item) {
      double sum = 0;
      for (std::int64_t k = 0; k < c; ++k)
        sum += static_cast<double>(features[token * c + k]) * static_cast<double>(table[item * c + k]);
      return static_cast<T>(sum);
    };
    const auto logits = [&](const char* name, const Tensor& items) {
      std::vector<double> values;
      const std::int64_t each = items.size() / batch.tokens();
      for (std::int64_t k = 0; k < items.size(); ++k)
        values.push_back(static_cast<double>(score(k / each, items.data<std::int32_t>()[k])));
      tokens.compare(name, values, [&](std::int64_t m) { return model.is_target(0, m); });
    };
    logits("pos_logits", batch.pos), logits("neg_logits", batch.neg);
    const std::vector<std::int64_t> candidates = v.file().read<std::int64_t>("/inputs/candidates");
    const std::size_t each = candidates.size() / static_cast<std::size_t>(samples);
    std::vector<double> scores;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      scores.push_back(static_cast<double>(score(batch.begin.data<std::int64_t>()[i / each + 1] - 1, candidates[i])));
    v.relative("outputs", "predict", scores, kOutput);
  });
}

/// Whether the reference's gradient of an array is larger than rounding.
bool counts(const Verifier& v, const std::string& name) {
  if (!v.file().has("/grads64/" + name)) return false;
  for (const double value : v.file().read<double>("/grads64/" + name))
    if (std::abs(value) >= kVanishing) return true;
  return false;
}

/// Compares the training steps of the batches over all ranks, and the resulting state.
void verify_steps(Verifier& v, World& world, ReferenceModel& model, const VerifyOptions& options) {
  const H5File& file = v.file();
  OptimizerOptions how;
  how.name = file.text_attribute("/", "optimizer");
  how.beta1 = file.real_attribute("/", "adam_beta1"), how.beta2 = file.real_attribute("/", "adam_beta2");
  how.eps = file.real_attribute("/", "adam_eps");
  if (how.name == "adamw") how.weight_decay = file.real_attribute("/", "weight_decay");
  const double lr = file.real_attribute("/", "lr");

  const auto optimizer = make_optimizer(how, model.params(), trainable_ranges(model.params()));
  const auto step = make_sharded_step(world.communicator(), model, options.step);
  std::vector<double> losses;
  for (std::int64_t s = 0; s < model.batches(); ++s) {
    const StepSums sums = step->run({.step = s, .count = model.samples()});
    losses.push_back(sums.loss / sums.weight + add_penalty(model.params(), step->gradient(), sums.weight));
    if (s == 0) {
      v.relative("outputs", "loss", losses, kOutput);
      for (auto& [name, values] : by_parameter(model.params(), step->gradient())) {
        for (double& value : values) value /= sums.weight;
        if (counts(v, name))
          v.relative("grads", name, values, kGradient);
        else
          v.absolute("grads", name, values, {10 * kVanishing, kDouble}, "nothing but rounding");
      }
    }
    optimizer->step(step->gradient(), lr, 1 / sums.weight);
  }
  v.relative("after_steps", "losses", losses, kOutput);
  for (const Param& p : model.params().all())
    if (options.f64 || counts(v, p.name)) v.relative("after_steps", "weights/" + p.name, p.value, kWeights);
}

}  // namespace

void verify_sequence(World& world, const H5File& file, const VerifyOptions& options, ReferenceReport& report) {
  if (!file.has("/weights")) return;
  ReferenceModel model(file, options.f64 ? DType::f64 : DType::f32);
  VerifyOptions as_computed = options;  // collapsed hyper-connections are always computed in double
  as_computed.f64 = model.params().dtype() == DType::f64;
  Verifier v(file, as_computed, report);
  model.params().move_to(options.device);
  if (is_half(options.storage)) {
    require_usage(!as_computed.f64, "option precision: this file's network computes in double; use fp32");
    model.params().store_as(options.storage);
  }
  verify_values(v, model);
  verify_steps(v, world, model, as_computed);
}

}  // namespace lockstep
