#include "onnx_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>

#include "files.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/io/protobuf.hpp"

namespace lockstep::files::onnx {
namespace {

namespace fs = std::filesystem;
enum Type : std::int64_t { f32 = 1, i32 = 6, i64 = 7, boolean = 9, f64 = 11 };

/// Where the values of a tensor lie in another file: entries of TensorProto.external_data.
struct External {
  std::string location;
  std::int64_t offset = 0, length = -1;  ///< -1: to the end of the file
};

/// Reads into `out`. source  github.com/onnx/onnx, onnx.proto
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& opening, const fs::path& folder)
      : most_values_(bytes.size()), opening_(opening), folder_(folder) {
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
        if (part.number == 4) attribute.text = part.bytes;
        if (part.number == 5) attribute.tensor = read_tensor(part.bytes, unused);
        if (part.number == 7) real_numbers(part, attribute.tensor);
        if (part.number == 8)
          for (const std::int64_t value : protobuf_integers(part, opening_)) attribute.integers.push_back(value);
      }
      node.attributes[name] = std::move(attribute);
    }
    if (title.empty() && !node.outputs.empty()) title = node.outputs[0];
    node.place = join("node '", title, "' (", node.op, ")");
  }

  /// Appends the elements of a field of f32, packed or alone, to a list.
  static void real_numbers(const ProtobufField& field, Constant& list) {
    for (std::string_view rest = field.bytes; rest.size() >= sizeof(float); rest.remove_prefix(sizeof(float))) {
      float value;
      std::memcpy(&value, rest.data(), sizeof value);
      list.values.push_back(static_cast<double>(value));
    }
    list.shape = {std::ssize(list.values)};
  }

  /// A TensorProto.
  Constant read_tensor(std::string_view message, std::string& name) {
    Constant tensor;
    std::int64_t type = 0;
    std::string raw;
    External external;
    bool elsewhere = false;
    for (const ProtobufField& field : fields(message)) {
      if (field.number == 1)
        for (const std::int64_t extent : protobuf_integers(field, opening_)) tensor.shape.push_back(extent);
      if (field.number == 2) type = static_cast<std::int64_t>(field.value);
      if (field.number == 8) name = field.bytes;
      if (field.number == 4 || field.number == 9 || field.number == 10) raw += field.bytes;
      if (field.number == 5 || field.number == 7)
        for (const std::int64_t value : protobuf_integers(field, opening_))
          tensor.values.push_back(static_cast<double>(value));
      if (field.number == 13) read_external(field.bytes, external);
      elsewhere = elsewhere || field.number == 13 || (field.number == 14 && field.value != 0);
    }
    if (elsewhere) raw = external_bytes(external, "tensor '" + name + "'");
    tensor.wide = type == Type::f64;
    const auto numbers = [&]<class T>(T) {
      const std::size_t before = tensor.values.size();
      require_data(raw.size() % sizeof(T) == 0, opening_, ": tensor '", name, "' has ", raw.size(),
                   " bytes, which is no number of elements; the file is damaged");
      tensor.values.resize(before + raw.size() / sizeof(T));
      for (std::size_t i = before; i < tensor.values.size(); ++i) {
        T value;
        std::memcpy(&value, raw.data() + (i - before) * sizeof(T), sizeof(T));
        tensor.values[i] = static_cast<double>(value);
      }
    };
    bool known = true;
    switch (type) {
      case Type::f32:
        numbers(float());
        break;
      case Type::f64:
        numbers(double());
        break;
      case Type::i64:
        numbers(std::int64_t());
        break;
      case Type::i32:
        numbers(std::int32_t());
        break;
      case Type::boolean:
        numbers(std::uint8_t());
        break;
      default:
        known = false;
        tensor.values.clear();
    }
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) {
      require_data(extent >= 0 && static_cast<std::size_t>(extent) <= most_values_, opening_, ": tensor '", name,
                   "' has an extent of ", extent, "; the file is damaged");
      count = std::min(count * static_cast<std::size_t>(extent), most_values_ + 1);
    }
    require_data(!known || count == tensor.values.size(), opening_, ": tensor '", name, "' has ", tensor.values.size(),
                 " values for its shape; the file is damaged");
    return tensor;
  }

  void read_external(std::string_view message, External& external) const {
    std::string key, value;
    for (const ProtobufField& field : fields(message)) (field.number == 1 ? key : value) = field.bytes;
    if (key == "location") external.location = value;
    if (key != "offset" && key != "length") return;
    const std::int64_t number = number_in<std::int64_t>(value).value_or(-1);
    require_data(number >= 0, opening_, ": weights at ", key, " '", value, "' of another file; the file is damaged");
    (key == "offset" ? external.offset : external.length) = number;
  }

  std::string external_bytes(const External& external, const std::string& what) {
    const fs::path name = external.location;
    const std::string where = join(opening_, ": ", what, " lies in file '", external.location, "'");
    require_format(!folder_.empty(), where, ", but a model in memory must hold all weights; open it by its path");
    std::error_code error;
    const fs::path folder = fs::weakly_canonical(folder_, error), path = fs::weakly_canonical(folder / name, error);
    const fs::path inside = path.lexically_relative(folder);
    require_data(
        !name.empty() && name.is_relative() && !inside.empty() && *inside.begin() != ".." && inside != ".", where,
        ", which is not in the folder of the model; save the weights beside the model, or in one file with it");
    const auto require_readable = [&](bool is, const auto&... why) {
      if (!is) throw ModelFileError(ModelFileReason::unreadable, Fault::usage, join(where, why...));
    };
    require_readable(fs::is_regular_file(path, error), ", which is no file in '", folder_.string(),
                     "'; copy it there, or save one file with all weights");
    const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
    const std::int64_t length = external.length < 0 ? size - external.offset : external.length;
    require_data(!error && external.offset <= size && length <= size - external.offset, where, " from byte ",
                 external.offset, " on, ", length, " bytes, but the file has ", size,
                 "; it is damaged or another file");
    most_values_ = std::max(most_values_, static_cast<std::size_t>(length));
    std::string bytes(length, '\0');
    std::ifstream in(path, std::ios::binary);
    in.seekg(external.offset).read(bytes.data(), length);
    require_readable(in.good() || length == 0, ", which cannot be read");
    return bytes;
  }

  std::size_t most_values_;  ///< of a tensor; more than this are damage
  std::string opening_;
  fs::path folder_;
};

}  // namespace

File read(std::string_view bytes, const std::string& opening, const fs::path& folder) {
  return Reader(bytes, opening, folder).out;
}

}  // namespace lockstep::files::onnx
