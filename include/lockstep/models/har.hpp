#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/dropout.hpp"
#include "lockstep/nn/layernorm.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/line_patches.hpp"

namespace lockstep {

/// Sizes and variants of the network of Har.
struct HarArch {
  enum class Input : std::uint8_t { image, signal };
  /// What becomes one classification: all channels side by side; each channel by itself; their mean; the first one.
  enum class Mode : std::uint8_t { flatten, independent, average, first };
  enum class Pool : std::uint8_t { attention, mean };

  Input input = Input::signal;
  Mode mode = Mode::flatten;
  Pool pool = Pool::attention;
  std::int64_t channels = 9;  ///< C of the data
  std::int64_t length = 128;  ///< samples in a window
  std::int64_t image = 224;   ///< pixels in a row of a picture
  std::int64_t patch = 16;    ///< samples, or pixels in a row
  std::int64_t dim = 64, layers = 3, heads = 4, head_width = 16, mlp = 128;
  bool pre_norm = true;  ///< of the MLP; the attention is always pre-norm
  double norm_eps = 1e-5;
  std::vector<std::int64_t> hidden = {64};  ///< of the classifier; may be empty
  std::int64_t classes = 6;
  double encoder_dropout = 0;  ///< attention weights, after attention, after GELU, after the MLP
  double dropout = 0;          ///< in the classifier
  bool frozen = false;         ///< only pooling and classifier are trained
  bool frozen_dropout = false;

  std::int64_t tokens() const;
  /// Values that a patch holds: p, or 3 P^2.
  std::int64_t patch_values() const { return input == Input::signal ? patch : 3 * patch * patch; }
  /// Sequences that are encoded, and pooled vectors side by side, per classification.
  std::int64_t sequences() const { return mode == Mode::flatten ? channels : 1; }
  /// Multiplications of the matrix products of one classification, forward: of the embedding, and of all that follows.
  double embedding_products() const;
  double products() const;
  /// Of a training sample, forward and backward.
  double training_flops() const;
  std::int64_t parameters() const;
  /// errors  Error (usage): sizes that do not fit together
  void check() const;
};

/// Values on the way, for comparison with a reference.
struct HarTrace {
  struct Layer {
    Var qkv;        ///< (N, T, 3 A)
    Var attention;  ///< before it is added
    Var output;
  };
  Var embedded;  ///< after the stem's layer norm, before the positions
  std::vector<Layer> layers;
  Var tokens, scores, pooled;
};

/// Which draws a training pass makes. In evaluation there is none.
struct HarDraws {
  std::uint64_t seed = 0, step = 0;
  SampleRows sequences;  ///< in the encoder: a row per sequence
  SampleRows windows;    ///< in the classifier: a row per classification
};

/// A ViT encoder of channels, shared by all of them; its tokens are pooled per channel, the pooled vectors stand side by
/// side before a classifier. With x the tokens of a channel (T, D):
///
///   x = LN(stem) + positions;  per layer  x1 = x + W_o attention(LN x),  x2 = x1 + f(LN x1)  (or LN(x1 + f(x1)): post-norm)
///   f(u) = W_2 gelu(W_1 u);    after the last layer  LN;   z = sum_t softmax_t(a_2 tanh(a_1 x))_t x_t
///   classifier: per hidden width  gelu(LN(W u)), then W u
///
/// Parameter names and initial values are those of the reference (`encoder.*`, `pooling.*`, `classifier.head.N`). An
/// encoder that is frozen has no gradient.
///
/// source  Dosovitskiy et al. 2021, arXiv:2010.11929; the pooled, channel-wise form is that of the reference program
class Har {
 public:
  Har(const HarArch& arch, DType dtype, std::uint64_t seed);

  const HarArch& arch() const { return arch_; }
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }

  /// The linear embedding of patches, before the first layer norm. shapes  patches (N, T, patch_values) -> (N, T, D)
  Var embed(Tape& tape, const Tensor& patches) const;
  /// The same of pictures as bits, in memory of tape.host_arena(). -> (count, T, D)
  Var embed(Tape& tape, const ops::LinePictures& pictures) const;
  /// The logits. shapes  embedded (B S, T, D), S = arch().sequences() -> (B, classes)
  Var classify(Tape& tape, Var embedded, const HarDraws* draws, HarTrace* trace = nullptr) const;

 private:
  struct Layer {
    LayerNorm attention_norm, mlp_norm;
    std::vector<Linear> qkv;  ///< in memory one after the other
    Linear output, up, down;
  };
  Var encode(Tape& tape, Var x, const HarDraws* draws, HarTrace* trace) const;
  Var pool(Tape& tape, Var x, HarTrace* trace) const;

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
};

}  // namespace lockstep
