#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "files.hpp"
#include "lockstep/base/text.hpp"

/// .lsem: "LSEMUL01" · u64 header length · header · tensors at multiples of 64 bytes · CRC-32 (zlib's) of everything
/// before it. The header is lines `key=value` with \\, \n and \r escaped; a tensor is `tensor.NAME=dtype
/// extent,extent,... offset`, the offset counted in bytes from the beginning of the file.
namespace lockstep::files {
namespace {

constexpr std::string_view kMagic = "LSEMUL01";
constexpr std::size_t kPreamble = 16, kAlign = 64, kCrcBytes = 4;

std::size_t aligned(std::size_t offset) { return (offset + kAlign - 1) / kAlign * kAlign; }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '\\'   ? std::string("\\\\")
           : c == '\n' ? std::string("\\n")
           : c == '\r' ? std::string("\\r")
                       : std::string(1, c);
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    ++i;
    out += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
  }
  return out;
}

std::uint32_t crc_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

void append(std::string& out, auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

/// Fixed width, so that the header's length does not depend on the offsets in it.
std::string offset_text(std::size_t offset) {
  std::string digits = std::to_string(offset);
  return std::string(16 - digits.size(), '0') + digits;
}

std::string tensor_line(const NamedArray& tensor, std::size_t offset) {
  const std::string extents = listed(tensor.shape, ",", [](std::int64_t extent) { return std::to_string(extent); });
  return join("tensor.", tensor.name, "=", tensor.dtype(), " ", extents, " ", offset_text(offset), "\n");
}

NamedArray parse_tensor(const std::string& key, const std::string& value, std::string_view bytes,
                        std::size_t data_begin, const std::string& source) {
  const auto fields = split(value, ' ');
  const std::string what = join("opening model '", source, "': entry ", key, " = '", value, "': ");
  require_data(fields.size() == 3, what, "expected dtype, extents and offset; the file is damaged");
  NamedArray out;
  out.name = key.substr(std::string_view("tensor.").size());
  require_data(fields[0] == "f32" || fields[0] == "f64", what, "expected f32 or f64");
  const DType dtype = fields[0] == "f64" ? DType::f64 : DType::f32;
  const auto number = [&](const std::string& text) {
    require_data(!text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos, what,
                 "'", text, "' is not a count");
    return std::stoull(text);
  };
  // Each extent is checked against the file size, so that the product cannot overflow.
  const std::size_t end = bytes.size() - kCrcBytes;
  std::size_t count = 1;
  for (const std::string& extent : split(fields[1], ',')) {
    const std::size_t n = number(extent);
    require_data(n >= 1 && n <= end / count, what, "larger than the file; the file is damaged");
    count *= n;
    out.shape.push_back(static_cast<std::int64_t>(n));
  }
  const std::size_t offset = number(fields[2]);
  require_data(
      offset % kAlign == 0 && offset >= data_begin && offset <= end && count * size_bytes(dtype) <= end - offset, what,
      "outside of the file's data (bytes ", data_begin, " to ", end, "); the file is damaged");
  visit_float(dtype, [&]<class T>() {
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes.data() + offset, count * sizeof(T));
    out.values = std::move(values);
  });
  return out;
}

}  // namespace

std::string lsem_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  std::vector<NamedArray> tensors = moments_of(network.moments(), "norm.");
  for (auto& list : {weights_of(network), selftest_of(selftest, network.arch())})
    tensors.insert(tensors.end(), list.begin(), list.end());

  std::string header;
  for (const auto& [key, value] : describe(network.arch(), metadata)) header += key + "=" + escaped(value) + "\n";
  std::size_t header_bytes = header.size();
  for (const NamedArray& tensor : tensors) header_bytes += tensor_line(tensor, 0).size();
  std::size_t offset = aligned(kPreamble + header_bytes);
  for (const NamedArray& tensor : tensors) {
    header += tensor_line(tensor, offset);
    offset = aligned(offset + bytes_of(tensor).size());
  }
  std::string out(kMagic);
  append(out, static_cast<std::uint64_t>(header.size()));
  out += header;
  for (const NamedArray& tensor : tensors) {
    out.resize(aligned(out.size()), '\0');
    out += bytes_of(tensor);
  }
  append(out, crc_of(out));
  return out;
}

bool is_lsem(std::string_view bytes) {
  return bytes.substr(0, kMagic.size() - 2) == kMagic.substr(0, kMagic.size() - 2);
}

TrainedEmulator read_lsem(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest) {
  require_model_format(bytes.substr(0, kMagic.size()) == kMagic, source, "it begins with '",
                       std::string(bytes.substr(0, 8)), "', expected '", kMagic,
                       "'; this program does not read this version");
  require_model(bytes.size() >= kPreamble + kCrcBytes, source, "only ", bytes.size(), " bytes; the file is truncated");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 8, 8);
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - kCrcBytes, kCrcBytes);
  const std::uint32_t found = crc_of(bytes.substr(0, bytes.size() - kCrcBytes));
  require_model(stored == found, source, "its CRC-32 is ", found, ", the file says ", stored,
                "; the file is damaged or truncated");
  require_model(header_bytes <= bytes.size() - kPreamble - kCrcBytes, source, "a header of ", header_bytes,
                " bytes in a file of ", bytes.size(), "; the file is damaged");

  Pairs pairs;
  std::vector<std::pair<std::string, std::string>> tensor_entries;
  std::string_view rest = bytes.substr(kPreamble, header_bytes);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = line.find('=');
    require_model(equals != std::string_view::npos, source, "header line '", std::string(line),
                  "' has no '='; the file is damaged");
    auto& list = line.starts_with("tensor.") ? tensor_entries : pairs;
    list.emplace_back(std::string(line.substr(0, equals)), unescaped(line.substr(equals + 1)));
  }
  EmulatorDescription description = parse_description(pairs, source);
  Tensors tensors;
  for (const auto& [key, value] : tensor_entries) {
    NamedArray tensor = parse_tensor(key, value, bytes, kPreamble + header_bytes, source);
    const std::string tensor_name = tensor.name;
    require_model(tensors.emplace(tensor_name, std::move(tensor)).second, source, "tensor '", tensor_name,
                  "' occurs twice");
  }
  description.moments = take_moments(tensors, "norm.", description.arch, source);
  selftest = take_selftest(tensors, description.arch, source);
  return assemble(std::move(description), tensors, source);
}

}  // namespace lockstep::files
