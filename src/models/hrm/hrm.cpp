#include "lockstep/models/hrm/hrm.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/ops/cast.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/positions.hpp"
#include "lockstep/ops/puzzle_embedding.hpp"

namespace lockstep {

namespace {
std::int64_t gated_width(double expansion, std::int64_t inputs) {
  // nearbyint rounds a half to even, like round() in the public code.
  const double width = std::nearbyint(expansion * static_cast<double>(inputs) * 2 / 3);
  return 256 * static_cast<std::int64_t>(std::ceil(width / 256));
}

/// Copies the positions [first, first + count) of each sequence. shapes  x (B, T, D) -> (B, count, D)
Var positions_of(Tape& t, Var x, std::int64_t first, std::int64_t count) {
  const profile::Span span("positions_of");
  Var y = t.output({x.shape()[0], count, x.columns()}, t.wants_grad({x}));
  ops::take_positions(t.stream(), y.value(), x.value(), first);
  t.record("positions_of", y, {}, [=, &t] { ops::take_positions_backward(t.stream(), t.grad_of(x), y.grad(), first); });
  return y;
}
}  // namespace

std::int64_t HrmArch::inter() const { return gated_width(expansion, hidden); }
std::int64_t HrmArch::mixing_inter() const { return gated_width(expansion, length()); }

std::int64_t HrmArch::prefix() const {
  return puzzle_positions >= 0 ? puzzle_positions : (puzzle_width() + hidden - 1) / hidden;
}

std::int64_t HrmArch::parameters() const {
  const std::int64_t blocks = l_layers + (one_network ? 0 : h_layers);
  const std::int64_t mixing = mlp_t ? 3 * mixing_inter() * length() : 4 * hidden * hidden;
  return blocks * (mixing + 3 * hidden * inter()) + 2 * vocab * hidden + 2 * hidden + 2 + 2 * hidden +
         identifiers * puzzle_width() + (positions == "learned" ? length() * hidden : 0);
}

double HrmArch::level_flops(std::int64_t layers) const {
  const auto t = static_cast<double>(length()), d = static_cast<double>(hidden), i = static_cast<double>(inter());
  const double mixing = mlp_t ? 3 * static_cast<double>(mixing_inter()) * d : 4 * d * d + 2 * t * d;
  return static_cast<double>(layers) * 2 * t * (mixing + 3 * d * i);
}

void HrmArch::check() const {
  require_usage(!mlp_t || positions != "rope",
                "model.pos_encodings = rope: model.mlp_t has no attention with queries to rotate; set "
                "model.pos_encodings = none or learned");
  require_usage(mlp_t || hidden % heads == 0, "model.hidden_size = ", hidden,
                ": must be a multiple of model.num_heads = ", heads);
  require_usage(positions != "rope" || hidden / heads % 2 == 0,
                "model.pos_encodings = rope: needs heads of even width, ", hidden, " / ", heads, " is odd");
  const auto has_width = [&](std::int64_t inputs) {  // consistent with gated_width(), where a half rounds to 0
    return expansion * static_cast<double>(inputs) * 2 / 3 > 0.5;
  };
  require_usage(has_width(hidden) && (!mlp_t || seq_len == 0 || has_width(length())), "model.expansion = ", expansion,
                ": rounds the width of a gated layer to 0; use a larger one");
  require_usage(puzzle_width() <= prefix() * hidden, "model.puzzle_emb_ndim = ", puzzle_width(), ": does not fit into ",
                prefix(), " positions of ", hidden);
}

Hrm::Level Hrm::add_level(const std::string& name, std::int64_t layers) {
  const std::int64_t d = arch_.hidden, inter = arch_.inter();
  const auto lecun = [](std::int64_t fan_in) {
    return init::truncated_normal(1 / std::sqrt(static_cast<double>(fan_in)));
  };
  Level level{name, {}};
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string layer = name + ".layers." + std::to_string(i);
    const auto add = [&](const char* weight, std::int64_t out, std::int64_t in) {
      return &params_.add(layer + weight, {out, in}, lecun(in));
    };
    Block b;
    if (arch_.mlp_t) {
      const std::int64_t length = arch_.length(), width = arch_.mixing_inter();
      b.mixing_gate_up = add(".mlp_t.gate_up_proj.weight", 2 * width, length);
      b.mixing_down = add(".mlp_t.down_proj.weight", length, width);
    } else {
      b.qkv = add(".self_attn.qkv_proj.weight", 3 * d, d);
      b.out = add(".self_attn.o_proj.weight", d, d);
    }
    b.gate_up = add(".mlp.gate_up_proj.weight", 2 * inter, d);
    b.down = add(".mlp.down_proj.weight", d, inter);
    level.blocks.push_back(b);
  }
  return level;
}

Hrm::Hrm(const HrmArch& arch, DType dtype, std::uint64_t seed) : arch_(arch), params_(dtype) {
  arch_.check();
  const std::int64_t d = arch_.hidden;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const auto buffer = [&](const std::string& name, Shape shape, ParamStore::Init values) {
    Param& p = params_.add(name, shape, std::move(values));
    p.trainable = false;
    return &p;
  };
  if (arch_.puzzle_width() > 0)
    puzzle_ = buffer("puzzle_emb.weights", {arch_.identifiers, arch_.puzzle_width()}, init::zeros());
  h_init_ = buffer("H_init", {d}, init::truncated_normal(1));
  l_init_ = buffer("L_init", {d}, init::truncated_normal(1));
  tokens_ = &params_.add("embed_tokens.embedding_weight", {arch_.vocab, d}, init::truncated_normal(scale));
  if (arch_.positions == "learned")
    positions_ = &params_.add("embed_pos.embedding_weight", {arch_.length(), d}, init::truncated_normal(scale));
  l_level_ = add_level("L_level", arch_.l_layers);
  if (!arch_.one_network) h_level_ = add_level("H_level", arch_.h_layers);
  lm_head_ = &params_.add("lm_head.weight", {arch_.vocab, d}, init::truncated_normal(scale));
  q_head_.weight = &params_.add("q_head.weight", {2, d}, init::zeros());
  q_head_.bias = &params_.add("q_head.bias", {2}, [](const Philox&, std::uint64_t) { return -5.0; });
  params_.allocate(seed);
  make_rope({});
}

void Hrm::make_rope(Device device) {
  if (arch_.positions != "rope") return;
  rope_ = make_rope_table(params_.dtype(), arch_.length(), arch_.hidden / arch_.heads, arch_.rope_theta, device);
}

void Hrm::move_to(Device device) {
  params_.move_to(device);
  make_rope(device);
}

Var Hrm::embed(Tape& t, const Tensor& tokens, const PuzzleRows& puzzles) const {
  const ops::PuzzleEmbedding embedding = {
      .table = t.value(*tokens_),
      .puzzles = puzzle_ ? t.value(*puzzle_) : Tensor{},
      .where = positions_ ? t.value(*positions_) : Tensor{},
      .tokens = tokens,
      .ids = puzzles.identifiers,
      .scale = std::sqrt(static_cast<double>(arch_.hidden)) * (positions_ ? 0.707106781 : 1)};
  const profile::Span span("puzzle_embedding");
  Var x = t.output({tokens.shape()[0], arch_.length(), arch_.hidden}, t.wants_grad({}, {tokens_}));
  ops::puzzle_embedding_forward(t.stream(), x.value(), embedding);
  t.record("puzzle_embedding", x, {tokens_, positions_}, [=, this, &t, gradient = puzzles.gradient] {
    const Target where = positions_ ? t.grad_of(*positions_) : Target{};
    ops::puzzle_embedding_backward(t.stream(), gradient, t.grad_of(*tokens_).tensor, where.tensor, x.grad(), embedding);
  });
  return x;
}

void Hrm::reset(Tape& t, const Tensor& z_h, const Tensor& z_l, const Tensor& starts) const {
  Tensor where = starts;
  if (!where) {
    where = allocate(t.host_arena(), DType::i32, {z_h.shape()[0]});
    for (std::int32_t& start : where.span<std::int32_t>()) start = 1;
  }
  ops::fill_sequences(t.stream(), z_h, t.value(*h_init_), where);
  ops::fill_sequences(t.stream(), z_l, t.value(*l_init_), where);
}

Var Hrm::attend(Tape& t, const Block& b, Var x) const {
  const double width = static_cast<double>(arch_.hidden / arch_.heads);
  return attention(t, linear(t, x, {b.qkv}),
                   {.heads = arch_.heads, .scale = 1 / std::sqrt(width), .cos = rope_.cos, .sin = rope_.sin});
}

Var Hrm::gated(Tape& t, const Block& b, Var x) const {
  return gated_residual(t, x, *b.gate_up, *b.down, arch_.mlp_t ? std::nullopt : std::optional(arch_.rms_eps));
}

Normed Hrm::block(Tape& t, const Level& l, std::size_t i, Var x, const Observer* watch, const NormTo& to) const {
  const Block& b = l.blocks[i];
  const auto note = [&](const char* part, Var value, Var subtracted) {
    if (!watch) return;
    const Tensor seen = t.keep(value.shape());
    ops::scale(t.stream(), {seen}, subtracted.value(), -1);
    ops::add(t.stream(), seen, seen, value.value());
    (*watch)(l.name + ".layers." + std::to_string(i) + part, seen);
  };
  if (arch_.mlp_t) {
    x = token_mixing(t, x, *b.mixing_gate_up, *b.mixing_down, arch_.rms_eps);
    if (watch) (*watch)(l.name + ".layers." + std::to_string(i) + ".mixed", x.value());
  } else {
    // The norm of this sum is part of gated().
    const Var sum = residual_linear(t, x, attend(t, b, x), {b.out});
    note(".self_attn", sum, x);
    x = sum;
  }
  const Var sum = gated(t, b, x);
  if (watch) note(".mlp", sum, arch_.mlp_t ? x : rmsnorm(t, x, arch_.rms_eps).y);
  return rmsnorm(t, sum, arch_.rms_eps, to);
}

/// to  destination of the last norm
Normed Hrm::level(Tape& t, const Level& l, Var input, const Observer* watch, const NormTo& to) const {
  const profile::Span span("level", profile::Kind::phase, l.name.c_str());
  Normed out{.y = input, .sum = {}};
  for (std::size_t i = 0; i < l.blocks.size(); ++i)
    out = block(t, l, i, out.y, watch, i + 1 == l.blocks.size() ? to : NormTo{});
  if (watch) (*watch)(l.name, out.y.value());
  return out;
}

/// z = level(input), then input = (z + a) + b, without gradient; b may be empty. Each block's memory is released at its
/// end, so the cycles need only the states and the memory of one block.
void Hrm::silent_level(Tape& t, const Level& l, const Tensor& z, const Tensor& input, const Tensor& a, const Tensor& b,
                       const Observer* watch) const {
  const profile::Span span("level without gradient", profile::Kind::phase, l.name.c_str());
  for (std::size_t i = 0; i < l.blocks.size(); ++i) {
    const ArenaScope scope(t.arena());
    Tape silent(t.stream(), t.arena(), t.dtype(), Tape::Mode::forward, nullptr, &t.host_arena());
    NormTo to = {.y = z};
    if (i + 1 == l.blocks.size()) {
      to.a = silent.constant(a);
      if (b) to.b = silent.constant(b);
      to.sum = input;
    }
    block(silent, l, i, silent.constant(i == 0 ? input : z), watch, to);
  }
  if (watch) (*watch)(l.name, z);
}

/// The calls before the differentiated ones, from the states `now`. Of the last cycle, this runs only the first
/// `l_calls_of_last` L calls. Each call writes its state to `memory` and, in the pass of its last norm, the next call's
/// input to memory.input, which thus holds the input of the call that follows.
void Hrm::silent_cycles(Tape& t, States now, const States& memory, const Tensor& x, HrmCycles cycles,
                        std::int64_t l_calls_of_last, const Observer* watch) const {
  ops::add(t.stream(), memory.input, now.z_l, now.z_h, x);
  for (std::int64_t i = 0; i < cycles.h; ++i) {
    const bool last = i + 1 == cycles.h;
    for (std::int64_t j = 0; j < (last ? l_calls_of_last : cycles.l); ++j) {
      const bool before_h = j + 1 == cycles.l;
      silent_level(t, l_level_, memory.z_l, memory.input, now.z_h, before_h ? Tensor{} : x, watch);
      now.z_l = memory.z_l;
    }
    if (last) break;
    silent_level(t, slow(), memory.z_h, memory.input, now.z_l, x, watch);
    now.z_h = memory.z_h;
  }
}

Hrm::Output Hrm::inner(Tape& t, const Tensor& z_h, const Tensor& z_l, Var x, HrmCycles cycles, Ask ask,
                       const Observer* watch) const {
  const profile::Span span("segment", profile::Kind::phase);
  const std::int64_t differentiated = arch_.last_cycle_gradient ? cycles.l : 1;
  const States states = {z_h, z_l, t.keep(z_h.shape())};
  silent_cycles(t, states, states, x.value(), cycles, cycles.l - differentiated, watch);
  Output out{.z_h = t.constant(z_h), .z_l = t.constant(z_l), .logits = {}, .q = {}};
  Var input = t.wants_grad({x}) ? t.variable(states.input) : t.constant(states.input);
  t.record("add", input, {}, [=, &t] { t.pass_grad({x}, input); });
  for (std::int64_t j = 0; j < differentiated; ++j) {
    const bool before_h = j + 1 == differentiated;
    const Normed called = level(t, l_level_, input, watch, {.a = out.z_h, .b = before_h ? Var{} : x});
    out.z_l = called.y;
    input = called.sum;
  }
  out.z_h = level(t, slow(), input, watch, {}).y;
  if (ask == Ask::states) return out;
  out.logits = linear(t, positions_of(t, out.z_h, arch_.prefix(), arch_.seq_len), {lm_head_});
  out.q = linear(t, positions_of(t, out.z_h, 0, 1), q_head_);
  return out;
}

void Hrm::keep_states(Tape& t, const Tensor& z_h, const Tensor& z_l, const Output& out) {
  ops::cast(t.stream(), z_h, out.z_h.value());
  ops::cast(t.stream(), z_l, out.z_l.value());
}

Hrm::Output Hrm::segments(Tape& t, const Tensor& tokens, const PuzzleRows& puzzles, std::int64_t segments) const {
  const Tensor z_h = t.keep({tokens.shape()[0], arch_.length(), arch_.hidden}), z_l = t.keep(z_h.shape());
  reset(t, z_h, z_l);
  const Var x = embed(t, tokens, puzzles);
  for (std::int64_t segment = 1; segment < segments; ++segment) {
    const ArenaScope scope(t.arena());
    keep_states(t, z_h, z_l, inner(t, z_h, z_l, x, Ask::states));
  }
  return inner(t, z_h, z_l, x);
}

Tensor Hrm::next_q(Tape& outer, const Output& out, Var x, HrmCycles cycles) const {
  const Shape& shape = x.shape();
  const Tensor q = outer.keep({shape[0], 1, 2});
  const ArenaScope scope(outer.arena());
  const States memory = {outer.keep(shape), outer.keep(shape), outer.keep(shape)};
  silent_cycles(outer, {out.z_h.value(), out.z_l.value(), {}}, memory, x.value(), cycles, cycles.l, nullptr);
  Tape t(outer.stream(), outer.arena(), outer.dtype(), Tape::Mode::forward, nullptr, &outer.host_arena());
  const Level& l = slow();
  Var z = t.constant(memory.input);
  for (std::size_t i = 0; i + 1 < l.blocks.size(); ++i) z = block(t, l, i, z, nullptr, {}).y;
  // In the last block only the first position is computed; the other positions serve as keys and values.
  const Block& b = l.blocks.back();
  const auto first = [&](Var all) { return positions_of(t, all, 0, 1); };
  z = arch_.mlp_t ? first(token_mixing(t, z, *b.mixing_gate_up, *b.mixing_down, arch_.rms_eps))
                  : residual_linear(t, first(z), first(attend(t, b, z)), {b.out});
  z = rmsnorm(t, gated(t, b, z), arch_.rms_eps).y;
  copy(t.stream(), q, linear(t, z, q_head_).value());
  return q.reshaped({shape[0], 2});
}

}  // namespace lockstep
