#include "lockstep/models/kgat/kgat.hpp"

#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"

namespace lockstep {

std::int64_t KgatArch::final_width() const { return std::accumulate(conv_dims.begin(), conv_dims.end(), embed_dim); }

Kgat::Kgat(KgatArch arch, DType dtype, std::uint64_t seed) : arch_(std::move(arch)), params_(dtype) {
  const auto bound = [](std::int64_t fans) { return std::sqrt(6.0 / static_cast<double>(fans)); };
  const auto xavier = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    return &params_.add(name, {rows, columns}, init::uniform(bound(rows + columns)));
  };
  const std::int64_t d = arch_.embed_dim, k = arch_.relation_dim, r = arch_.relations;
  embedding_ = xavier("entity_user_embed.weight", arch_.nodes, d);
  translations_ = xavier("relation_embed.weight", r, k);
  matrices_ = &params_.add("trans_M", {r, d, k}, init::uniform(bound((d + r) * k)));
  for (int l = 0; l < arch_.layers(); ++l) {
    const std::int64_t out = arch_.width(l + 1),
                       in = arch_.width(l) * (arch_.aggregator == ops::Aggregator::graphsage ? 2 : 1);
    const auto linear = [&](const char* name, const Param*& weight, const Param*& bias) {
      const std::string path = join("aggregator_layers.", l, ".", name);
      weight = xavier(path + ".weight", out, in);
      bias = &params_.add(path + ".bias", {out}, init::uniform(1 / std::sqrt(static_cast<double>(in))));
    };
    Layer layer{};
    if (arch_.aggregator == ops::Aggregator::bi_interaction) {
      linear("linear1", layer.weight1, layer.bias1);
      linear("linear2", layer.weight2, layer.bias2);
    } else {
      linear("linear", layer.weight1, layer.bias1);
    }
    layers_.push_back(layer);
  }
  Param& adjacency = params_.add("adjacency", {arch_.edges}, init::zeros());
  adjacency.trainable = false;
  adjacency_ = &adjacency;
  params_.allocate(seed);
  aggregators_begin_ = layers_.empty() ? 0 : layers_.front().weight1->offset;
  aggregators_end_ = adjacency.offset;
}

ops::AggregateLayer Kgat::layer(int l, const Tensor& flat, std::int64_t begin) const {
  const auto part = [&](const Param* p) {
    return p == nullptr ? Tensor() : flat.slice(p->offset - begin, p->shape.size()).reshaped(p->shape);
  };
  const Layer& layer = layers_[l];
  return {.kind = arch_.aggregator,
          .slope = arch_.slope,
          .weight1 = part(layer.weight1),
          .bias1 = part(layer.bias1),
          .weight2 = part(layer.weight2),
          .bias2 = part(layer.bias2)};
}

ops::AggregateLayer Kgat::layer(int l) const {
  ops::AggregateLayer layer = this->layer(l, params_.values());
  const Layer& params = layers_[l];
  layer.weight1 = params.weight1->stored;
  if (params.weight2 != nullptr) layer.weight2 = params.weight2->stored;
  return layer;
}

}  // namespace lockstep
