#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/models/emulator/emulator_files.hpp"

/// The contents of an ONNX file as far as feed-forward networks need them. TorchScript code is translated into the
/// same form.
namespace lockstep::files::onnx {

/// A tensor of f32, f64 or i64. A tensor of another type has no values.
struct Constant {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool wide = false;  ///< f64
};

/// An attribute of a node: the fields of AttributeProto that are used.
struct Attribute {
  std::int64_t integer = 0;
  float real = 0;
  std::vector<std::int64_t> integers;
  Constant tensor;
};

struct Node {
  std::string op, place;  ///< place: where it is, for messages, such as "node 'NAME' (OP)"
  std::vector<std::string> inputs, outputs;
  std::map<std::string, Attribute> attributes;

  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    return attributes.contains(key) ? attributes.at(key).integer : otherwise;
  }
  double real(const char* key, double otherwise) const {
    return attributes.contains(key) ? static_cast<double>(attributes.at(key).real) : otherwise;
  }
};

struct File {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<Node> nodes;
  std::vector<std::string> inputs, outputs;  ///< of the graph, without constants
  std::map<std::string, Constant> constants;
};
/// errors  data, beginning with `opening`: damaged; ModelFileError (format): sparse weights, or weights in another file
File read(std::string_view bytes, const std::string& opening);

}  // namespace lockstep::files::onnx

namespace lockstep::files {

/// Recognises the emulator in a graph. Each value must have a form that occurs in an emulator.
/// errors  ModelFileError (usage), naming the place: a graph that is no emulator; data: moments that are not finite
TrainedEmulator emulator_of(onnx::File file, const std::string& source);

}  // namespace lockstep::files
