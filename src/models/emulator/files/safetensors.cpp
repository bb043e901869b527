#include <cstring>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "lockstep/base/hash.hpp"

/// safetensors: u64 header length · JSON header · raw tensors. Weights keep their names (network.0.weight);
/// normalisation is input_mean, input_std, output_mean, output_std (F64); description, self-test and checksums are
/// strings in __metadata__.
/// source  github.com/huggingface/safetensors, "Format"
namespace lockstep::files {
namespace {

using Json = nlohmann::json;
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kLargestHeader = 100'000'000;  ///< the format's own limit

/// Replaces bytes that are not UTF-8 by U+FFFD: a badly encoded name must not prevent the export of a model.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Checksums: over the metadata except its own entry, in key order; and over the tensor descriptions and the data.
std::string metadata_hash(Json metadata) {
  metadata.erase("metadata_xxh3");
  return hex64(hash64(text_of(metadata)));
}
std::string data_hash(Json header, std::string_view data) {
  header.erase("__metadata__");
  return hex64(hash64(data.data(), data.size(), hash64(text_of(header))));
}

Json& member(Json& object, const char* key, const std::string& source) {
  const auto found = object.find(key);
  require_data(found != object.end(), "opening model '", source, "': its header has no '", key,
               "'; the file is damaged or foreign");
  return *found;
}

FileTensor parse_tensor(const std::string& tensor_name, Json& entry, std::string_view data, const std::string& source) {
  const std::string what = join("opening model '", source, "': tensor '", tensor_name, "': ");
  FileTensor out;
  out.name = tensor_name;
  try {
    const auto dtype = member(entry, "dtype", source).get<std::string>();
    require_data(dtype == "F32" || dtype == "F64", what, "dtype ", dtype, ", expected F32 or F64");
    out.dtype = dtype == "F64" ? DType::f64 : DType::f32;
    const auto shape = member(entry, "shape", source).get<std::vector<std::uint64_t>>();
    const auto offsets = member(entry, "data_offsets", source).get<std::vector<std::uint64_t>>();
    require_data(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data.size(), what,
                 "outside of the file's ", data.size(), " bytes of data");
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) {
      require_data(extent >= 1 && extent <= data.size() / count, what, "larger than the file");
      count *= extent;
      out.shape.push_back(static_cast<std::int64_t>(extent));
    }
    require_data(count * size_bytes(out.dtype) == offsets[1] - offsets[0], what, count, " elements in ",
                 offsets[1] - offsets[0], " bytes");
    out.data = data.data() + offsets[0];
  } catch (const Json::exception& error) {
    throw Error(Fault::data, what + error.what());
  }
  return out;
}

struct Parts {
  Json header;
  std::string_view data;
};
Parts split_file(std::string_view bytes, const std::string& source) {
  std::uint64_t length = 0;
  require_data(bytes.size() >= kLengthBytes, "opening model '", source, "': only ", bytes.size(),
               " bytes; the file is truncated");
  std::memcpy(&length, bytes.data(), kLengthBytes);
  require_data(length <= kLargestHeader && length <= bytes.size() - kLengthBytes, "opening model '", source,
               "': a header of ", length, " bytes in a file of ", bytes.size(), "; the file is damaged or truncated");
  Parts parts{Json::parse(bytes.substr(kLengthBytes, length), nullptr, false), bytes.substr(kLengthBytes + length)};
  require_data(parts.header.is_object(), "opening model '", source, "': its header is not JSON; the file is damaged");
  return parts;
}

}  // namespace

std::string safetensors_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  std::vector<FileTensor> tensors = moments_of(network.moments(), "");
  for (FileTensor& tensor : weights_of(network)) tensors.push_back(std::move(tensor));

  // The format allows no gaps between tensors. f64 tensors come first, so that all are aligned to their elements.
  std::string data;
  Json header = Json::object();
  for (const bool wide : {true, false}) {
    for (const FileTensor& tensor : tensors) {
      if ((tensor.dtype == DType::f64) != wide) continue;
      header[tensor.name] = {{"dtype", wide ? "F64" : "F32"},
                             {"shape", tensor.shape},
                             {"data_offsets", {data.size(), data.size() + tensor.size_bytes()}}};
      data += tensor.bytes();
    }
  }
  Json entries = Json::object();
  for (const auto& [key, value] : describe(network.arch(), metadata)) entries[key] = value;
  entries["selftest"] = text_of({{"rows", selftest.rows}, {"x", selftest.x}, {"y", selftest.y}, {"J", selftest.j}});
  entries["data_xxh3"] = data_hash(header, data);
  entries["metadata_xxh3"] = metadata_hash(entries);
  header["__metadata__"] = entries;

  std::string text = text_of(header);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text + data;
}

bool is_safetensors(std::string_view bytes) { return bytes.size() > kLengthBytes && bytes[kLengthBytes] == '{'; }

Tensors safetensors_tensors(std::string_view bytes, const std::string& source) {
  auto [header, data] = split_file(bytes, source);
  Tensors tensors;
  for (auto& [key, entry] : header.items()) {
    if (key != "__metadata__") tensors.emplace(key, parse_tensor(key, entry, data, source));
  }
  return tensors;
}

TrainedEmulator read_safetensors(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest) {
  auto [header, data] = split_file(bytes, source);
  Json metadata = member(header, "__metadata__", source);
  Pairs pairs;
  require_data(metadata.is_object(), "opening model '", source,
               "': __metadata__ is not an object; the file is damaged");
  for (const auto& [key, value] : metadata.items()) {
    require_data(value.is_string(), "opening model '", source, "': metadata entry '", key,
                 "' is not a string; the file is damaged");
    pairs.emplace_back(key, value.get<std::string>());
  }
  for (const auto& [key, found] : {std::pair<const char*, std::string>{"metadata_xxh3", metadata_hash(metadata)},
                                   {"data_xxh3", data_hash(header, data)}}) {
    const std::string stored = member(metadata, key, source).get<std::string>();
    require_data(stored == found, "opening model '", source, "': checksum ", key, " is ", found, ", the file says ",
                 stored, "; the file is damaged");
  }
  Description description = parse_description(pairs, source);
  const EmulatorArch& arch = description.arch;
  Tensors tensors = safetensors_tensors(bytes, source);
  const Moments moments = take_moments(tensors, "", arch, source);
  const Json rows = Json::parse(member(metadata, "selftest", source).get<std::string>(), nullptr, false);
  try {
    selftest.rows = rows.at("rows").get<std::int64_t>();
    selftest.x = rows.at("x").get<std::vector<double>>();
    selftest.y = rows.at("y").get<std::vector<double>>();
    selftest.j = rows.at("J").get<std::vector<double>>();
  } catch (const Json::exception& error) {
    throw Error(Fault::data, join("opening model '", source, "': metadata entry 'selftest': ", error.what()));
  }
  return assemble(std::move(description), moments, tensors, source);
}

}  // namespace lockstep::files
