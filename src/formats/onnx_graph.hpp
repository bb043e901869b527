#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/io/protobuf.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/ops/activation.hpp"

namespace lockstep {

/// An ONNX graph under construction, with operators of opset 13 only, which old runtimes support. Each call adds nodes
/// or a constant and returns the name of its result.
///
/// source  github.com/onnx/onnx, onnx.proto and Operators.md
class OnnxGraph {
 public:
  static constexpr std::int64_t kOpset = 13;
  enum class Type : std::uint8_t { f32 = 1, i64 = 7 };  ///< TensorProto.DataType
  using Value = std::string;
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  explicit OnnxGraph(std::string_view name) : name_(name) {}

  /// An input or output (n, extents...) of the graph, for any n. An output is the result of a node of that name.
  Value input(const char* name, Type type, const std::vector<std::int64_t>& extents);
  void output(const char* name, const std::vector<std::int64_t>& extents);

  using Attribute = ProtobufMessage;
  static Attribute integer(const char* name, std::int64_t value);
  static Attribute real(const char* name, double value);
  static Attribute list(const char* name, const std::vector<std::int64_t>& values);
  Value node(const char* op, const std::vector<Value>& inputs, const std::vector<Attribute>& attributes = {},
             Value output = {});

  Value constant(const std::string& name, Type type, const std::vector<std::int64_t>& shape, std::string_view bytes);
  Value constant(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<double>& values);
  Value integers(const std::vector<std::int64_t>& values);
  Value scalar(double value);
  /// Adds every parameter under its name, in f32. Drops trailing extents of 1 after the second: a convolution of width
  /// 1 is a matrix.
  void parameters(const ParamStore& params);

  Value activation(const Value& a, ops::Activation phi);
  /// x W' + b with the parameters NAME.weight (out, in) and NAME.bias. shapes  x (..., in)
  Value linear(const Value& x, const std::string& name);
  /// Layer norm over the last axis, with NAME.weight and NAME.bias.
  Value layernorm(const Value& x, const std::string& name, double eps);
  /// softmax(q k' / sqrt(width)) v per head. shapes  q, k, v (n, T, heads width); the
  /// score is `hidden` where the boolean `visible` (broadcast to (n, 1, T, T)) is false; empty: all are visible
  Value attention(const Value& q, const Value& k, const Value& v, std::int64_t heads, std::int64_t width,
                  const Value& visible = {}, double hidden = 0);

  /// The whole file, with `metadata` as its metadata_props.
  std::string file(const Pairs& metadata) const;

 private:
  Value count_name() { return "c" + std::to_string(constants_count_++); }

  std::string name_;
  ProtobufMessage nodes_, constants_, inputs_, outputs_;
  std::map<double, Value> scalars_;
  int count_ = 0, constants_count_ = 0;
};

}  // namespace lockstep
