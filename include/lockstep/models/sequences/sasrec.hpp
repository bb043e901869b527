#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/named.hpp"
#include "lockstep/models/sequences/sequence_batch.hpp"
#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/mhc.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// The training loss of a sequence model. docs/models/sasrec.md has the formulas.
struct ItemLoss {
  enum class Kind : std::uint8_t {
    bce,              ///< binary cross-entropy of the next item and one negative
    gbce,             ///< the same with K negatives, calibrated
    sampled_softmax,  ///< cross-entropy among the next item and K drawn items that all positions of a step share
    softmax,          ///< cross-entropy among all items
  };
  Kind kind = Kind::bce;
  std::int64_t negatives = 256;  ///< K of gbce and sampled_softmax
  double calibration = 0.75;     ///< t of gbce: 0 none, 1 full
  double popularity = 0.75;      ///< sampled_softmax draws items by their number of training events to this power
  bool operator==(const ItemLoss&) const = default;

  /// Number of items drawn for each target.
  std::int64_t negatives_each() const { return kind == Kind::bce ? 1 : kind == Kind::gbce ? negatives : 0; }
  /// The weight of the next item's term in bce and gbce. items  size of the catalogue
  double beta(std::int64_t items) const;
};

/// Architecture of SASRec or TiSASRec, in one of its published forms. The defaults are the SASRec of the paper.
struct SasRecArch {
  /// How a block combines attention, feed-forward network F and the layer norms N1 and N2.
  enum class Norm : std::uint8_t {
    pre,       ///< z = N1(x); x += Att(z, z); x += F(N2(x))
    post,      ///< x = N1(x + Att(x, x)); x = N2(x + F(x))
    original,  ///< q = N1(x); x = q + Att(q, x); z = N2(x); x = z + F(z)
  };
  /// How padding is treated.
  enum class PadMask : std::uint8_t {
    key,    ///< padding is masked and not stored
    none,   ///< padding is like an item; keys after the query have a score of -1000 (public SASRec code)
    query,  ///< padding is a key with zero input; its result is discarded (public TiSASRec code)
  };
  enum class Mhc : std::uint8_t {
    none,
    streams,    ///< several residual streams, mixed by doubly stochastic maps
    collapsed,  ///< the streams are summed at every site, out = n x + (sum of H_post) f (public code)
  };

  bool timed =
      false;  ///< TiSASRec: times and positions enter the attention; false: SASRec, positions are added to items
  std::int64_t items = 0;    ///< I
  std::int64_t slots = 200;  ///< T
  std::int64_t hidden = 50, heads = 1, blocks = 2;
  std::int64_t time_span = 256;  ///< S; there are S + 1 buckets
  Norm norm = Norm::pre;         ///< of plain blocks; blocks with mHC streams are always pre-norm
  PadMask pad_mask = PadMask::key;
  bool ffn_residual = true;  ///< norm original: false gives x = F(z)
  double ln_eps = 1e-8;
  Mhc mhc = Mhc::none;
  std::int64_t streams = 4;  ///< n
  std::int64_t sinkhorn_iterations = 20;
  double mhc_gate = 0.01;  ///< initial alpha
  double dropout = 0.2;
  ops::TimeBuckets::Drop time_dropout = ops::TimeBuckets::Drop::element;
  bool recompute = false;       ///< store only the input of each block, and recompute the rest in the backward pass
  double l2 = 0;                ///< L2 penalty on the embedding tables
  bool l2_items_only = false;   ///< the penalty applies to the item table only
  bool xavier_uniform = false;  ///< initial matrices are Xavier-uniform; false: Xavier-normal
  ItemLoss loss;
  bool operator==(const SasRecArch&) const = default;

  std::int64_t head_width() const { return hidden / heads; }
  bool padded() const { return pad_mask != PadMask::key; }
  WindowShape window() const { return {.slots = slots, .timed = timed, .padded = padded()}; }
  std::int64_t parameters() const;
  /// errors  `fault`: an extent below 1, heads that do not divide hidden, a combination of modes that does not exist
  void check(Fault fault) const;
};
constexpr auto names_of(ItemLoss::Kind) { return std::array{"bce", "gbce", "sampled_softmax", "softmax"}; }
constexpr auto names_of(SasRecArch::Norm) { return std::array{"pre", "post", "original"}; }
constexpr auto names_of(SasRecArch::PadMask) { return std::array{"key", "none", "query"}; }
constexpr auto names_of(SasRecArch::Mhc) { return std::array{"none", "streams", "collapsed"}; }

/// Keys of the dropout of a forward pass. Evaluation draws nothing.
struct SasRecDraws {
  bool training = false;
  std::uint64_t seed = 0, step = 0;
  const std::uint64_t* step_on_gpu = nullptr;  ///< see Dropout
};

/// SASRec or TiSASRec, each with or without mHC, and its weights. docs/models/sasrec.md has the formulas. Parameters
/// have the names of the public PyTorch code.
///
/// dtypes  f32 | f64, the same for all parameters; always f64 with collapsed hyper-connections, where values grow by n
///         at every site and attention scores reach thousands: too many digits for a softmax in single precision
/// source  Kang, McAuley 2018, arXiv:1808.09781; Li, Wang, McAuley 2020 (TiSASRec); mHC: arXiv:2512.24880, streams:
///         arXiv:2409.19606; initial values as in baka-world/SASRec.pytorch
class SasRec {
 public:
  /// errors  usage: see SasRecArch::check; more negatives than other items
  SasRec(SasRecArch arch, DType dtype = DType::f32, std::uint64_t seed = 0);

  const SasRecArch& arch() const { return arch_; }
  ParamStore& params() { return *params_; }
  const ParamStore& params() const { return *params_; }
  const Param& item_table() const { return *items_; }

  /// Sets the further arrays that a pass reads: position and first_query, in memory of `arena`.
  void prepare(Arena& arena, SequenceBatch& batch) const;
  /// Features f (M, C) after each token. The batch's arrays must outlive the tape. A batch that was not prepared is
  /// prepared in the tape's host_arena().
  ///
  /// watch    receives embedded; of each block block<i>/attn_out, ffn_out (before residuals and the dropout of the
  ///          result) and out; of its sites block<i>/attn/ and ffn/ mhc_out if collapsed, or the values of mhc();
  ///          log_feats
  /// inputs   if not null, receives the items' embeddings as a variable of the tape: their gradient stays there and
  ///          does not reach the item table
  /// newest   only the newest token of each sample: (B, C), without a gradient; the last block computes no other row
  Var features(Tape& tape, const SequenceBatch& batch, const SasRecDraws& draws, const Observer* watch = nullptr,
               Var* inputs = nullptr, bool newest = false) const;
  /// The features of each sample's newest token, without dropout. shapes  (B, C)
  Tensor newest(Tape& tape, const SequenceBatch& batch) const;
  /// The factor of a table row as an input.
  double input_scale() const { return std::sqrt(static_cast<double>(arch_.hidden)); }
  /// Number of parts of the exact softmax's sums over items, see ops::SoftmaxCandidates. 0 (default): undivided.
  void set_item_parts(std::int64_t parts) { item_parts_ = parts; }
  std::int64_t item_parts() const { return item_parts_; }
  /// The loss of the architecture, summed over targets, from the scores f_t . E[item]. A scalar.
  Var loss(Tape& tape, Var features, const SequenceBatch& batch) const;

 private:
  struct Block {
    LayerNorm attention_norm, ffn_norm;
    std::vector<Linear> qkv;  ///< stacked
    Linear out;               ///< SASRec only
    Linear conv1, conv2;
    Site attention_drop{0U}, ffn_drop1{0U}, ffn_drop2{0U};
    MhcSite attention_site, ffn_site;
    std::vector<const Param*> params;  ///< all parameters of the block, for recompute()
  };
  struct Pass;
  void add_block(std::int64_t i);
  void add_sites(Block& b, std::int64_t i);

  SasRecArch arch_;
  std::unique_ptr<ParamStore> params_;
  std::int64_t item_parts_ = 0;
  const Param* items_ = nullptr;
  const Param* positions_ = nullptr;                                   ///< SASRec
  const Param *key_positions_ = nullptr, *value_positions_ = nullptr;  ///< TiSASRec
  const Param *key_times_ = nullptr, *value_times_ = nullptr;
  std::vector<Block> blocks_;
  LayerNorm last_norm_;
};

}  // namespace lockstep
