#include "onnx_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "files.hpp"
#include "lockstep/io/protobuf.hpp"

namespace lockstep::files::onnx {
namespace {

/// Reads into `out`. source  github.com/onnx/onnx, onnx.proto
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& opening) : size_(bytes.size()), opening_(opening) {
    for (const ProtobufField& field : fields(bytes)) {
      if (field.number == 7) read_graph(field.bytes);
      if (field.number == 14) read_metadata(field.bytes);
    }
  }
  File out;

 private:
  std::vector<ProtobufField> fields(std::string_view message) const { return protobuf_fields(message, opening_); }

  void read_metadata(std::string_view message) {
    std::pair<std::string, std::string> entry;
    for (const ProtobufField& field : fields(message)) (field.number == 1 ? entry.first : entry.second) = field.bytes;
    out.metadata.push_back(std::move(entry));
  }

  void read_graph(std::string_view message) {
    std::vector<std::string> inputs;
    for (const ProtobufField& field : fields(message)) {
      if (field.number == 1) read_node(field.bytes);
      if (field.number == 5) {
        std::string name;
        Constant tensor = read_tensor(field.bytes, name);
        out.constants[name] = std::move(tensor);
      }
      require_format(field.number != 15, opening_, ": it has sparse weights; save dense ones");
      if (field.number != 11 && field.number != 12) continue;
      for (const ProtobufField& info : fields(field.bytes))
        if (info.number == 1) (field.number == 11 ? inputs : out.outputs).emplace_back(info.bytes);
    }
    for (std::string& name : inputs)  // old files list the constants as inputs, too
      if (!out.constants.contains(name)) out.inputs.push_back(std::move(name));
  }

  void read_node(std::string_view message) {
    Node& node = out.nodes.emplace_back();
    std::string title;
    for (const ProtobufField& field : fields(message)) {
      const std::string text(field.bytes);
      if (field.number == 1) node.inputs.push_back(text);
      if (field.number == 2) node.outputs.push_back(text);
      if (field.number == 3) title = text;
      if (field.number == 4) node.op = text;
      if (field.number == 7 && !text.empty() && text != "ai.onnx") node.op = text + "." + node.op;
      if (field.number != 5) continue;
      Attribute attribute;
      std::string name, unused;
      for (const ProtobufField& part : fields(field.bytes)) {
        if (part.number == 1) name = part.bytes;
        if (part.number == 2) attribute.real = std::bit_cast<float>(static_cast<std::uint32_t>(part.value));
        if (part.number == 3) attribute.integer = static_cast<std::int64_t>(part.value);
        if (part.number == 5) attribute.tensor = read_tensor(part.bytes, unused);
        if (part.number == 8)
          for (const std::int64_t value : protobuf_integers(part, opening_)) attribute.integers.push_back(value);
      }
      node.attributes[name] = std::move(attribute);
    }
    node.place = join("node '", title, "' (", node.op, ")");
  }

  /// A TensorProto of f32, f64 or i64.
  Constant read_tensor(std::string_view message, std::string& name) const {
    Constant tensor;
    std::int64_t type = 0;
    std::string_view raw;
    bool elsewhere = false;
    for (const ProtobufField& field : fields(message)) {
      if (field.number == 1)
        for (const std::int64_t extent : protobuf_integers(field, opening_)) tensor.shape.push_back(extent);
      if (field.number == 2) type = static_cast<std::int64_t>(field.value);
      if (field.number == 8) name = field.bytes;
      if (field.number == 4 || field.number == 9 || field.number == 10) raw = field.bytes;
      if (field.number == 7)
        for (const std::int64_t value : protobuf_integers(field, opening_))
          tensor.values.push_back(static_cast<double>(value));
      elsewhere = elsewhere || field.number == 13 || (field.number == 14 && field.value != 0);
    }
    require_format(!elsewhere, opening_, ": tensor '", name, "' lies in another file; save one file with all weights");
    tensor.wide = type == 11;
    const auto numbers = [&]<class T>(T) {
      const std::size_t before = tensor.values.size();
      tensor.values.resize(before + raw.size() / sizeof(T));
      for (std::size_t i = before; i < tensor.values.size(); ++i) {
        T value;
        std::memcpy(&value, raw.data() + (i - before) * sizeof(T), sizeof(T));
        tensor.values[i] = static_cast<double>(value);
      }
    };
    if (type == 1) numbers(float());
    if (type == 11) numbers(double());
    if (type == 7) numbers(std::int64_t());
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) {
      require_data(extent >= 0 && static_cast<std::size_t>(extent) <= size_, opening_, ": tensor '", name,
                   "' has an extent of ", extent, "; the file is damaged");
      count = std::min(count * static_cast<std::size_t>(extent), size_ + 1);
    }
    require_data(type != 1 && type != 7 && type != 11 ? true : count == tensor.values.size(), opening_, ": tensor '",
                 name, "' has ", tensor.values.size(), " values for its shape; the file is damaged");
    return tensor;
  }

  std::size_t size_;
  std::string opening_;
};

}  // namespace

File read(std::string_view bytes, const std::string& opening) { return Reader(bytes, opening).out; }

}  // namespace lockstep::files::onnx
