#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/formats/emulator_files.hpp"

/// The contents of an ONNX file as far as feed-forward networks need them. TorchScript code is translated into the
/// same form.
namespace lockstep::files::onnx {

/// A tensor of f32, f64, i64, i32 or bool. A tensor of any other type has no values.
struct Constant {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool wide = false;  ///< f64
};

/// An attribute of a node: the fields of AttributeProto that are used.
struct Attribute {
  std::int64_t integer = 0;
  float real = 0;
  std::string text;
  std::vector<std::int64_t> integers;
  Constant tensor;  ///< also of a list of real numbers
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
  std::string text(const char* key, const char* otherwise) const {
    return attributes.contains(key) ? attributes.at(key).text : otherwise;
  }
  /// Whether input i is given: an empty name stands for one that is left out.
  bool has_input(std::size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
};

struct File {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<Node> nodes;
  std::vector<std::string> inputs, outputs;  ///< of the graph, without constants
  std::map<std::string, Constant> constants;
};
/// folder   where files with weights lie, and their only place; "": weights in other files are refused
/// errors   data, beginning with `opening`: damaged, or a file with weights that is missing, too short or elsewhere;
///          ModelFileError (format): sparse weights
File read(std::string_view bytes, const std::string& opening, const std::filesystem::path& folder);

}  // namespace lockstep::files::onnx

namespace lockstep::files {

/// Recognises the emulator in a graph. Each value must have a form that occurs in an emulator.
/// errors  ModelFileError (usage), naming the place: a graph that is no emulator; data: moments that are not finite
TrainedEmulator emulator_of(onnx::File file, const std::string& source);

}  // namespace lockstep::files
