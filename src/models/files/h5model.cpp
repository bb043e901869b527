#include "files.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator_model.hpp"

/// The HDF5 model file: attributes and groups of save_emulator_card, /weights/NAME, /selftest/{x,y,J}, and an attribute
/// content_xxh3 over everything else: HDF5 itself does not notice a flipped bit in stored numbers.
namespace lockstep::files {
namespace {

constexpr const char* kChecksum = "content_xxh3";

void append(std::string& out, std::string_view text) {
  const std::uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += text;
}

template <class T>
void append_values(std::string& out, const std::vector<T>& values) {
  append(out, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

void append_attributes(std::string& out, const H5File& file, const std::string& object) {
  for (const std::string& attribute : file.attributes(object)) {
    if (object == "/" && attribute == kChecksum) continue;
    append(out, attribute);
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (std::is_same_v<T, std::string>) {
            append(out, value);
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            for (const std::string& text : value) append(out, text);
          } else if constexpr (std::is_arithmetic_v<T>) {
            append(out, {reinterpret_cast<const char*>(&value), sizeof value});
          } else {
            append_values(out, value);
          }
        },
        file.attribute(object, attribute));
  }
}

void append_dataset(std::string& out, const H5File& file, const std::string& dataset) {
  const H5Info info = file.info(dataset);
  append(out, name(info.type));
  append_values(out, info.shape);
  switch (info.type) {
    case H5Type::u8:
      return append_values(out, file.read<std::uint8_t>(dataset));
    case H5Type::i32:
      return append_values(out, file.read<std::int32_t>(dataset));
    case H5Type::i64:
      return append_values(out, file.read<std::int64_t>(dataset));
    case H5Type::f32:
      return append_values(out, file.read<float>(dataset));
    case H5Type::f64:
      return append_values(out, file.read<double>(dataset));
    case H5Type::text:
      for (const std::string& text : file.read_text(dataset)) append(out, text);
  }
}

void append_object(std::string& out, const H5File& file, const std::string& object) {
  append(out, object);
  append_attributes(out, file, object);
  if (!file.is_group(object)) return append_dataset(out, file, object);
  for (const std::string& member : file.list(object))
    append_object(out, file, (object == "/" ? "" : object) + "/" + member);
}

/// XXH3 over names, attributes, types, shapes and values of the whole file, objects sorted by name.
std::string content_hash(const H5File& file) {
  std::string content;
  append_object(content, file, "/");
  return hex64(hash64(content));
}

void write_tensor(H5File& file, const std::string& path, const FileTensor& tensor) {
  const auto n = static_cast<std::size_t>(tensor.count());
  if (tensor.dtype == DType::f64) {
    file.write<double>(path, {static_cast<const double*>(tensor.data), n}, tensor.shape);
  } else {
    file.write<float>(path, {static_cast<const float*>(tensor.data), n}, tensor.shape);
  }
}

/// The tensors of a group, with the memory that they lie in.
struct LoadedTensors {
  std::vector<std::vector<double>> f64;
  std::vector<std::vector<float>> f32;
  Tensors tensors;
};

LoadedTensors load_group(const H5File& file, const std::string& group, const std::string& prefix) {
  LoadedTensors out;
  for (const std::string& path : file.datasets_under(group)) {
    const H5Info info = file.info(path);
    require_data(info.type == H5Type::f32 || info.type == H5Type::f64, "opening model '", file.path().string(),
                 "': dataset '", path, "' holds ", name(info.type), ", expected f32 or f64");
    FileTensor tensor;
    tensor.name = prefix + path.substr(group.size() + 1);
    tensor.shape = info.shape;
    if (info.type == H5Type::f64) {
      tensor.dtype = DType::f64;
      tensor.data = out.f64.emplace_back(file.read<double>(path)).data();
    } else {
      tensor.data = out.f32.emplace_back(file.read<float>(path)).data();
    }
    const std::string key = tensor.name;
    out.tensors.emplace(key, std::move(tensor));
  }
  return out;
}

}  // namespace

void write_h5model(const std::filesystem::path& path, const Emulator& network, const EmulatorCard& card) {
  const EmulatorSelfTest selftest = make_selftest(network);
  const auto weights = weights_of(network);
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    file.set_attribute("/", "format", std::string(kFormat));
    file.set_attribute("/", "version", kVersion);
    save_emulator_card(file, network.arch(), network.moments(), card);
    for (const FileTensor& tensor : weights) write_tensor(file, "/weights/" + tensor.name, tensor);
    for (const FileTensor& tensor : selftest_of(selftest, network.arch())) {
      write_tensor(file, "/selftest/" + tensor.name.substr(tensor.name.find('.') + 1), tensor);
    }
    file.set_attribute("/", kChecksum, content_hash(file));
    file.close();
  });
}

TrainedEmulator read_h5model(const std::filesystem::path& path, EmulatorSelfTest& selftest) {
  const std::string source = path.string();
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "format") && file.text_attribute("/", "format") == kFormat, "opening model '",
               source, "': not a model file of lockstep (attribute format = '", kFormat,
               "'); `lockstep export` makes one from a checkpoint");
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version >= 1 && version <= kVersion, "opening model '", source, "': version ", version,
               " is not readable by this program, which knows 1 to ", kVersion, "; use a newer one");
  require_data(file.has_attribute("/", kChecksum), "opening model '", source, "': no attribute '", kChecksum,
               "'; the file is damaged or was not finished");
  const std::string stored = file.text_attribute("/", kChecksum), found = content_hash(file);
  require_data(stored == found, "opening model '", source, "': the checksum of its contents is ", found,
               ", the file says ", stored, "; the file is damaged");

  EmulatorDescription description = read_emulator_card(file);
  LoadedTensors rows = load_group(file, "/selftest", "selftest.");
  selftest = take_selftest(rows.tensors, description.arch, source);
  const LoadedTensors weights = load_group(file, "/weights", "");
  return assemble({description.arch, std::move(description.card)}, description.moments, weights.tensors, source);
}

}  // namespace lockstep::files
