#include <numbers>

#include "files.hpp"
#include "lockstep/io/protobuf.hpp"

/// ONNX: one graph, x (n, n_in) -> y (n, n_out) in physical units and f32, with operators of opset 13 only, which old
/// runtimes support.
/// source  github.com/onnx/onnx, onnx.proto and Operators.md
namespace lockstep::files {
namespace {

using Message = ProtobufMessage;

constexpr std::int64_t kFloat = 1, kInt64 = 7;                       // TensorProto.DataType
constexpr std::int64_t kTypeFloat = 1, kTypeInt = 2, kTypeInts = 7;  // AttributeProto.AttributeType
constexpr std::int64_t kIrVersion = 8, kOpset = 13;

Message attribute(const char* name, std::int64_t value) {
  return Message().text(1, name).integer(3, value).integer(20, kTypeInt);
}
Message attribute(const char* name, double value) {
  return Message().text(1, name).real(2, static_cast<float>(value)).integer(20, kTypeFloat);
}
Message attribute(const char* name, std::initializer_list<std::int64_t> values) {
  Message out;
  out.text(1, name);
  for (const std::int64_t value : values) out.integer(8, value);
  return out.integer(20, kTypeInts);
}

/// A graph under construction. Each call adds a node or constant and returns the name of its result.
class Graph {
 public:
  std::string node(const char* op, const std::vector<std::string>& inputs, const std::vector<Message>& attributes = {},
                   std::string output = {}) {
    if (output.empty()) output = join("v", count_);
    Message message;
    for (const std::string& input : inputs) message.text(1, input);
    message.text(2, output).text(3, join(op, "_", count_++)).text(4, op);
    for (const Message& value : attributes) message.message(5, value);
    nodes_.message(1, message);
    return output;
  }
  std::string constant(const std::string& name, std::int64_t type, const std::vector<std::int64_t>& shape,
                       std::string_view bytes) {
    Message tensor;
    for (const std::int64_t extent : shape) tensor.integer(1, extent);
    constants_.message(5, tensor.integer(2, type).text(8, name).text(9, bytes));
    return name;
  }
  std::string constant(const std::string& name, const std::vector<double>& values) {
    const std::vector<float> rounded(values.begin(), values.end());
    return constant(name, kFloat, {static_cast<std::int64_t>(values.size())},
                    {reinterpret_cast<const char*>(rounded.data()), 4 * rounded.size()});
  }
  std::string scalar(const char* name, double value) {
    const auto rounded = static_cast<float>(value);
    return constant(name, kFloat, {}, {reinterpret_cast<const char*>(&rounded), 4});
  }
  std::string bytes(std::int64_t n_in, std::int64_t n_out) const {
    const auto value_info = [](const char* name, std::int64_t width) {
      const Message shape = Message().message(1, Message().text(2, "n")).message(1, Message().integer(1, width));
      return Message().text(1, name).message(2, Message().message(1, Message().integer(1, kFloat).message(2, shape)));
    };
    return nodes_.bytes() + Message().text(2, "emulator").bytes() + constants_.bytes() +
           Message().message(11, value_info("x", n_in)).bytes() + Message().message(12, value_info("y", n_out)).bytes();
  }

 private:
  Message nodes_, constants_;
  int count_ = 0;
};

/// phi(a) in operators of opset 13.
class Activation {
 public:
  Activation(Graph& graph, const std::string& name) : graph_(graph), name_(name) {
    if (name != "gelu") return;
    graph.scalar("sqrt_half", std::numbers::sqrt2 / 2);
    graph.scalar("one", 1);
    graph.scalar("half", 0.5);
  }
  std::string operator()(const std::string& a) const {
    if (name_ == "gelu") {
      const std::string cdf2 = graph_.node("Add", {graph_.node("Erf", {graph_.node("Mul", {a, "sqrt_half"})}), "one"});
      return graph_.node("Mul", {graph_.node("Mul", {a, cdf2}), "half"});
    }
    if (name_ == "relu") return graph_.node("Relu", {a});
    if (name_ == "tanh") return graph_.node("Tanh", {a});
    if (name_ == "sigmoid") return graph_.node("Sigmoid", {a});
    if (name_ == "leakyrelu") return graph_.node("LeakyRelu", {a}, {attribute("alpha", 0.01)});
    if (name_ == "elu") return graph_.node("Elu", {a}, {attribute("alpha", 1.0)});
    if (name_ == "silu") return graph_.node("Mul", {a, graph_.node("Sigmoid", {a})});
    throw Error(Fault::data,
                join("writing an ONNX file: it cannot hold the activation '", name_, "'; choose another format"));
  }

 private:
  Graph& graph_;
  std::string name_;
};

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) out += (i ? "," : "") + names[i];
  return out;
}

}  // namespace

std::string onnx_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorArch& arch = network.arch();
  const Emulator rounded = network.as(DType::f32);
  Graph graph;
  for (const FileTensor& tensor : weights_of(rounded))
    graph.constant(tensor.name, kFloat, tensor.shape, tensor.bytes());
  const Activation phi(graph, arch.activation);

  std::string h = graph.node("Sub", {"x", graph.constant("input_mean", network.moments().input_mean)});
  h = graph.node("Div", {h, graph.constant("input_std", network.moments().input_std)});
  if (arch.conv_channels > 0) {
    const std::int64_t channel_axis = 1;
    graph.constant("channel_axis", kInt64, {1}, {reinterpret_cast<const char*>(&channel_axis), sizeof channel_axis});
    const std::int64_t pad = arch.conv_kernel / 2;
    h = graph.node("Unsqueeze", {h, "channel_axis"});
    h = graph.node("Conv", {h, "conv1d.weight", "conv1d.bias"},
                   {attribute("kernel_shape", {arch.conv_kernel}), attribute("pads", {pad, pad})});
    h = graph.node("Flatten", {phi(h)}, {attribute("axis", std::int64_t{1})});
  }
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    const std::string layer = join("network.", 2 * k);
    h = graph.node("Gemm", {h, layer + ".weight", layer + ".bias"}, {attribute("transB", std::int64_t{1})});
    if (k < arch.layers) h = phi(h);
  }
  h = graph.node("Mul", {h, graph.constant("output_std", network.moments().output_std)});
  graph.node("Add", {h, graph.constant("output_mean", network.moments().output_mean)}, {}, "y");

  Message model;
  model.integer(1, kIrVersion).text(2, "lockstep").text(3, LOCKSTEP_VERSION);
  model.text(7, graph.bytes(arch.n_in, arch.n_out));
  model.message(8, Message().text(1, "").integer(2, kOpset));
  const auto add_metadata = [&](const std::string& key, const std::string& value) {
    model.message(14, Message().text(1, key).text(2, value));
  };
  add_metadata("input_names", joined(metadata.variables.input_names));
  add_metadata("output_names", joined(metadata.variables.output_names));
  for (const auto& [key, value] : describe(arch, metadata)) add_metadata(key, value);
  return model.bytes();
}

}  // namespace lockstep::files
