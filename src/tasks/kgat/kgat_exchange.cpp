
#include "lockstep/base/consecutive.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/kgat/kgat_attention.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/tasks/kgat/kgat_config.hpp"
#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

namespace {

constexpr AskedOption kAsked[] = {
    {"model.attention", "true"},
    {"model.parallel_edges", "sum_logits", "model.attention", "true"},
    {"model.laplacian", "random-walk", "model.attention", "false"},
    {"model.leaky_slope", "0.01 (the TensorFlow program: 0.2)"},
};

OptionValues options_of(const NamedArrays& arrays, const Options&) {
  OptionValues values;
  const std::int64_t width = extent(arrays, "entity_user_embed.weight", 1);
  add_size(values, "model.embed_dim", width);
  add_size(values, "model.relation_dim", extent(arrays, "relation_embed.weight", 1));
  const bool two = arrays.find("aggregator_layers.0.linear1.weight") != nullptr;
  const std::string linear = two ? "linear1" : "linear";
  std::string dims;
  for (std::int64_t l = 0; l < count_arrays(arrays, "aggregator_layers.#." + linear + ".weight"); ++l)
    dims +=
        (l > 0 ? "," : "") + std::to_string(extent(arrays, join("aggregator_layers.", l, ".", linear, ".weight"), 0));
  if (dims.empty()) return values;
  values.emplace_back("model.conv_dims", dims);
  const bool wide = extent(arrays, "aggregator_layers.0.linear.weight", 1) == 2 * width;
  values.emplace_back("model.aggregator", two ? "bi-interaction" : wide ? "graphsage" : "gcn");
  return values;
}

void describe_network(const KgatConfig& config, const H5File& checkpoint, const H5File*, const NamedArrays& arrays,
                      WeightMetadata& metadata) {
  KgatArch arch = config.resolved().arch;
  arch.nodes = extent(arrays, "entity_user_embed.weight", 0);
  arch.relations = extent(arrays, "relation_embed.weight", 0);
  arch.edges = extent(arrays, "adjacency", 0);
  describe(metadata, arch,
           {.users = checkpoint.int_attribute("/", "n_users"),
            .items = checkpoint.int_attribute("/", "n_items"),
            .entities = checkpoint.int_attribute("/", "n_entities")});
}

/// The rows whose inner products are the scores, as tables of kind bprmf.
NamedArrays tables_of(KgatTask& kgat) {
  const auto users = consecutive<std::int64_t>(kgat.data().users);
  const OwnedTensor items = kgat.item_rows();
  OwnTape tape(kgat.params().dtype());
  NamedArrays file;
  const auto add = [&](const char* name, const Tensor& rows) {
    visit_float(rows.dtype(), [&]<class T>() {
      file.arrays.push_back({.name = name,
                             .shape = {rows.rows(), rows.columns()},
                             .values = std::vector<T>(rows.data<T>(), rows.data<T>() + rows.size())});
    });
  };
  add("item_embed", items);
  add("user_embed", kgat.rows_of(tape, users));
  file.metadata = {{kKindEntry, "bprmf"}, {"tables_of", kgat.kind()}};
  describe(file.metadata,
           {.users = kgat.data().users, .items = kgat.data().items, .width = kgat.options().arch.final_width()});
  return to_public(std::move(file), bprmf_names());
}

/// The public code recomputes the attention before each evaluation too.
void complete(KgatTask& kgat) {
  const KgGraph& graph = kgat.data().graph;
  if (!kgat.options().attention) return;
  refresh_attention(kgat.net(), graph, AttentionPlan(graph, 0, graph.nodes, kgat.params().dtype()),
                    kgat.options().parallel_edges);
}

std::string from_data(const NamedArrays&) { return "numbers of users and items, the graph"; }

OptionValues bprmf_options(const NamedArrays& arrays, const Options&) {
  const std::int64_t width = extent(arrays, "item_embed", 1);
  return width > 0 ? OptionValues{{"model.embed_dim", std::to_string(width)}} : OptionValues{};
}

void describe_tables(const TaskConfig&, const H5File&, const H5File*, const NamedArrays& arrays,
                     WeightMetadata& metadata) {
  describe(metadata, {.users = extent(arrays, "user_embed", 0),
                      .items = extent(arrays, "item_embed", 0),
                      .width = extent(arrays, "item_embed", 1)});
}

}  // namespace

WeightExchange exchange_kgat() {
  return {.names = kgat_names(),
          .options = options_of,
          .asked = kAsked,
          .upstream = "the public PyTorch program",
          .from_data = from_data,
          .describe = of_base<describe_network>,
          .complete = of_base<complete>,
          .tables = of_base<tables_of>};
}
WeightExchange exchange_bprmf() {
  return {.names = bprmf_names(), .options = bprmf_options, .from_data = from_data, .describe = describe_tables};
}

}  // namespace lockstep
