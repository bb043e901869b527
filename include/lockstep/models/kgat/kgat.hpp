#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/ops/aggregate.hpp"

namespace lockstep {

struct KgatArch {
  std::int64_t nodes = 0, relations = 0, edges = 0;  ///< edges: entries of the adjacency's pattern
  std::int64_t embed_dim = 64, relation_dim = 64;
  std::vector<std::int64_t> conv_dims = {64, 32, 16};
  ops::Aggregator aggregator = ops::Aggregator::bi_interaction;
  double slope = 0.01;  ///< of LeakyReLU

  int layers() const { return static_cast<int>(conv_dims.size()); }
  /// Columns of x_l, l = 0 .. layers().
  std::int64_t width(int l) const { return l == 0 ? embed_dim : conv_dims[l - 1]; }
  /// Columns of H: all layers side by side.
  std::int64_t final_width() const;
};

/// Knowledge graph attention network: its parameters.
///
///   entity_user_embed.weight (N, d), relation_embed.weight (R, k), trans_M (R, d, k): U(-b, b), b = sqrt(6 / (rows +
///   columns)), for trans_M sqrt(6 / ((d + R) k));  aggregator_layers.l.linear{,1,2}.{weight,bias}: weights by Xavier's
///   rule, biases U(-1/sqrt(in), 1/sqrt(in));  adjacency (edges), not trained: a Laplacian or the attention
///
/// source   Wang, He, Cao, Liu, Chua 2019, arXiv:1905.07854
class Kgat {
 public:
  Kgat(KgatArch arch, DType dtype, std::uint64_t seed);
  const KgatArch& arch() const { return arch_; }
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }
  const Param& embedding() const { return *embedding_; }
  const Param& translations() const { return *translations_; }
  const Param& matrices() const { return *matrices_; }
  const Param& adjacency() const { return *adjacency_; }
  /// Whether the loss of the interactions (cf) or of the triples (kg) trains the parameter; both train the embeddings.
  bool in_cf_loss(const Param& p) const { return p.trainable && &p != translations_ && &p != matrices_; }
  bool in_kg_loss(const Param& p) const { return &p == embedding_ || &p == translations_ || &p == matrices_; }
  /// Layer l = 0 .. layers()-1 with its weights in `flat`: values or gradients in the order of the parameters; flat[0]
  /// is element `begin` of the flat vectors.
  ops::AggregateLayer layer(int l, const Tensor& flat, std::int64_t begin = 0) const;
  /// The layer as operations read it: stored (possibly rounded) weights, master biases.
  ops::AggregateLayer layer(int l) const;
  /// All aggregators' weights lie in this range of the flat vector.
  std::int64_t aggregators_begin() const { return aggregators_begin_; }
  std::int64_t aggregators_end() const { return aggregators_end_; }

 private:
  KgatArch arch_;
  ParamStore params_;
  const Param *embedding_ = nullptr, *translations_ = nullptr, *matrices_ = nullptr, *adjacency_ = nullptr;
  struct Layer {
    const Param *weight1, *bias1, *weight2, *bias2;
  };
  std::vector<Layer> layers_;
  std::int64_t aggregators_begin_ = 0, aggregators_end_ = 0;
};

}  // namespace lockstep
