#include "lockstep/models/kgat.hpp"

#include <bit>
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
      linear("linear1", layer.weight1, layer.bias1), linear("linear2", layer.weight2, layer.bias2);
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
  const Layer& layer = layers_[static_cast<std::size_t>(l)];
  return {.kind = arch_.aggregator,
          .slope = arch_.slope,
          .weight1 = part(layer.weight1),
          .bias1 = part(layer.bias1),
          .weight2 = part(layer.weight2),
          .bias2 = part(layer.bias2)};
}

ops::AggregateLayer Kgat::layer(int l) const {
  ops::AggregateLayer layer = this->layer(l, params_.values());
  const Layer& params = layers_[static_cast<std::size_t>(l)];
  layer.weight1 = params.weight1->stored;
  if (params.weight2 != nullptr) layer.weight2 = params.weight2->stored;
  return layer;
}

PlacedRows PlacedRows::between(std::int64_t first, std::int64_t last) const {
  const auto place = [&](std::int64_t node) {
    std::int64_t low = 0, high = host.size();
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      host[middle] < node ? low = middle + 1 : high = middle;
    }
    return low;
  };
  const std::int64_t begin = place(first), count = place(last) - begin;
  return {rows.part(begin, count), host.part(begin, count)};
}

void NestedRows::build(const KgGraph& graph, int layers, std::span<const std::int32_t> nodes, double most) {
  const auto words = static_cast<std::size_t>((graph.nodes + 63) / 64);
  const auto limit = static_cast<std::int64_t>(most * static_cast<double>(graph.nodes));
  sets_.resize(static_cast<std::size_t>(layers) + 1);
  for (int l = layers; l >= 0; --l) {
    Set& set = sets_[static_cast<std::size_t>(l)];
    const Set* above = l == layers ? nullptr : &sets_[static_cast<std::size_t>(l) + 1];
    set.list.clear();
    set.all = above != nullptr && above->all;
    std::int64_t count = 0;
    if (above == nullptr) {
      set.bits.assign(words, 0);
      for (const std::int32_t n : nodes) set.bits[static_cast<std::size_t>(n) / 64] |= std::uint64_t{1} << (n % 64);
      count = static_cast<std::int64_t>(nodes.size());
    } else if (!set.all) {
      set.bits = above->bits;
      count = static_cast<std::int64_t>(above->list.size());
      for (std::size_t i = 0; i < above->list.size() && count <= limit; ++i) {
        const auto n = static_cast<std::size_t>(above->list[i]);
        for (std::int64_t e = graph.adj_indptr[n]; e < graph.adj_indptr[n + 1]; ++e) {
          const std::int32_t c = graph.col[static_cast<std::size_t>(e)];
          std::uint64_t& word = set.bits[static_cast<std::size_t>(c) / 64];
          const std::uint64_t bit = std::uint64_t{1} << (c % 64);
          count += (word & bit) == 0;
          word |= bit;
        }
      }
    }
    // The batch itself stays a list, however large: it is what the loss needs.
    set.all = set.all || (above != nullptr && count > limit);
    if (set.all) {
      set.rows = ops::RowSet::range(0, graph.nodes), set.placed_bits = {};
      continue;
    }
    set.list.reserve(static_cast<std::size_t>(count));
    for (std::size_t w = 0; w < words; ++w) {
      for (std::uint64_t left = set.bits[w]; left != 0; left &= left - 1)
        set.list.push_back(static_cast<std::int32_t>(64 * w) + std::countr_zero(left));
    }
    set.rows = ops::RowSet::list(set.list), set.placed_bits = set.bits;
  }
}

void NestedRows::place(const Stream& stream, Arena& arena) {
  for (Set& set : sets_) {
    if (set.all) continue;
    const auto [list, bits] =
        for_kernels(stream, arena, std::span<const std::int32_t>(set.list), std::span<const std::uint64_t>(set.bits));
    set.rows = ops::RowSet::list(list), set.placed_bits = bits;
  }
}

}  // namespace lockstep
