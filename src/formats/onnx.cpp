#include "files.hpp"
#include "formats/onnx_graph.hpp"
#include "lockstep/base/text.hpp"

/// ONNX: one graph, x (n, n_in) -> y (n, n_out) in physical units and f32.
namespace lockstep::files {

std::string onnx_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorArch& arch = network.arch();
  const Emulator rounded = network.as(DType::f32);
  OnnxGraph graph("emulator");
  const auto moments = [&](const char* name, const std::vector<double>& values) {
    return graph.constant(name, {std::ssize(values)}, values);
  };
  for (const NamedArray& tensor : weights_of(rounded))
    graph.constant(tensor.name, OnnxGraph::Type::f32, tensor.shape, bytes_of(tensor));
  const auto phi = [&](const std::string& a) { return graph.activation(a, arch.activation); };

  std::string h = graph.input("x", OnnxGraph::Type::f32, {arch.n_in});
  h = graph.node("Sub", {h, moments("input_mean", network.moments().input_mean)});
  h = graph.node("Div", {h, moments("input_std", network.moments().input_std)});
  if (arch.conv_channels > 0) {
    const std::int64_t pad = arch.conv_kernel / 2;
    h = graph.node("Unsqueeze", {h, graph.integers({1})});
    h = graph.node("Conv", {h, "conv1d.weight", "conv1d.bias"},
                   {OnnxGraph::list("kernel_shape", {arch.conv_kernel}), OnnxGraph::list("pads", {pad, pad})});
    h = graph.node("Flatten", {phi(h)}, {OnnxGraph::integer("axis", 1)});
  }
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    const std::string layer = join("network.", 2 * k);
    h = graph.node("Gemm", {h, layer + ".weight", layer + ".bias"}, {OnnxGraph::integer("transB", 1)});
    if (k < arch.layers) h = phi(h);
  }
  h = graph.node("Mul", {h, moments("output_std", network.moments().output_std)});
  graph.node("Add", {h, moments("output_mean", network.moments().output_mean)}, {}, "y");
  graph.output("y", {arch.n_out});

  Pairs entries = {{"input_names", listed(metadata.variables.input_names, ",")},
                   {"output_names", listed(metadata.variables.output_names, ",")}};
  for (const auto& entry : describe(arch, metadata)) entries.push_back(entry);
  return graph.file(entries);
}

}  // namespace lockstep::files
