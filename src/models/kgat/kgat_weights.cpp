#include "lockstep/models/kgat/kgat_weights.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

void visit(TextFields& fields, KgatArch& a, KgatSizes& s) {
  fields("model.nodes", a.nodes);
  fields("model.relations", a.relations);
  fields("model.edges", a.edges);
  fields("model.embed_dim", a.embed_dim);
  fields("model.relation_dim", a.relation_dim);
  fields("model.conv_dims", a.conv_dims);
  fields("model.aggregator", a.aggregator);
  fields("model.leaky_slope", a.slope);
  fields("data.users", s.users);
  fields("data.items", s.items);
  fields("data.entities", s.entities);
}

void visit(TextFields& fields, BprmfSizes& s) {
  fields("data.users", s.users);
  fields("data.items", s.items);
  fields("model.embed_dim", s.width);
}

}  // namespace

NameRules kgat_names() {
  static constexpr NameRule kNames[] = {{"adjacency", ""}};
  return kNames;
}

NameRules bprmf_names() {
  static constexpr NameRule kNames[] = {{"user_embed", "user_embed.weight"}, {"item_embed", "item_embed.weight"}};
  return kNames;
}

void describe(WeightMetadata& metadata, KgatArch arch, KgatSizes sizes) {
  TextFields fields(&metadata);
  visit(fields, arch, sizes);
}

void parse(const WeightMetadata& metadata, const std::string& what, KgatArch& arch, KgatSizes& sizes) {
  require_exported(metadata, "kgat", what);
  TextFields fields(&metadata, what);
  visit(fields, arch, sizes);
  require_data(std::min({arch.nodes, arch.relations, arch.edges, arch.embed_dim, arch.relation_dim, sizes.users,
                         sizes.items, sizes.entities}) >= 1 &&
                   !arch.conv_dims.empty() && std::ranges::min(arch.conv_dims) >= 1 && sizes.items <= sizes.entities &&
                   sizes.users + sizes.entities == arch.nodes,
               what, ": its metadata have an extent below 1, or nodes that are not the users and entities");
}

void describe(WeightMetadata& metadata, BprmfSizes sizes) {
  TextFields fields(&metadata);
  visit(fields, sizes);
}

void parse(const WeightMetadata& metadata, const std::string& what, BprmfSizes& sizes) {
  require_exported(metadata, "bprmf", what);
  TextFields fields(&metadata, what);
  visit(fields, sizes);
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;  // items have 32-bit numbers, and no product overflows
  require_data(std::min({sizes.users, sizes.items, sizes.width}) >= 1 &&
                   std::max({sizes.users, sizes.items, sizes.width}) <= kMost,
               what, ": its metadata have ", sizes.users, " users, ", sizes.items, " items and ", sizes.width,
               " columns, each must be 1 to ", kMost);
}

}  // namespace lockstep
