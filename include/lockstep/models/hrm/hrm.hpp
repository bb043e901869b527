#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/observer.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// Calls of the slow level in a segment, and of the fast level before each of them.
struct HrmCycles {
  std::int64_t h, l;
};

/// Architecture of the HRM. Defaults are the paper's.
struct HrmArch {
  std::int64_t seq_len = 0, vocab = 0, identifiers = 1;  ///< sizes of the data set
  std::int64_t hidden = 512, heads = 8;
  double expansion = 4;  ///< width of the gated layers: 2/3 expansion hidden, rounded up to a multiple of 256
  std::int64_t h_layers = 4, l_layers = 4, h_cycles = 2, l_cycles = 2;
  std::int64_t puzzle_ndim = -1;       ///< width of a puzzle embedding; -1: hidden; 0: no puzzle embedding
  std::int64_t puzzle_positions = -1;  ///< positions for the puzzle embedding; -1: as many as it needs
  std::string positions = "rope";      ///< rope | learned | none
  double rms_eps = 1e-5, rope_theta = 1e4;
  bool one_network = false;          ///< TRM: both levels share the blocks of the L level
  bool last_cycle_gradient = false;  ///< TRM: differentiate all calls of the last H cycle, not only the last two
  bool mlp_t = false;                ///< TRM: a gated layer across positions replaces attention

  /// Width of the gated layers.
  std::int64_t inter() const;
  /// Width of the gated layers across positions: 2/3 expansion length(), rounded up to a multiple of 256.
  std::int64_t mixing_inter() const;
  std::int64_t puzzle_width() const { return puzzle_ndim < 0 ? hidden : puzzle_ndim; }
  /// The cycles of stage 1, 2 or 3 of a depth curriculum: thirds of the full depth, rounded up.
  HrmCycles cycles(std::int64_t stage = 3) const {
    return {.h = (h_cycles * stage + 2) / 3, .l = (l_cycles * stage + 2) / 3};
  }
  /// Positions before those of the grid.
  std::int64_t prefix() const;
  std::int64_t length() const { return prefix() + seq_len; }
  /// Number of values: trained weights, puzzle table and initial states.
  std::int64_t parameters() const;
  /// Floating-point operations in the matrix products of one call of a level of `layers` blocks, for one sequence.
  double level_flops(std::int64_t layers) const;
  /// errors  usage: heads that do not divide hidden, heads of odd width with rope, rope without attention, an
  ///         expansion that rounds to 0, a puzzle embedding that does not fit its positions
  void check() const;
};

/// Rows of the puzzle embedding and their gradients: one per sequence, not one per identifier.
struct PuzzleRows {
  Tensor identifiers;  ///< i32 (B)
  Tensor gradient;     ///< (B, puzzle_width()), written by the backward; may be empty
};

/// The hierarchical reasoning model: a slow stack of blocks H and a fast stack L alternately update two latent states.
///
///   block(x):        x = rms(x + Attention(x));  x = rms(x + SwiGLU(x));  with mlp_t token_mixing() comes first
///   H(z, inj), L(z, inj):  the blocks of that level in order, applied to z + inj
///   x = sqrt(D) (puzzle embedding, token embeddings); with learned positions sqrt(D) (... + positions) / sqrt(2)
///
///   inner:  for i in 0..N-1, for j in 0..M-1:  z_L = L(z_L, z_H + x);   after each j loop: z_H = H(z_H, z_L)
///           logits = z_H[prefix..] W_lm^T,  q = z_H[0] W_q^T + b_q
///
/// Only the last L and the last H call are differentiated (the "1-step gradient"); earlier calls store nothing.
///
/// Parameters have the names and shapes of the public code. puzzle_emb.weights, H_init and L_init are not trainable
/// here: the first has its own update rule (PuzzleRows), the others never change.
///
/// source  Wang et al. 2025, arXiv:2506.21734; TRM: Jolicoeur-Martineau 2025, arXiv:2510.04871
class Hrm {
 public:
  /// errors  usage: see HrmArch::check
  Hrm(const HrmArch& arch, DType dtype, std::uint64_t seed);
  const HrmArch& arch() const { return arch_; }
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }
  void move_to(Device device);
  const Param* puzzle_table() const { return puzzle_; }  ///< null without puzzle embedding

  /// The input embedding x (B, T, D) of tokens i32 (B, seq_len). Tokens and identifiers lie on the tape's device or in
  /// its host_arena(), and outlive the tape.
  Var embed(Tape& tape, const Tensor& tokens, const PuzzleRows& puzzles) const;
  /// Resets both states (B, T, D) to the initial states, for sequences where `starts` (i32 (B), on the tape's device)
  /// is not 0; for all sequences if it is empty.
  void reset(Tape& tape, const Tensor& z_h, const Tensor& z_l, const Tensor& starts = {}) const;

  struct Output {
    Var z_h, z_l;  ///< (B, T, D)
    Var logits;    ///< (B, seq_len, V); empty with Ask::states
    Var q;         ///< (B, 1, 2): logits of halting and of continuing; empty with Ask::states
  };
  enum class Ask : std::uint8_t { all, states };
  /// One inner call of the full depth. Calls of a level without gradient overwrite z_h and z_l (B, T, D).
  Output inner(Tape& tape, const Tensor& z_h, const Tensor& z_l, Var x, Ask ask = Ask::all,
               const Observer* watch = nullptr) const {
    return inner(tape, z_h, z_l, x, arch_.cycles(), ask, watch);
  }
  Output inner(Tape& tape, const Tensor& z_h, const Tensor& z_l, Var x, HrmCycles cycles, Ask ask = Ask::all,
               const Observer* watch = nullptr) const;
  /// Copies the states after a call to z_h and z_l, for the next call.
  static void keep_states(Tape& tape, const Tensor& z_h, const Tensor& z_l, const Output& out);
  /// The output of the last of `segments` inner calls from the initial states. tokens, puzzles  as in embed()
  Output segments(Tape& tape, const Tensor& tokens, const PuzzleRows& puzzles, std::int64_t segments) const;
  /// q (B, 2) after one more inner call from the states of `out`, without gradient.
  Tensor next_q(Tape& tape, const Output& out, Var x, HrmCycles cycles) const;

 private:
  struct Block {
    const Param *qkv = nullptr, *out = nullptr;                     ///< null with mlp_t
    const Param *mixing_gate_up = nullptr, *mixing_down = nullptr;  ///< null without
    const Param *gate_up = nullptr, *down = nullptr;
  };
  struct Level {
    std::string name;
    std::vector<Block> blocks;
  };
  Level add_level(const std::string& name, std::int64_t layers);
  void make_rope(Device device);
  /// The states, and the input of the next call.
  struct States {
    Tensor z_h, z_l, input;
  };
  Var attend(Tape& tape, const Block& block, Var x) const;
  Var gated(Tape& tape, const Block& block, Var x) const;
  Normed block(Tape& tape, const Level& level, std::size_t i, Var x, const Observer* watch, const NormTo& to) const;
  Normed level(Tape& tape, const Level& level, Var input, const Observer* watch, const NormTo& to) const;
  void silent_level(Tape& tape, const Level& level, const Tensor& z, const Tensor& input, const Tensor& a,
                    const Tensor& b, const Observer* watch) const;
  void silent_cycles(Tape& tape, States now, const States& memory, const Tensor& x, HrmCycles cycles,
                     std::int64_t l_calls_of_last, const Observer* watch) const;
  const Level& slow() const { return arch_.one_network ? l_level_ : h_level_; }

  HrmArch arch_;
  ParamStore params_;
  const Param *tokens_ = nullptr, *positions_ = nullptr, *puzzle_ = nullptr, *lm_head_ = nullptr;
  const Param *h_init_ = nullptr, *l_init_ = nullptr;
  Linear q_head_;
  Level h_level_, l_level_;
  RopeTable rope_;
};

}  // namespace lockstep
