#include "formats/onnx_graph.hpp"

#include <cmath>
#include <numbers>

#include "lockstep/base/error.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {
namespace {

using Message = ProtobufMessage;
constexpr std::int64_t kIrVersion = 8;
constexpr std::int64_t kTypeFloat = 1, kTypeInt = 2, kTypeInts = 7;  // AttributeProto.AttributeType

std::string_view bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

/// A ValueInfoProto of the shape (n, extents...).
Message value_info(const char* name, OnnxGraph::Type type, const std::vector<std::int64_t>& extents) {
  Message shape = Message().message(1, Message().text(2, "n"));
  for (const std::int64_t extent : extents) shape.message(1, Message().integer(1, extent));
  const Message tensor = Message().integer(1, static_cast<std::int64_t>(type)).message(2, shape);
  return Message().text(1, name).message(2, Message().message(1, tensor));
}

}  // namespace

OnnxGraph::Value OnnxGraph::input(const char* name, Type type, const std::vector<std::int64_t>& extents) {
  inputs_.message(11, value_info(name, type, extents));
  return name;
}

void OnnxGraph::output(const char* name, const std::vector<std::int64_t>& extents) {
  outputs_.message(12, value_info(name, Type::f32, extents));
}

OnnxGraph::Attribute OnnxGraph::integer(const char* name, std::int64_t value) {
  return Message().text(1, name).integer(3, value).integer(20, kTypeInt);
}
OnnxGraph::Attribute OnnxGraph::real(const char* name, double value) {
  return Message().text(1, name).real(2, static_cast<float>(value)).integer(20, kTypeFloat);
}
OnnxGraph::Attribute OnnxGraph::list(const char* name, const std::vector<std::int64_t>& values) {
  Message out;
  out.text(1, name);
  for (const std::int64_t value : values) out.integer(8, value);
  return out.integer(20, kTypeInts);
}

OnnxGraph::Value OnnxGraph::node(const char* op, const std::vector<Value>& inputs,
                                 const std::vector<Attribute>& attributes, Value output) {
  if (output.empty()) output = join("v", count_);
  Message message;
  for (const Value& input : inputs) message.text(1, input);
  message.text(2, output).text(3, join(op, "_", count_++)).text(4, op);
  for (const Attribute& value : attributes) message.message(5, value);
  nodes_.message(1, message);
  return output;
}

OnnxGraph::Value OnnxGraph::constant(const std::string& name, Type type, const std::vector<std::int64_t>& shape,
                                     std::string_view bytes) {
  Message tensor;
  for (const std::int64_t extent : shape) tensor.integer(1, extent);
  constants_.message(5, tensor.integer(2, static_cast<std::int64_t>(type)).text(8, name).text(9, bytes));
  return name;
}
OnnxGraph::Value OnnxGraph::constant(const std::string& name, const std::vector<std::int64_t>& shape,
                                     const std::vector<double>& values) {
  return constant(name, Type::f32, shape, bytes_of(std::vector<float>(values.begin(), values.end())));
}
OnnxGraph::Value OnnxGraph::integers(const std::vector<std::int64_t>& values) {
  return constant(count_name(), Type::i64, {std::ssize(values)}, bytes_of(values));
}
OnnxGraph::Value OnnxGraph::scalar(double value) {
  Value& known = scalars_[value];
  if (known.empty()) known = constant(count_name(), {}, {value});
  return known;
}

void OnnxGraph::parameters(const ParamStore& params) {
  for (const Param& p : params.all()) {
    NamedArray array = array_of(p);
    while (array.shape.size() > 2 && array.shape.back() == 1) array.shape.pop_back();
    std::visit(
        [&](const auto& from) {
          constant(p.name, Type::f32, array.shape, bytes_of(std::vector<float>(from.begin(), from.end())));
        },
        array.values);
  }
}

OnnxGraph::Value OnnxGraph::activation(const Value& a, ops::Activation phi) {
  using enum ops::Activation;
  switch (phi) {
    case none:
      return a;
    case gelu: {
      const Value cdf2 = node("Add", {node("Erf", {node("Mul", {a, scalar(std::numbers::sqrt2 / 2)})}), scalar(1)});
      return node("Mul", {node("Mul", {a, cdf2}), scalar(0.5)});
    }
    case relu:
      return node("Relu", {a});
    case tanh:
      return node("Tanh", {a});
    case sigmoid:
      return node("Sigmoid", {a});
    case leaky_relu:
      return node("LeakyRelu", {a}, {real("alpha", 0.01)});
    case elu:
      return node("Elu", {a}, {real("alpha", 1.0)});
    case silu:
      return node("Mul", {a, node("Sigmoid", {a})});
  }
  return {};
}

OnnxGraph::Value OnnxGraph::linear(const Value& x, const std::string& name) {
  const Value weight = node("Transpose", {name + ".weight"}, {list("perm", {1, 0})});
  return node("Add", {node("MatMul", {x, weight}), name + ".bias"});
}

OnnxGraph::Value OnnxGraph::layernorm(const Value& x, const std::string& name, double eps) {
  const auto mean = [&](const Value& v) {
    return node("ReduceMean", {v}, {list("axes", {-1}), integer("keepdims", 1)});
  };
  const Value centred = node("Sub", {x, mean(x)});
  const Value variance = mean(node("Mul", {centred, centred}));
  const Value unit = node("Div", {centred, node("Sqrt", {node("Add", {variance, scalar(eps)})})});
  return node("Add", {node("Mul", {unit, name + ".weight"}), name + ".bias"});
}

OnnxGraph::Value OnnxGraph::attention(const Value& q, const Value& k, const Value& v, std::int64_t heads,
                                      std::int64_t width, const Value& visible, double hidden) {
  const Value split = integers({0, 0, heads, width}), merge = integers({0, 0, heads * width});  // 0: unchanged
  const auto per_head = [&](const Value& x, const std::vector<std::int64_t>& order) {
    return node("Transpose", {node("Reshape", {x, split})}, {list("perm", order)});
  };
  Value scores = node("MatMul", {per_head(q, {0, 2, 1, 3}), per_head(k, {0, 2, 3, 1})});
  scores = node("Mul", {scores, scalar(1 / std::sqrt(static_cast<double>(width)))});
  if (!visible.empty()) scores = node("Where", {visible, scores, scalar(hidden)});
  const Value weights = node("Softmax", {scores}, {integer("axis", -1)});
  const Value sums = node("MatMul", {weights, per_head(v, {0, 2, 1, 3})});
  return node("Reshape", {node("Transpose", {sums}, {list("perm", {0, 2, 1, 3})}), merge});
}

std::string OnnxGraph::file(const Pairs& metadata) const {
  Message model;
  model.integer(1, kIrVersion).text(2, "lockstep").text(3, LOCKSTEP_VERSION);
  model.text(
      7, nodes_.bytes() + Message().text(2, name_).bytes() + constants_.bytes() + inputs_.bytes() + outputs_.bytes());
  model.message(8, Message().text(1, "").integer(2, kOpset));
  for (const auto& [key, value] : metadata) model.message(14, Message().text(1, key).text(2, value));
  return model.bytes();
}

}  // namespace lockstep
