#include "lockstep/models/sequences/sasrec.hpp"

#include <algorithm>

#include "lockstep/base/profile.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/recompute.hpp"
#include "lockstep/ops/collapsed_connections.hpp"
#include "lockstep/ops/embedding.hpp"
#include "lockstep/ops/row_groups.hpp"

namespace lockstep {

using Norm = SasRecArch::Norm;
using PadMask = SasRecArch::PadMask;
using Mhc = SasRecArch::Mhc;

std::int64_t SasRecArch::parameters() const {
  const std::int64_t d = hidden, n = streams;
  const std::int64_t tables = timed ? 2 * (slots + time_span + 1) : slots + 1;
  const std::int64_t block = (timed ? 5 : 6) * d * (d + 1) + 4 * d;
  const std::int64_t site = 3 + (2 + n) * n * (n * d + 1);
  return (items + 1 + tables) * d + blocks * (block + (mhc == Mhc::none ? 0 : 2 * site)) + 2 * d;
}

void SasRecArch::check(Fault fault) const {
  const auto ask = [&](const Condition& condition, const auto&... parts) {
    detail::require_or(fault, condition, parts...);
  };
  ask(items >= 1 && slots >= 1 && hidden >= 1 && heads >= 1 && blocks >= 1, "sequence model of ", items,
      " items with maxlen ", slots, ", hidden_units ", hidden, ", num_heads ", heads, ", num_blocks ", blocks,
      ": each must be at least 1");
  ask(hidden % heads == 0, "model.hidden_units = ", hidden, ": must be a multiple of model.num_heads = ", heads);
  ask(!timed || time_span >= 1, "model.time_span = ", time_span, ": must be at least 1");
  ask(mhc == Mhc::none || streams >= 1, "model.mhc_expansion_rate = ", streams, ": must be at least 1");
  ask(pad_mask == PadMask::key || pad_mask == (timed ? PadMask::query : PadMask::none),
      "model.pad_mask = ", name(pad_mask), ": ",
      timed ? "tisasrec supports key and query" : "sasrec supports key and none");
  ask(mhc == Mhc::none || pad_mask == PadMask::key || mhc == Mhc::collapsed,
      "model.mhc = streams with model.pad_mask = ", name(pad_mask), ": streams require pad_mask = key");
  ask(!timed || mhc == Mhc::streams || norm == Norm::original, "model.norm = ", name(norm),
      ": tisasrec without streams requires norm = original");
  ask(timed || norm != Norm::original || mhc != Mhc::collapsed,
      "model.norm = original with model.mhc = collapsed: sasrec requires norm = pre or post");
  ask(ffn_residual || norm == Norm::original, "model.ffn_residual = false: requires model.norm = original");
  ask(dropout >= 0 && dropout < 1, "model.dropout = ", dropout, ": must be in [0, 1)");
}

// ------------------------------------------------------------------------------------------------------- parameters

namespace {

/// Xavier-normal or Xavier-uniform with the public code's fans; row 0 is zero if padded.
ParamStore::Init matrix_init(const SasRecArch& arch, std::int64_t rows, std::int64_t columns, bool padded) {
  const auto sum = static_cast<double>(rows + columns);
  ParamStore::Init draw = arch.xavier_uniform ? init::uniform(std::sqrt(6 / sum)) : init::normal(std::sqrt(2 / sum));
  if (!padded) return draw;
  return [=](const Philox& draws, std::uint64_t element) {
    return element < static_cast<std::uint64_t>(columns) ? 0.0 : draw(draws, element);
  };
}

/// A collapsed hyper-connection y = n x + g f, as the public code computes it; see ops/collapsed_connections.hpp.
/// shapes   x, f, y (N, C); alpha (); phi: weight (n, n C), bias (n)
Var mhc_collapsed(Tape& t, Var x, Var f, const Param& alpha, const Linear& phi) {
  const Param *w = phi.weight, *b = phi.bias;
  const ops::CollapsedConnection site = {t.value(alpha), t.value(*w), t.value(*b)};
  const profile::Span span("mhc_collapsed");
  Var y = t.output(x.shape(), t.wants_grad({x, f}, {&alpha, w, b}));
  ops::collapsed_connection_forward(t.stream(), y.value(), x.value(), f.value(), site);
  t.record("mhc_collapsed", y, {&alpha, w, b}, [=, &t, &alpha] {
    const ops::CollapsedConnection gradients = {t.grad_of(alpha).tensor, t.grad_of(*w).tensor, t.grad_of(*b).tensor};
    ops::collapsed_connection_backward(t.stream(), t.grad_of(x), t.grad_of(f), gradients, y.grad(), x.value(),
                                       f.value(), site);
  });
  return y;
}

/// y = x, with the rows of padding set to 0.
Var without_padding(Tape& t, Var x, std::span<const std::int32_t> items) {
  const profile::Span span("without_padding");
  Var y = t.output(x.shape(), t.wants_grad({x}));
  ops::mask_rows(t.stream(), {y.value(), false}, x.value(), items);
  t.record("without_padding", y, {}, [=, &t] { ops::mask_rows(t.stream(), t.grad_of(x), y.grad(), items); });
  return y;
}

}  // namespace

double ItemLoss::beta(std::int64_t items) const {
  if (kind != Kind::gbce) return 1;
  const double sampled = static_cast<double>(negatives) / static_cast<double>(items - 1);
  return 1 - calibration * (1 - sampled);
}

SasRec::SasRec(SasRecArch arch, DType dtype, std::uint64_t seed)
    : arch_(arch), params_(std::make_unique<ParamStore>(arch.mhc == Mhc::collapsed ? DType::f64 : dtype)) {
  arch_.check(Fault::usage);
  const bool draws = arch_.loss.kind == ItemLoss::Kind::gbce || arch_.loss.kind == ItemLoss::Kind::sampled_softmax;
  require_usage(!draws || arch_.loss.negatives < arch_.items, "option loss.negatives = ", arch_.loss.negatives,
                ": the data set has ", arch_.items, " items, which leaves ", arch_.items - 1,
                " besides the next one; use fewer, or loss.name = softmax");
  const std::int64_t d = arch_.hidden;
  const auto table = [&](const char* name, std::int64_t rows, bool padded, bool adjoins = false) {
    const auto init = matrix_init(arch_, rows, d, padded);
    const std::string weight = std::string(name) + ".weight";
    Param& p = adjoins ? params_->add_adjoining(weight, {rows, d}, init) : params_->add(weight, {rows, d}, init);
    if (!arch_.l2_items_only || params_->all().size() == 1) p.l2 = arch_.l2;
    return &p;
  };
  Param* items = table("item_emb", arch_.items + 1, true);
  items->row_sparse = arch_.loss.kind != ItemLoss::Kind::softmax;
  items_ = items;
  if (arch_.timed) {
    key_positions_ = table("abs_pos_K_emb", arch_.slots, false);
    value_positions_ = table("abs_pos_V_emb", arch_.slots, false, true);
    key_times_ = table("time_matrix_K_emb", arch_.time_span + 1, false);
    value_times_ = table("time_matrix_V_emb", arch_.time_span + 1, false);
  } else {
    Param& positions =
        params_->add("pos_emb.weight", {arch_.slots + 1, d}, matrix_init(arch_, arch_.slots + 1, d, true));
    positions_ = &positions;
  }
  for (std::int64_t i = 0; i < arch_.blocks; ++i) add_block(i);
  last_norm_ = add_layernorm(*params_, "last_layernorm", d, arch_.ln_eps);
  params_->allocate(seed);
}

void SasRec::add_block(std::int64_t i) {
  const std::int64_t d = arch_.hidden;
  const auto bias = init::uniform(1 / std::sqrt(static_cast<double>(d)));
  const auto convolution = [&](const std::string& name) {
    const Param& weight = params_->add(name + ".weight", {d, d, 1}, matrix_init(arch_, d, d, false));
    return Linear{&weight, &params_->add(name + ".bias", {d}, bias)};
  };
  const std::size_t before = params_->all().size();
  Block& b = blocks_.emplace_back();
  b.attention_norm = add_layernorm(*params_, join("attention_layernorms.", i), d, arch_.ln_eps);
  const std::string attention = join("attention_layers.", i, ".");
  const auto named = [&](char upper, char lower) { return attention + (arch_.timed ? upper : lower) + "_w"; };
  b.qkv = add_stacked_linears(*params_, {named('Q', 'q'), named('K', 'k'), named('V', 'v')}, d, d,
                              matrix_init(arch_, d, d, false), bias);
  if (!arch_.timed) b.out = add_linear(*params_, attention + "out_w", d, d, matrix_init(arch_, d, d, false), bias);
  b.ffn_norm = add_layernorm(*params_, join("forward_layernorms.", i), d, arch_.ln_eps);
  b.conv1 = convolution(join("forward_layers.", i, ".conv1"));
  b.conv2 = convolution(join("forward_layers.", i, ".conv2"));
  b.attention_drop = Site(join("dropout.attention.", i));
  b.ffn_drop1 = Site(join("dropout.ffn1.", i));
  b.ffn_drop2 = Site(join("dropout.ffn2.", i));
  if (arch_.mhc != Mhc::none) add_sites(b, i);
  for (auto p = params_->all().begin() + before; p != params_->all().end(); ++p) b.params.push_back(&*p);
  if (arch_.timed) b.params.insert(b.params.end(), {key_times_, value_times_});
}

void SasRec::add_sites(Block& b, std::int64_t i) {
  const MhcShape shape = {.streams = arch_.streams,
                          .columns = arch_.hidden,
                          .iterations = arch_.sinkhorn_iterations,
                          .gate = arch_.mhc_gate};
  b.attention_site = add_mhc_site(*params_, join("mhc_attn.", i), shape, 2 * i);
  b.ffn_site = add_mhc_site(*params_, join("mhc_ffn.", i), shape, 2 * i + 1);
}

// ----------------------------------------------------------------------------------------------------- forward pass

namespace {

/// What the parts of one forward pass share, on whatever tape they are.
struct PassState {
  SasRecDraws draws;
  SampleRows rows;
  std::span<const std::int32_t> items = {}, slots = {};
  std::span<const std::int32_t> positions = {};    ///< SASRec only
  std::span<const std::int64_t> times = {};        ///< TiSASRec only
  std::span<const std::int64_t> first_query = {};  ///< padded TiSASRec only
  std::int64_t pairs = 0;
  Var key_value_positions = {};             ///< TiSASRec: of keys and values, side by side; drawn once per step
  Tensor prepared_times = {};               ///< TiSASRec, on a GPU
  std::span<const std::int32_t> kept = {};  ///< the rows whose result is used, from the attention on; empty: all
};

}  // namespace

struct SasRec::Pass : PassState {
  const SasRec& net;
  Tape& t;
  const Observer* watch = nullptr;

  Pass(const SasRec& network, Tape& tape, const SequenceBatch& b, const SasRecDraws& d)
      : PassState{.draws = d,
                  .rows = {b.begin.span<const std::int64_t>(),
                           {reinterpret_cast<const std::uint64_t*>(b.user.data<std::int64_t>()),
                            static_cast<std::size_t>(b.samples())},
                           b.token_capacity,
                           b.slots},
                  .items = b.item.span<const std::int32_t>(),
                  .slots = b.slot.span<const std::int32_t>(),
                  .pairs = b.pairs},
        net(network),
        t(tape) {
    if (arch().timed) times = b.time.span<const std::int64_t>();
    if (b.position) positions = b.position.span<const std::int32_t>();
    if (b.first_query) first_query = b.first_query.span<const std::int64_t>();
  }
  /// The same pass on another tape.
  Pass(const Pass& p, Tape& tape, Var both) : PassState(p), net(p.net), t(tape) { key_value_positions = both; }

  const SasRecArch& arch() const { return net.arch_; }
  /// From now on only the newest row of each sample counts: the others are keys and values of the block that follows.
  void keep_newest() {
    const std::int64_t samples = std::ssize(rows.samples);
    Arena& arena = t.host_arena();
    const std::span<std::int32_t> last = allocate(arena, DType::i32, {samples}).span<std::int32_t>(),
                                  item = allocate(arena, DType::i32, {samples}).span<std::int32_t>();
    const std::span<std::int64_t> query = allocate(arena, DType::i64, {samples}).span<std::int64_t>();
    for (std::size_t b = 0; b < last.size(); ++b) {
      last[b] = static_cast<std::int32_t>(rows.offsets[b + 1] - 1);
      item[b] = items[static_cast<std::size_t>(last[b])];
      query[b] = last[b] - rows.offsets[b];
    }
    pairs = std::ssize(items);
    kept = last, items = item, first_query = query;
  }
  /// The rows of x whose result is used.
  Var keep(Var x) const {
    if (kept.empty() || x.shape()[0] == std::ssize(kept)) return x;
    const Shape& all = x.shape();
    const std::int64_t count = std::ssize(kept), width = all.size() / all[0];
    Var y = t.output(all.rank() == 2 ? Shape{count, width} : Shape{count, all[1], all[2]}, false);
    ops::embedding_forward(t.stream(), y.value().reshaped({count, width}), x.value().reshaped({all[0], width}), kept,
                           1);
    return y;
  }
  std::string path(const Block& b, const char* name) const { return join("block", &b - net.blocks_.data(), "/", name); }
  void note(const Block& b, const char* name, Var value) const {
    if (watch) (*watch)(path(b, name), value.value());
  }
  /// The values after both sites of a block with collapsed hyper-connections.
  void note_sites(const Block& b, Var attention, Var ffn) const {
    if (arch().mhc != Mhc::collapsed) return;
    note(b, "attn/mhc_out", attention);
    note(b, "ffn/mhc_out", ffn);
  }
  Dropout drop(Site site) const {
    return {.rate = draws.training ? arch().dropout : 0,
            .seed = draws.seed,
            .step = draws.step,
            .site = site,
            .step_on_gpu = draws.step_on_gpu};
  }
  /// sqrt(C) E[item], with positions (SASRec); then dropout. inputs: as in features()
  Var embed(Var* inputs) {
    const Dropout dropout = drop("dropout.embedding");
    const TableRows item{net.items_, items, net.input_scale(), 0}, place{net.positions_, positions, 1, 0};
    if (!arch().timed) {
      if (inputs == nullptr) return embedding_sum(t, item, place, dropout, rows);
      return lockstep::dropout(t, add(t, variable_rows(inputs), embedding(t, *place.table, positions, 1, 0)), dropout,
                               rows);
    }
    const Var x = inputs == nullptr ? embedding_sum(t, item, {}, dropout, rows)
                                    : lockstep::dropout(t, variable_rows(inputs), dropout, rows);
    key_value_positions =
        embedding_pair(t, *net.key_positions_, *net.value_positions_, slots, drop("dropout.abs_pos"), rows);
    prepared_times = prepare_times(t, attention_of(net.blocks_.front()), time_tables());
    return x;
  }
  Var variable_rows(Var* inputs) const {
    const Tensor values = t.keep({std::ssize(items), arch().hidden});
    ops::embedding_forward(t.stream(), values, t.value(*net.items_), items, net.input_scale());
    return *inputs = t.variable(values);
  }

  CausalAttention attention_of(const Block& b) const {
    CausalAttention attention{.rows = rows,
                              .heads = arch().heads,
                              .dropout = drop(b.attention_drop),
                              .first_query = first_query,
                              .pairs = pairs};
    if (arch().pad_mask == PadMask::none) attention.fill = -1000;
    return attention;
  }
  TimeTables time_tables() const {
    return {.keys = net.key_times_,
            .values = net.value_times_,
            .times = times,
            .drop = arch().time_dropout,
            .dropout = drop("dropout.time_matrix"),
            .prepared = prepared_times};
  }
  /// The heads of attention, side by side, with queries from a, keys and values from c.
  Var heads(const Block& b, Var a, Var c) const {
    const CausalAttention attention = attention_of(b);
    const std::span<const Linear> qkv = b.qkv;
    if (!arch().timed && a == c) return causal_attention(t, stacked_linear(t, a, qkv), {}, attention);
    const Var q = linear(t, a, qkv[0]);
    if (!arch().timed) return causal_attention(t, q, stacked_linear(t, c, qkv.subspan(1)), attention);
    const Var kv = stacked_linear(t, c, qkv.subspan(1), key_value_positions);
    return causal_attention(t, q, kv, attention, time_tables());
  }
  /// Att(a, c) from its heads.
  Var attention(const Block& b, Var heads) const { return arch().timed ? heads : linear(t, heads, b.out); }
  /// x + Att(a, c) from its heads.
  Var add_attention(const Block& b, Var x, Var heads) const {
    if (watch) note(b, "attn_out", attention(b, heads));
    return arch().timed ? add(t, x, heads) : residual_linear(t, x, heads, b.out);
  }
  /// The first layer of FFN(z).
  Var hidden(const Block& b, Var z) const { return linear(t, z, b.conv1, Activation::relu, drop(b.ffn_drop1), rows); }
  /// FFN(z) with the dropout of its result.
  Var feed_forward(const Block& b, Var z) const {
    const Var inner = hidden(b, z);
    if (watch) note(b, "ffn_out", linear(t, inner, b.conv2));
    return linear(t, inner, b.conv2, Activation::none, drop(b.ffn_drop2), rows);
  }
  /// x + FFN(z)
  Var add_feed_forward(const Block& b, Var x, Var z) const {
    const Var inner = hidden(b, z);
    if (watch) note(b, "ffn_out", linear(t, inner, b.conv2));
    return residual_linear(t, x, inner, b.conv2, drop(b.ffn_drop2), rows);
  }

  Var block(const Block& b, Var x) const {
    x = arch().mhc == Mhc::streams ? streams(b, x) : plain(b, x);
    return arch().pad_mask == PadMask::query ? without_padding(t, x, items) : x;
  }
  /// A block without mHC, or with collapsed hyper-connections. Layer norms come first among the operations on a sum,
  /// see residual_linear().
  Var plain(const Block& b, Var x) const {
    if (arch().norm == Norm::original) return arch().mhc == Mhc::collapsed ? collapsed_original(b, x) : original(b, x);
    const bool pre = arch().norm == Norm::pre;
    const Var z = pre ? layernorm(t, x, b.attention_norm) : x;
    const Var a = keep(heads(b, z, z));
    x = keep(x);
    const Var h = add_attention(b, x, a);
    const Var c = collapse(b.attention_site, x, pre ? h : layernorm(t, h, b.attention_norm));
    const Var g = add_feed_forward(b, c, pre ? layernorm(t, c, b.ffn_norm) : c);
    x = collapse(b.ffn_site, c, pre ? g : layernorm(t, g, b.ffn_norm));
    note_sites(b, c, x);
    return x;
  }
  Var original(const Block& b, Var x) const {
    const Var q = layernorm(t, x, b.attention_norm);
    const Var z = layernorm(t, add_attention(b, keep(q), keep(heads(b, q, x))), b.ffn_norm);
    return arch().ffn_residual ? add_feed_forward(b, z, z) : feed_forward(b, z);
  }
  /// Sub-layers without residuals: the hyper-connections replace them.
  Var collapsed_original(const Block& b, Var x) const {
    const Var f = attention(b, keep(heads(b, layernorm(t, x, b.attention_norm), x)));
    note(b, "attn_out", f);
    const Var h = collapse(b.attention_site, keep(x), f), z = layernorm(t, h, b.ffn_norm);
    x = collapse(b.ffn_site, z, feed_forward(b, z));
    note_sites(b, h, x);
    return x;
  }
  /// The collapsed hyper-connection of x and f if the model has them, else f.
  Var collapse(const MhcSite& site, Var x, Var f) const {
    return arch().mhc == Mhc::collapsed ? mhc_collapsed(t, x, f, *site.alpha_post, site.phi_post) : f;
  }

  /// A block on streams X (M, n, C). The first block starts with equal streams (M, C), the last one sums them (M, C).
  Var streams(const Block& b, Var x) const {
    const bool last = &b == &net.blocks_.back();
    x = mhc(
        t, x, b.attention_site,
        [&](Var u) {
          const Var z = layernorm(t, u, b.attention_norm);
          return attention(b, heads(b, z, arch().timed ? u : z));
        },
        MhcResult::streams, watch, path(b, "attn/"));
    return mhc(
        t, keep(x), b.ffn_site, [&](Var u) { return feed_forward(b, layernorm(t, u, b.ffn_norm)); },
        last ? MhcResult::sum : MhcResult::streams, watch, path(b, "ffn/"));
  }
  Shape shape_after(const Block& b) const {
    const auto tokens = std::ssize(items);
    const bool streams = arch().mhc == Mhc::streams && &b != &net.blocks_.back();
    return streams ? Shape{tokens, arch().streams, arch().hidden} : Shape{tokens, arch().hidden};
  }
};

void SasRec::prepare(Arena& arena, SequenceBatch& batch) const {
  const auto* items = batch.item.data<std::int32_t>();
  if (!arch_.timed) {
    batch.position = allocate(arena, DType::i32, {batch.tokens()});
    for (std::int64_t m = 0; m < batch.tokens(); ++m)
      batch.position.data<std::int32_t>()[m] = items[m] != 0 ? batch.slot.data<std::int32_t>()[m] + 1 : 0;
  }
  if (arch_.pad_mask != PadMask::query) return;
  batch.first_query = allocate(arena, DType::i64, {batch.samples()});
  for (std::int64_t b = 0; b < batch.samples(); ++b) {
    const std::int32_t* sample = items + batch.begin.data<std::int64_t>()[b];
    batch.first_query.data<std::int64_t>()[b] =
        std::find_if(sample, sample + arch_.slots, [](auto i) { return i != 0; }) - sample;
  }
}

Var SasRec::features(Tape& t, const SequenceBatch& batch, const SasRecDraws& draws, const Observer* watch, Var* inputs,
                     bool newest) const {
  SequenceBatch prepared = batch;
  if (!batch.position && !batch.first_query) prepare(t.host_arena(), prepared);
  Pass pass(*this, t, prepared, draws);
  pass.watch = watch;
  Var x = pass.embed(inputs);
  if (watch) (*watch)("embedded", x.value());
  for (const Block& b : blocks_) {
    if (newest && &b == &blocks_.back()) pass.keep_newest();
    if (arch_.recompute && !watch) {
      x = recompute(
          t, pass.shape_after(b), {x, pass.key_value_positions}, b.params,
          [pass, &b](Tape& tape, std::span<const Var, 3> in) { return Pass(pass, tape, in[1]).block(b, in[0]); });
      continue;
    }
    x = pass.block(b, x);
    pass.note(b, "out", x);
  }
  x = layernorm(t, x, last_norm_);
  if (watch) (*watch)("log_feats", x.value());
  return x;
}

Tensor SasRec::newest(Tape& t, const SequenceBatch& batch) const {
  return features(t, batch, {}, nullptr, nullptr, true).value();
}

Var SasRec::loss(Tape& t, Var features, const SequenceBatch& batch) const {
  const std::span<const std::int32_t> pos = batch.pos.span<const std::int32_t>();
  if (arch_.loss.kind == ItemLoss::Kind::softmax)
    return item_softmax(t, features, *items_, pos, std::max<std::int64_t>(1, item_parts_));
  if (arch_.loss.kind == ItemLoss::Kind::sampled_softmax)
    return sampled_softmax(t, features, *items_, pos, batch.candidates.span<const std::int32_t>(), batch.bias);
  return sampled_cross_entropy(t, features, *items_, pos, batch.neg.span<const std::int32_t>(),
                               arch_.loss.beta(arch_.items));
}

}  // namespace lockstep
