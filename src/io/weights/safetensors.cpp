#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "elements.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"

/// safetensors: u64 header length · JSON header · raw arrays, without gaps.
/// source  github.com/huggingface/safetensors, "Format"
namespace lockstep {

namespace {

using Json = nlohmann::json;
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kLargestHeader = 100'000'000;  ///< the format's own limit
constexpr const char *kMetadata = "__metadata__", *kDataHash = "data_xxh3", *kMetadataHash = "metadata_xxh3";

/// Checksums: over the metadata except its own entry, in key order; and over the array descriptions and the data.
std::string metadata_hash(Json metadata) {
  metadata.erase(kMetadataHash);
  return hex64(hash64(json_text(metadata)));
}
std::string data_hash(Json header, std::string_view data) {
  header.erase(kMetadata);
  return hex64(hash64(data.data(), data.size(), hash64(json_text(header))));
}

/// Parses the header. errors  data: no JSON object, a deep one, a key twice
Json parse_header(std::string_view text, const std::string& opening) {
  require_data(!nests_deeply(text), opening, ": its header is nested too deeply; the file is damaged");
  std::vector<std::set<std::string>> keys;  // one set per open object
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty() && !keys.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  Json header = Json::parse(text, watch, false);
  require_data(header.is_object(), opening, ": its header is not JSON; the file is damaged");
  require_data(twice.empty(), opening, ": '", twice, "' occurs twice in its header");
  return header;
}

NamedArray parse_array(const std::string& name, const Json& entry, std::string_view data, std::size_t& next,
                       const std::string& opening) {
  const std::string what = join(opening, ": array '", name, "'");
  NamedArray out;
  out.name = name;
  try {
    out.stored = entry.at("dtype").get<std::string>();
    const weights::Element& kind = weights::find_element(&weights::Element::safetensors, out.stored, what);
    const auto shape = entry.at("shape").get<std::vector<std::uint64_t>>();
    for (const std::uint64_t extent : shape)
      out.shape.push_back(static_cast<std::int64_t>(std::min<std::uint64_t>(extent, INT64_MAX)));
    const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
    require_data(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data.size(), what,
                 " lies outside of the file's ", data.size(), " bytes of data; it is damaged or truncated");
    require_data(offsets[0] == next, what, " begins at byte ", offsets[0], " of the data, expected ", next,
                 ": arrays overlap or leave gaps");
    next = offsets[1];
    const std::size_t held = offsets[1] - offsets[0];
    const std::int64_t count = weights::checked_count(out.shape, held / kind.width, what);
    require_data(static_cast<std::size_t>(count) * kind.width == held, what, " has the shape ", shape_text(out.shape),
                 " in ", held, " bytes; it is damaged");
    kind.read(data.data() + offsets[0], weights::contiguous(out.shape), count, out);
  } catch (const Json::exception& error) {
    throw Error(Fault::data, join(what, ": ", error.what()));
  }
  return out;
}

}  // namespace

bool is_safetensors(std::string_view bytes) { return bytes.size() > kLengthBytes && bytes[kLengthBytes] == '{'; }

NamedArrays safetensors_arrays(std::string_view bytes, const std::string& source) {
  const std::string opening = "reading '" + source + "'";
  std::uint64_t length = 0;
  require_data(bytes.size() >= kLengthBytes, opening, ": only ", bytes.size(), " bytes; the file is truncated");
  std::memcpy(&length, bytes.data(), kLengthBytes);
  require_data(length <= kLargestHeader && length <= bytes.size() - kLengthBytes, opening, ": a header of ", length,
               " bytes in a file of ", bytes.size(), "; the file is damaged or truncated");
  const Json header = parse_header(bytes.substr(kLengthBytes, length), opening);
  const std::string_view data = bytes.substr(kLengthBytes + length);

  std::map<std::string, std::string> metadata;
  if (const auto entries = header.find(kMetadata); entries != header.end()) {
    require_data(entries->is_object(), opening, ": ", kMetadata, " is not an object; the file is damaged");
    for (const auto& [key, value] : entries->items()) {
      require_data(value.is_string(), opening, ": metadata entry '", key, "' is not a string; the file is damaged");
      metadata[key] = value.get<std::string>();
    }
    if (metadata.contains(kDataHash) || metadata.contains(kMetadataHash))
      for (const auto& [key, found] :
           {std::pair{kMetadataHash, metadata_hash(*entries)}, {kDataHash, data_hash(header, data)}})
        require_data(metadata[key] == found, opening, ": checksum ", key, " is ", found, ", the file says '",
                     metadata[key], "'; the file is damaged");
  }
  std::vector<std::pair<std::uint64_t, std::string>> order;  // arrays in file order
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) continue;
    const Json* offsets = entry.is_object() && entry.contains("data_offsets") ? &entry["data_offsets"] : nullptr;
    const bool plain = offsets != nullptr && offsets->is_array() && offsets->size() == 2 &&
                       (*offsets)[0].is_number_unsigned() && (*offsets)[1].is_number_unsigned();
    require_data(plain, opening, ": array '", name, "' has no two data_offsets; the file is damaged");
    order.emplace_back((*offsets)[1].get<std::uint64_t>(), name);
  }
  std::ranges::sort(order);
  std::vector<NamedArray> arrays;
  std::size_t next = 0;
  for (const auto& [end, name] : order) arrays.push_back(parse_array(name, header[name], data, next, opening));
  require_data(next == data.size(), opening, ": ", data.size(), " bytes of data, its arrays have ", next,
               "; the file is damaged or truncated");
  NamedArrays out = weights::sorted(std::move(arrays), opening);
  out.metadata = std::move(metadata);
  return out;
}

std::string safetensors_bytes(const NamedArrays& content) {
  std::string data;
  Json header = Json::object();
  for (const bool wide : {true, false}) {  // wide elements come first, so that all are aligned
    for (const NamedArray& array : content.arrays) {
      std::visit(
          [&]<class T>(const std::vector<T>& values) {
            if ((sizeof(T) == 8) != wide) return;
            const std::size_t size = values.size() * sizeof(T);
            header[array.name] = {{"dtype", std::is_same_v<T, float>    ? "F32"
                                            : std::is_same_v<T, double> ? "F64"
                                                                        : "I64"},
                                  {"shape", array.shape},
                                  {"data_offsets", {data.size(), data.size() + size}}};
            data.append(reinterpret_cast<const char*>(values.data()), size);
          },
          array.values);
    }
  }
  Json entries = Json::object();
  for (const auto& [key, value] : content.metadata) entries[key] = value;
  entries[kDataHash] = data_hash(header, data);
  entries[kMetadataHash] = metadata_hash(entries);
  header[kMetadata] = entries;

  std::string text = json_text(header);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text + data;
}

}  // namespace lockstep
