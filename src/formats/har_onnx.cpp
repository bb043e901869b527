#include "formats/onnx_graph.hpp"
#include "lockstep/formats/network_onnx.hpp"
#include "lockstep/models/har/har_weights.hpp"

namespace lockstep {
namespace {

using Value = OnnxGraph::Value;
using Mode = HarArch::Mode;

Value mean_over(OnnxGraph& graph, const Value& x, std::int64_t axis) {
  return graph.node("ReduceMean", {x}, {OnnxGraph::list("axes", {axis}), OnnxGraph::integer("keepdims", 0)});
}

/// The embedded patches of each sequence. shapes  x (n, C, L) -> (n S, T, D), S sequences of a window
Value embed(OnnxGraph& graph, const HarArch& arch, Value x, const HarMetadata& data) {
  const std::int64_t lacking = arch.tokens() * arch.patch - arch.length,
                     channels = arch.mode == Mode::first ? 1 : arch.channels;
  if (channels < arch.channels)
    x = graph.node("Slice", {x, graph.integers({0}), graph.integers({channels}), graph.integers({1})});
  const auto per_channel = [&](const char* name, const std::vector<double>& values) {
    return graph.constant(name, {channels, 1}, {values.begin(), values.begin() + channels});
  };
  x = graph.node("Sub", {x, per_channel("channel_mean", data.channel_mean)});
  x = graph.node("Div", {x, per_channel("channel_std", data.channel_std)});
  if (lacking > 0) x = graph.node("Pad", {x, graph.integers({0, 0, 0, 0, 0, lacking})});
  x = graph.node("Reshape", {x, graph.integers({-1, arch.tokens(), arch.patch})});
  x = graph.linear(x, "encoder.stem");
  if (arch.mode != Mode::average) return x;
  return mean_over(graph, graph.node("Reshape", {x, graph.integers({-1, channels, arch.tokens(), arch.dim})}), 1);
}

Value encode(OnnxGraph& graph, const HarArch& arch, Value x) {
  const auto norm = [&](const Value& v, const std::string& name) { return graph.layernorm(v, name, arch.norm_eps); };
  x = graph.node("Add", {norm(x, "encoder.stem_ln"), "encoder.pos_embedding"});
  for (std::int64_t l = 0; l < arch.layers; ++l) {
    const std::string path = join("encoder.encoder_layers.", l, ".");
    const Value u = norm(x, path + "mha_ln");
    const Value attended =
        graph.attention(graph.linear(u, path + "mha.query_dense"), graph.linear(u, path + "mha.key_dense"),
                        graph.linear(u, path + "mha.value_dense"), arch.heads, arch.head_width);
    const Value middle = graph.node("Add", {x, graph.linear(attended, path + "mha.output_dense")});
    const Value inner = arch.pre_norm ? norm(middle, path + "mlp.layernorm") : middle;
    const Value up = graph.activation(graph.linear(inner, path + "mlp.dense1"), ops::Activation::gelu);
    x = graph.node("Add", {middle, graph.linear(up, path + "mlp.dense2")});
    if (!arch.pre_norm) x = norm(x, path + "mlp.layernorm");
  }
  return norm(x, "encoder.output_ln");
}

/// shapes  x (n S, T, D) -> (n, S D)
Value pool(OnnxGraph& graph, const HarArch& arch, const Value& x) {
  Value pooled;
  if (arch.pool == HarArch::Pool::mean) {
    pooled = mean_over(graph, x, 1);
  } else {
    const Value hidden = graph.activation(graph.linear(x, "pooling.attention.0"), ops::Activation::tanh);
    const Value weights =
        graph.node("Softmax", {graph.linear(hidden, "pooling.attention.2")}, {OnnxGraph::integer("axis", 1)});
    pooled = graph.node("MatMul", {graph.node("Transpose", {weights}, {OnnxGraph::list("perm", {0, 2, 1})}), x});
  }
  return graph.node("Reshape", {pooled, graph.integers({-1, arch.sequences() * arch.dim})});
}

}  // namespace

std::string har_onnx(const NamedArrays& file, const std::string& what) {
  HarArch arch;
  HarMetadata data;
  parse(file.metadata, what, arch, data);
  require_usage(arch.input == HarArch::Input::signal, what,
                ": model.input = image: an ONNX file cannot draw the pictures; export safetensors");
  require_values(file, arch.parameters(), what);
  Har network(arch, DType::f32, 0);
  load_arrays(network.params(), file, {}, what);
  OnnxGraph graph("har");
  graph.parameters(network.params());
  const Value x = graph.input("x", OnnxGraph::Type::f32, {arch.channels, arch.length});
  Value u = pool(graph, arch, encode(graph, arch, embed(graph, arch, x, data)));
  std::size_t index = 0;
  for (; index < 4 * arch.hidden.size(); index += 4) {
    const Value inner = graph.linear(u, join("classifier.head.", index));
    u = graph.activation(graph.layernorm(inner, join("classifier.head.", index + 1), arch.norm_eps),
                         ops::Activation::gelu);
  }
  const Value logits = graph.linear(u, join("classifier.head.", index));
  if (arch.mode == Mode::independent) {
    const Value each = graph.node("LogSoftmax", {logits}, {OnnxGraph::integer("axis", -1)});
    const Value windows = graph.node("Reshape", {each, graph.integers({-1, arch.channels, arch.classes})});
    graph.node("ReduceMean", {windows}, {OnnxGraph::list("axes", {1}), OnnxGraph::integer("keepdims", 0)}, "scores");
  } else {
    graph.node("Identity", {logits}, {}, "scores");
  }
  graph.output("scores", {arch.classes});
  return graph.file({file.metadata.begin(), file.metadata.end()});
}

}  // namespace lockstep
