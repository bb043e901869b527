#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

/// A transformer encoder of short sequences with pooling and a classifier, in few GPU kernels: two forward, four
/// backward. The tokens of a few sequences stay in the shared memory of a block, which loads one weight matrix after
/// another. The network is Har (models/har/har.hpp) with a linear embedding of patches.
namespace lockstep::ops {

inline constexpr int kMostClassifierLayers = 8, kMostClassifierHidden = 4;

struct ClassifierSizes {
  std::int64_t windows = 0;    ///< B: classifications
  std::int64_t sequences = 1;  ///< S: sequences per classification; the classifier reads their vectors side by side
  std::int64_t time = 0;       ///< T: tokens of a sequence
  std::int64_t patch = 0;      ///< P: values of a patch
  std::int64_t dim = 0, layers = 0, heads = 0, head_width = 0, mlp = 0;
  std::int64_t scores = 0;  ///< width of the layer that scores tokens; 0: pooling by the mean
  std::int64_t hidden_layers = 0;
  std::array<std::int64_t, kMostClassifierHidden> hidden = {};  ///< widths
  std::int64_t classes = 0;
  std::int64_t pre_norm = 1;  ///< layer norm before the MLP; 0: after its residual
  double eps = 0;             ///< of layer norms
};

/// Offsets in the flat vector of parameters, in elements. Matrices are (out, in).
struct ClassifierPlaces {
  struct Linear {
    std::int64_t weight = 0, bias = 0;
  };
  struct Norm {
    std::int64_t gamma = 0, beta = 0;
  };
  struct Layer {
    Norm attention_norm, mlp_norm;
    Linear qkv;  ///< queries, keys and values: three adjacent matrices, and three adjacent biases
    Linear output, up, down;
  };
  Linear stem;
  Norm stem_norm, output_norm;
  std::int64_t positions = 0;  ///< (T, D)
  std::array<Layer, kMostClassifierLayers> layers = {};
  Linear score_hidden, score;
  std::array<Linear, kMostClassifierHidden> hidden = {};
  std::array<Norm, kMostClassifierHidden> hidden_norm = {};
  Linear last;
};

struct ClassifierDropout {
  double encoder = 0, head = 0;  ///< rates
  std::uint64_t seed = 0, step = 0;
  const std::uint64_t* step_on_gpu = nullptr;  ///< see Dropout
  struct LayerSites {
    Site weights{0u}, attention{0u}, gelu{0u}, mlp{0u};
  };
  std::array<LayerSites, kMostClassifierLayers> layers = {};
  std::array<Site, kMostClassifierHidden> hidden = {Site{0u}, Site{0u}, Site{0u}, Site{0u}};
  std::span<const std::uint64_t> sequence_samples;  ///< (B S), needed if encoder > 0
  std::span<const std::uint64_t> window_samples;    ///< (B), needed if head > 0
};

struct SequenceClassifier {
  ClassifierSizes sizes;
  ClassifierPlaces places;
  ClassifierDropout dropout;
};

/// Whether the device has this operation for these sizes and this dtype; each answer of a GPU is logged once. Limits: a
/// GPU whose blocks have shared memory for the tokens of a sequence and two weight matrices; T <= 24; D, heads x
/// head_width, MLP and P at most 512; P, D, head_width and MLP multiples of 4; at most kMostClassifierLayers layers and
/// kMostClassifierHidden hidden layers of at most 1024; S D and the number of classes at most 4096; 0 < B S T <= 2^24.
bool has_sequence_classifier(const Stream& stream, DType dtype, const ClassifierSizes& sizes);

/// Elements of `kept`, in real_dtype().
std::int64_t classifier_kept(const ClassifierSizes& sizes);
/// Elements of `scratch`, in real_dtype(), for `flat_size` parameters.
std::int64_t classifier_scratch(const Stream& stream, DType dtype, const ClassifierSizes& sizes,
                                std::int64_t flat_size);

/// Needs has_sequence_classifier(). `weights` is the flat vector of parameters.
///
/// shapes   logits (B, classes); kept (classifier_kept()), or (B S D) if no backward follows; patches (B S, T, P)
/// dtypes   logits, patches, weights f32 | f64 | bf16 | f16, equal; kept in real_dtype()
void sequence_classifier_forward(Stream&, const Tensor& logits, const Tensor& kept, const Tensor& patches,
                                 const Tensor& weights, const SequenceClassifier& network);
/// Adds to the gradient of each parameter. The sums over rows have a fixed order, which depends on the sizes alone.
///
/// shapes   gradient (flat_size), in real_dtype(); dlogits (B, classes); scratch (classifier_scratch()), in
/// real_dtype()
void sequence_classifier_backward(Stream&, const Tensor& gradient, const Tensor& dlogits, const Tensor& kept,
                                  const Tensor& scratch, const Tensor& patches, const Tensor& weights,
                                  const SequenceClassifier& network);

}  // namespace lockstep::ops
