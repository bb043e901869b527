#include <cmath>

#include "formats/onnx_graph.hpp"
#include "lockstep/formats/network_onnx.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"

namespace lockstep {
namespace {

using Value = OnnxGraph::Value;
using Norm = SasRecArch::Norm;

/// The score of an invisible key: its weight is exactly 0, and a row without visible keys stays finite.
constexpr double kUnseen = -1e30;

/// The keys (columns) that each query sees: the earlier keys and its own, padding only if it is stored.
/// shapes  (T, T), or (n, 1, T, T)
Value visible_keys(OnnxGraph& graph, const SasRecArch& arch, const Value& event) {
  const std::int64_t t = arch.slots;
  std::vector<std::int64_t> earlier;
  for (std::int64_t i = 0; i < t * t; ++i) earlier.push_back(i % t <= i / t);
  Value causal = graph.node("Cast", {graph.node("Reshape", {graph.integers(earlier), graph.integers({t, t})})},
                            {OnnxGraph::integer("to", 9)});  // TensorProto.BOOL
  if (arch.padded()) return causal;
  return graph.node("And", {causal, graph.node("Reshape", {event, graph.integers({-1, 1, 1, t})})});
}

}  // namespace

std::string sasrec_onnx(const NamedArrays& file, const std::string& what) {
  const SasRecArch arch = parse_sasrec(file.metadata, what);
  require_usage(!arch.timed && arch.mhc == SasRecArch::Mhc::none, what, ": an ONNX file cannot hold ",
                arch.timed ? "the time intervals of tisasrec" : "hyper-connections", "; export safetensors");
  require_values(file, arch.parameters(), what);
  SasRec network(arch);
  load_arrays(network.params(), file, {}, what);
  OnnxGraph graph("sasrec");
  graph.parameters(network.params());
  const auto add = [&](const Value& a, const Value& b) { return graph.node("Add", {a, b}); };

  const Value items = graph.input("items", OnnxGraph::Type::i64, {arch.slots});
  const Value event = graph.node("Greater", {items, graph.integers({0})});
  const Value visible = visible_keys(graph, arch, event);
  const Value positions =
      graph.node("Slice", {"pos_emb.weight", graph.integers({1}), graph.integers({arch.slots + 1})});
  Value x = graph.node("Mul", {graph.node("Gather", {"item_emb.weight", items}),
                               graph.scalar(std::sqrt(static_cast<double>(arch.hidden)))});
  const Value padding = graph.node("Reshape", {event, graph.integers({-1, arch.slots, 1})});
  x = graph.node("Where", {padding, add(x, positions), graph.scalar(0)});

  for (std::int64_t b = 0; b < arch.blocks; ++b) {
    const std::string attention = join("attention_layers.", b, ".");
    const auto norm1 = [&](const Value& v) {
      return graph.layernorm(v, join("attention_layernorms.", b), arch.ln_eps);
    };
    const auto norm2 = [&](const Value& v) { return graph.layernorm(v, join("forward_layernorms.", b), arch.ln_eps); };
    const auto attend = [&](const Value& q, const Value& kv) {
      return graph.linear(graph.attention(graph.linear(q, attention + "q_w"), graph.linear(kv, attention + "k_w"),
                                          graph.linear(kv, attention + "v_w"), arch.heads, arch.head_width(), visible,
                                          arch.padded() ? -1000 : kUnseen),
                          attention + "out_w");
    };
    const auto feed_forward = [&](const Value& v) {
      const std::string layer = join("forward_layers.", b, ".conv");
      return graph.linear(graph.activation(graph.linear(v, layer + "1"), ops::Activation::relu), layer + "2");
    };
    if (arch.norm == Norm::pre) {
      const Value z = norm1(x);
      x = add(x, attend(z, z));
      x = add(x, feed_forward(norm2(x)));
    } else if (arch.norm == Norm::post) {
      x = norm1(add(x, attend(x, x)));
      x = norm2(add(x, feed_forward(x)));
    } else {
      const Value q = norm1(x);
      const Value z = norm2(add(q, attend(q, x)));
      x = arch.ffn_residual ? add(z, feed_forward(z)) : feed_forward(z);
    }
  }
  x = graph.node("Slice", {x, graph.integers({arch.slots - 1}), graph.integers({arch.slots}), graph.integers({1})});
  x = graph.layernorm(graph.node("Reshape", {x, graph.integers({-1, arch.hidden})}), "last_layernorm", arch.ln_eps);
  const Value all = graph.node("Gemm", {x, "item_emb.weight"}, {OnnxGraph::integer("transB", 1)});
  graph.node("Slice", {all, graph.integers({1}), graph.integers({arch.items + 1}), graph.integers({1})}, {}, "scores");
  graph.output("scores", {arch.items});
  return graph.file({file.metadata.begin(), file.metadata.end()});
}

}  // namespace lockstep
