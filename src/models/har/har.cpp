#include "lockstep/models/har/har.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/linear.hpp"
#include "lockstep/ops/row_groups.hpp"

namespace lockstep {

namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

/// Initial values of PyTorch's Linear and Conv2d, weight and bias alike.
ParamStore::Init torch_init(std::int64_t fan_in) { return init::uniform(1 / std::sqrt(real(fan_in))); }
Linear torch_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out) {
  return add_linear(params, name, in, out, torch_init(in), torch_init(in));
}
/// Not truncated: the reference truncates this distribution at 2, which is 100 standard deviations.
Linear encoder_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out) {
  return add_linear(params, name, in, out, init::normal(0.02), init::zeros());
}

/// x (N, T, D) + positions (1, T, D)
Var add_positions(Tape& t, Var x, const Param& positions) {
  const profile::Span span("positions");
  Var y = t.output(x.shape(), t.wants_grad({x}, {&positions}));
  ops::add_to_each(t.stream(), y.value(), x.value(), t.value(positions));
  t.record("positions", y, {&positions}, [=, &t, &positions] {
    ops::sum_of_all(t.stream(), t.grad_of(positions), y.grad());
    t.pass_grad({x}, y);
  });
  return y;
}

/// The mean of each `count` consecutive sequences. shapes  (B count, T, D) -> (B, T, D)
Var mean_of_sequences(Tape& t, Var x, std::int64_t count) {
  const Shape& shape = x.shape();
  const profile::Span span("mean_of_sequences");
  Var y = t.output({shape[0] / count, shape[1], shape[2]}, t.wants_grad({x}));
  ops::mean_of_groups(t.stream(), {y.value()}, x.value());
  t.record("mean_of_sequences", y, {}, [=, &t] { ops::spread_mean(t.stream(), t.grad_of(x), y.grad()); });
  return y;
}

Dropout dropout_of(const HarDraws* draws, double rate, const std::string& site) {
  if (!draws || rate == 0) return {};
  return {
      .rate = rate, .seed = draws->seed, .step = draws->step, .site = Site(site), .step_on_gpu = draws->step_on_gpu};
}

}  // namespace

std::int64_t HarArch::tokens() const {
  if (input == Input::signal) return (length + patch - 1) / patch;
  const std::int64_t side = image / patch;
  return side * side;
}

double HarArch::embedding_products() const {
  // The embedding of a two-colour picture is a sum over few pixels, not a matrix product.
  const std::int64_t embedded = mode == Mode::flatten || mode == Mode::average ? channels : 1;
  return input == Input::image ? 0 : real(embedded * tokens()) * real(dim * patch);
}

double HarArch::products() const {
  const std::int64_t columns = heads * head_width, time = tokens();
  const double layer = real(time) * (real(4 * dim * columns) + real(2 * dim * mlp) + real(2 * time * columns));
  const double pooling = pool == Pool::attention ? real(time) * real(dim * (dim / 4)) : 0;
  double head = 0;
  std::int64_t width = sequences() * dim;
  for (const std::int64_t h : hidden) {
    head += real(width) * real(h);
    width = h;
  }
  return real(sequences()) * (real(layers) * layer + pooling) + head + real(width) * real(classes);
}

double HarArch::training_flops() const {
  if (!frozen) return 2 * (3 * products() + 2 * embedding_products());
  HarArch trained = *this;
  trained.layers = 0;
  return 2 * (products() + embedding_products() + 2 * trained.products());
}

std::int64_t HarArch::parameters() const {
  const std::int64_t columns = heads * head_width;
  const std::int64_t layer =
      4 * dim + 3 * (dim + 1) * columns + (columns + 1) * dim + (dim + 1) * mlp + (mlp + 1) * dim;
  std::int64_t sum = (patch_values() + 1) * dim + 4 * dim + tokens() * dim + layers * layer;
  if (pool == Pool::attention) sum += (dim + 1) * (dim / 4) + dim / 4 + 1;
  std::int64_t width = sequences() * dim;
  for (const std::int64_t h : hidden) {
    sum += (width + 3) * h;
    width = h;
  }
  return sum + (width + 1) * classes;
}

void HarArch::check() const {
  const bool signal = input == Input::signal;
  const std::int64_t extent = signal ? length : image;
  require_usage(patch <= extent, "option model.patch = ", patch, ": larger than the ", extent,
                signal ? " samples of a window" : " pixels of a row");
  require_usage(heads * head_width % 16 == 0, "options model.heads = ", heads, " and model.head_width = ", head_width,
                ": their product must be a multiple of 16");
  require_usage(pool == Pool::mean || dim >= 4, "option model.dim = ", dim,
                ": must be at least 4 for attention pooling");
  for (const std::int64_t h : hidden)
    require_usage(h >= 1, "option model.hidden: a width of ", h, "; each must be at least 1");
}

Har::Har(const HarArch& arch, DType dtype, std::uint64_t seed) : arch_(arch), params_(dtype) {
  arch.check();
  const std::int64_t dim = arch.dim, columns = arch.heads * arch.head_width;
  const auto norm = [&](const std::string& name, std::int64_t width) {
    return add_layernorm(params_, name, width, arch.norm_eps);
  };
  if (arch.input == HarArch::Input::image) {
    const std::int64_t fan_in = arch.patch_values();
    stem_.weight = &params_.add("encoder.stem_conv.weight", {dim, 3, arch.patch, arch.patch}, torch_init(fan_in));
    stem_.bias = &params_.add("encoder.stem_conv.bias", {dim}, torch_init(fan_in));
  } else {
    stem_ = torch_linear(params_, "encoder.stem", arch.patch, dim);
  }
  stem_norm_ = norm("encoder.stem_ln", dim);
  positions_ = &params_.add("encoder.pos_embedding", {1, arch.tokens(), dim}, init::normal(0.02));
  for (std::int64_t l = 0; l < arch.layers; ++l) {
    const std::string path = join("encoder.encoder_layers.", l, ".");
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = norm(path + "mha_ln", dim);
    layer.qkv =
        add_stacked_linears(params_, {path + "mha.query_dense", path + "mha.key_dense", path + "mha.value_dense"}, dim,
                            columns, init::normal(0.02), init::zeros());
    layer.output = encoder_linear(params_, path + "mha.output_dense", columns, dim);
    layer.mlp_norm = norm(path + "mlp.layernorm", dim);
    layer.up = encoder_linear(params_, path + "mlp.dense1", dim, arch.mlp);
    layer.down = encoder_linear(params_, path + "mlp.dense2", arch.mlp, dim);
  }
  output_norm_ = norm("encoder.output_ln", dim);
  if (arch.frozen)
    for (Param& p : params_.all()) p.trainable = false;
  if (arch.pool == HarArch::Pool::attention) {
    score_hidden_ = torch_linear(params_, "pooling.attention.0", dim, dim / 4);
    score_ = torch_linear(params_, "pooling.attention.2", dim / 4, 1);
  }
  std::int64_t width = arch.sequences() * dim, index = 0;
  for (const std::int64_t h : arch.hidden) {
    const Linear linear = torch_linear(params_, join("classifier.head.", index), width, h);
    head_.push_back({linear, norm(join("classifier.head.", index + 1), h)});
    width = h;
    index += 4;  // the reference also numbers the activation and the dropout
  }
  last_ = torch_linear(params_, join("classifier.head.", index), width, arch.classes);
  params_.allocate(seed);
  for (const Param& p : params_.all()) every_param_.push_back(&p);
}

Var Har::embed(Tape& t, const Tensor& patches) const {
  const Param *w = stem_.weight, *b = stem_.bias;
  const profile::Span span("stem");
  Var y = t.output({patches.shape()[0], patches.shape()[1], arch_.dim}, t.wants_grad({}, {w, b}));
  const Shape matrix{arch_.dim, arch_.patch_values()};
  ops::linear_forward(t.stream(), y.value(), {}, patches, t.value(*w).reshaped(matrix), t.value(*b), Activation::none);
  t.record("stem", y, {w, b}, [=, &t] {
    const Target dw = t.grad_of(*w);
    ops::linear_backward(t.stream(), {}, {dw.tensor.reshaped(matrix), true}, t.grad_of(*b), y.grad(), {}, patches,
                         t.value(*w).reshaped(matrix));
  });
  return y;
}

Var Har::embed(Tape& t, const ops::LinePictures& pictures) const {
  const Param *w = stem_.weight, *b = stem_.bias;
  const profile::Span span("line_patches");
  Var y = t.output({pictures.count, arch_.tokens(), arch_.dim}, t.wants_grad({}, {w, b}));
  ops::line_patches_forward(t.stream(), y.value(), pictures, t.value(*w), t.value(*b));
  t.record("line_patches", y, {w, b},
           [=, &t] { ops::line_patches_backward(t.stream(), t.grad_of(*w), t.grad_of(*b), y.grad(), pictures); });
  return y;
}

void window_log_probabilities(const Tensor& logits, std::int64_t classes, std::int64_t group, std::span<double> out) {
  const auto width = static_cast<std::size_t>(classes);
  std::ranges::fill(out, 0.0);
  visit_float(logits.dtype(), [&]<class T>() {
    const T* x = logits.data<T>();
    for (std::size_t n = 0; n < out.size() / width * static_cast<std::size_t>(group); ++n, x += classes) {
      const double most = static_cast<double>(*std::max_element(x, x + classes));
      double sum = 0;
      for (std::size_t k = 0; k < width; ++k) sum += std::exp(static_cast<double>(x[k]) - most);
      double* to = out.data() + n / static_cast<std::size_t>(group) * width;
      for (std::size_t k = 0; k < width; ++k) to[k] += static_cast<double>(x[k]) - most - std::log(sum);
    }
  });
  for (double& value : out) value /= static_cast<double>(group);
}

Var Har::encode(Tape& t, Var x, const HarDraws* draws, const Observer* watch) const {
  const HarDraws* drawn = arch_.frozen && !arch_.frozen_dropout ? nullptr : draws;
  const SampleRows rows = drawn ? drawn->sequences : SampleRows{};
  const auto dropped = [&](const std::string& site) { return dropout_of(drawn, arch_.encoder_dropout, site); };
  x = layernorm(t, x, stem_norm_);
  if (watch) (*watch)("stem_ln", x.value());
  x = add_positions(t, x, *positions_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    const std::string site = join("har.", l, ".");
    AttentionOptions options = {
        .heads = arch_.heads, .scale = 1 / std::sqrt(real(arch_.head_width)), .dropout = dropped(site + "weights")};
    if (options.dropout) options.samples = rows.samples;
    const Var qkv = stacked_linear(t, layernorm(t, x, layer.attention_norm), layer.qkv);
    const Var heads = attention(t, qkv, options);
    const Var middle = residual_linear(t, x, heads, layer.output, dropped(site + "attention"), rows);
    const Var inner = arch_.pre_norm ? layernorm(t, middle, layer.mlp_norm) : middle;
    const Var up = linear(t, inner, layer.up, Activation::gelu, dropped(site + "gelu"), rows);
    x = residual_linear(t, middle, up, layer.down, dropped(site + "mlp"), rows);
    if (!arch_.pre_norm) x = layernorm(t, x, layer.mlp_norm);
    if (!watch) continue;
    (*watch)(join("layer", l, "_qkv"), qkv.value());
    (*watch)(join("layer", l, "_mha"), linear(t, heads, layer.output).value());
    (*watch)(join("layer", l), x.value());
  }
  return layernorm(t, x, output_norm_);
}

Var Har::pool(Tape& t, Var x, const Observer* watch) const {
  if (arch_.pool == HarArch::Pool::mean) return token_pool(t, x, {}, arch_.sequences());
  const Var scores = linear(t, linear(t, x, score_hidden_, Activation::tanh), score_);
  if (watch) (*watch)("pool_scores", scores.value());
  return token_pool(t, x, scores, arch_.sequences());
}

Var Har::classify(Tape& t, Var embedded, const HarDraws* draws, const Observer* watch) const {
  if (arch_.mode == HarArch::Mode::average) embedded = mean_of_sequences(t, embedded, arch_.channels);
  const Var tokens = encode(t, embedded, draws, watch);
  if (watch) (*watch)("tokens", tokens.value());
  Var x = pool(t, tokens, watch);
  if (watch) (*watch)("pooled", x.value());
  for (std::size_t i = 0; i < head_.size(); ++i) {
    x = activation(t, layernorm(t, linear(t, x, head_[i].linear), head_[i].norm), Activation::gelu);
    if (const Dropout dropped = dropout_of(draws, arch_.dropout, join("har.head.", i)))
      x = dropout(t, x, dropped, draws->windows);
  }
  return linear(t, x, last_);
}

ops::SequenceClassifier Har::whole(std::int64_t windows) const {
  const auto linear = [](const Linear& l) {
    return ops::ClassifierPlaces::Linear{.weight = l.weight->offset, .bias = l.bias->offset};
  };
  const auto norm = [](const LayerNorm& n) {
    return ops::ClassifierPlaces::Norm{.gamma = n.gamma->offset, .beta = n.beta->offset};
  };
  ops::SequenceClassifier all;
  const bool scored = arch_.pool == HarArch::Pool::attention;
  all.sizes = {.windows = windows,
               .sequences = arch_.sequences(),
               .time = arch_.tokens(),
               .patch = arch_.patch_values(),
               .dim = arch_.dim,
               .layers = arch_.layers,
               .heads = arch_.heads,
               .head_width = arch_.head_width,
               .mlp = arch_.mlp,
               .scores = scored ? arch_.dim / 4 : 0,
               .hidden_layers = std::ssize(head_),
               .classes = arch_.classes,
               .pre_norm = arch_.pre_norm ? 1 : 0,
               .eps = arch_.norm_eps};
  ops::ClassifierPlaces& at = all.places;
  at.stem = linear(stem_);
  at.stem_norm = norm(stem_norm_);
  at.output_norm = norm(output_norm_);
  at.positions = positions_->offset;
  for (std::size_t l = 0; l < std::min(layers_.size(), at.layers.size()); ++l) {
    const Layer& layer = layers_[l];
    at.layers[l] = {.attention_norm = norm(layer.attention_norm),
                    .mlp_norm = norm(layer.mlp_norm),
                    .qkv = linear(layer.qkv.front()),
                    .output = linear(layer.output),
                    .up = linear(layer.up),
                    .down = linear(layer.down)};
  }
  if (scored) at.score_hidden = linear(score_hidden_), at.score = linear(score_);
  for (std::size_t l = 0; l < std::min(head_.size(), at.hidden.size()); ++l) {
    all.sizes.hidden[l] = arch_.hidden[l];
    at.hidden[l] = linear(head_[l].linear);
    at.hidden_norm[l] = norm(head_[l].norm);
  }
  at.last = linear(last_);
  return all;
}

Var Har::classify(Tape& t, const Tensor& patches, const HarDraws* draws) const {
  ops::SequenceClassifier all = whole(patches.shape()[0] / arch_.sequences());
  const bool trains = t.wants_grad({}, {last_.weight});
  if (arch_.mode == HarArch::Mode::average || (trains && arch_.frozen) ||
      !ops::has_sequence_classifier(t.stream(), t.dtype(), all.sizes))
    return classify(t, embed(t, patches), draws);
  if (draws) {
    ops::ClassifierDropout& d = all.dropout;
    d.encoder = arch_.encoder_dropout, d.head = arch_.dropout;
    d.seed = draws->seed, d.step = draws->step, d.step_on_gpu = draws->step_on_gpu;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto site = [&](const char* name) { return Site(join("har.", l, ".", name)); };
      d.layers[l] = {
          .weights = site("weights"), .attention = site("attention"), .gelu = site("gelu"), .mlp = site("mlp")};
    }
    for (std::size_t l = 0; l < head_.size(); ++l) d.hidden[l] = Site(join("har.head.", l));
    d.sequence_samples = draws->sequences.samples, d.window_samples = draws->windows.samples;
  }
  const profile::Span span("sequence_classifier");
  const ops::ClassifierSizes& sizes = all.sizes;
  const Param& first = params_.all().front();  // start of the flat vectors
  const auto flat = [&](const Tensor& of_first) {
    return Tensor(of_first.raw(), of_first.dtype(), {params_.flat_size()}, of_first.device());
  };
  const Tensor weights = flat(t.value(first));
  Var logits = t.output({sizes.windows, sizes.classes}, trains);
  const Tensor kept =
      t.keep({trains ? ops::classifier_kept(sizes) : sizes.windows * sizes.sequences * sizes.dim}, t.real_dtype());
  ops::sequence_classifier_forward(t.stream(), logits.value(), kept, patches, weights, all);
  t.record("sequence_classifier", logits, every_param_, [=, &t, &first] {
    const std::int64_t size = ops::classifier_scratch(t.stream(), t.dtype(), all.sizes, weights.size());
    ops::sequence_classifier_backward(t.stream(), flat(t.grad_of(first).tensor), logits.grad(), kept,
                                      t.keep({size}, t.real_dtype()), patches, weights, all);
  });
  return logits;
}

}  // namespace lockstep
