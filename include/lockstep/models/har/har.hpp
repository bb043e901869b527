#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/base/named.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/observer.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/line_patches.hpp"
#include "lockstep/ops/sequence_classifier.hpp"

namespace lockstep {

/// Architecture of Har.
struct HarArch {
  enum class Input : std::uint8_t { signal, image };
  /// The input of one classification: all channels, one channel, the mean of the channels, or the first channel.
  enum class Mode : std::uint8_t { flatten, independent, average, first };
  enum class Pool : std::uint8_t { attention, mean };

  Input input = Input::signal;
  Mode mode = Mode::flatten;
  Pool pool = Pool::attention;
  std::int64_t channels = 9;  ///< C
  std::int64_t length = 128;  ///< samples in a window
  std::int64_t image = 224;   ///< side of a picture, in pixels
  std::int64_t patch = 16;    ///< P: samples of a patch, or its side in pixels
  std::int64_t dim = 64, layers = 3, heads = 4, head_width = 16, mlp = 128;
  bool pre_norm = true;  ///< layer norm before the MLP, not after its residual; the attention is always pre-norm
  double norm_eps = 1e-5;
  std::vector<std::int64_t> hidden = {64};  ///< widths of the classifier's hidden layers; may be empty
  std::int64_t classes = 6;
  double encoder_dropout = 0;   ///< on attention weights, after the attention, after GELU, after the MLP
  double dropout = 0;           ///< in the classifier
  bool frozen = false;          ///< train pooling and classifier only
  bool frozen_dropout = false;  ///< keep the dropout of a frozen encoder

  std::int64_t tokens() const;
  /// Values in a patch: P, or 3 P^2.
  std::int64_t patch_values() const { return input == Input::signal ? patch : 3 * patch * patch; }
  /// Sequences per classification; the classifier reads their concatenated vectors.
  std::int64_t sequences() const { return mode == Mode::flatten ? channels : 1; }
  /// Multiply-adds of the forward pass of one classification: in the embedding, and in everything after it.
  double embedding_products() const;
  double products() const;
  /// Floating-point operations of one training sample, forward and backward.
  double training_flops() const;
  std::int64_t parameters() const;
  /// errors  usage: inconsistent sizes
  void check() const;
};
constexpr auto names_of(HarArch::Input) { return std::array{"signal", "image"}; }
constexpr auto names_of(HarArch::Mode) { return std::array{"flatten", "independent", "average", "first"}; }
constexpr auto names_of(HarArch::Pool) { return std::array{"attention", "mean"}; }

/// Keys of the dropout of a training pass.
struct HarDraws {
  std::uint64_t seed = 0, step = 0;
  const std::uint64_t* step_on_gpu = nullptr;  ///< see Dropout
  SampleRows sequences;                        ///< one row per sequence, for the encoder
  SampleRows windows;                          ///< one row per classification, for the classifier
};

/// The log-probabilities of windows from logits (N group, classes): the mean over the `group` consecutive rows of a
/// window. shapes  out (N, classes)
void window_log_probabilities(const Tensor& logits, std::int64_t classes, std::int64_t group, std::span<double> out);

/// A ViT encoder shared by all channels, attention pooling per channel, and a classifier of the concatenated pooled
/// vectors. With x (T, D) the tokens of a channel:
///
///   stem        x = LN(W_s patches + b_s) + positions
///   layer       x' = x + W_o attention(LN x),  x = x' + f(LN x')   (post-norm: x = LN(x' + f(x')))
///   MLP         f(u) = W_2 gelu(W_1 u)
///   pooling     x = LN x,  z = sum_t softmax_t(a_2 tanh(a_1 x))_t x_t
///   classifier  u = [z of all channels];  per hidden width u = gelu(LN(W u));  logits = W u
///
/// Parameter names and initial values are those of the reference program (`encoder.*`, `pooling.*`,
/// `classifier.head.N`). A frozen encoder has no gradient.
///
/// source  Dosovitskiy et al. 2021, arXiv:2010.11929; channel-wise pooling: the reference program
class Har {
 public:
  /// errors  usage: see HarArch::check
  Har(const HarArch& arch, DType dtype, std::uint64_t seed);

  const HarArch& arch() const { return arch_; }
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }

  /// Linear embedding of patches, before the first layer norm. shapes  patches (N, T, patch_values) -> (N, T, D)
  Var embed(Tape& tape, const Tensor& patches) const;
  /// Linear embedding of the patches of pictures stored as bits, in memory of tape.host_arena().
  /// shapes  -> (count, T, D)
  Var embed(Tape& tape, const ops::LinePictures& pictures) const;
  /// The logits. draws is null in evaluation. shapes  embedded (B S, T, D), S = arch().sequences() -> (B, classes)
  /// watch  receives stem_ln (before positions are added); of each layer layer<l>_qkv (N, T, 3 A), layer<l>_mha (before
  ///        the residual) and layer<l>; tokens, pool_scores, pooled
  Var classify(Tape& tape, Var embedded, const HarDraws* draws, const Observer* watch = nullptr) const;
  /// The logits of patches: embed() and classify(), or one fused operation if the device has it
  /// (ops/sequence_classifier.hpp) and no part of the network is frozen in training.
  Var classify(Tape& tape, const Tensor& patches, const HarDraws* draws) const;

 private:
  struct Layer {
    LayerNorm attention_norm, mlp_norm;
    std::vector<Linear> qkv;  ///< adjacent in memory
    Linear output, up, down;
  };
  Var encode(Tape& tape, Var x, const HarDraws* draws, const Observer* watch) const;
  Var pool(Tape& tape, Var x, const Observer* watch) const;
  /// The network as the operand of the fused operation, without draws.
  ops::SequenceClassifier whole(std::int64_t windows) const;

  HarArch arch_;
  ParamStore params_;
  Linear stem_;
  const Param* positions_ = nullptr;
  LayerNorm stem_norm_, output_norm_;
  std::vector<Layer> layers_;
  Linear score_hidden_, score_;
  struct Block {
    Linear linear;
    LayerNorm norm;
  };
  std::vector<Block> head_;
  Linear last_;
  std::vector<const Param*> every_param_;
};

}  // namespace lockstep
