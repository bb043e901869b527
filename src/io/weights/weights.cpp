#include "lockstep/io/weights.hpp"

#include <algorithm>
#include <cmath>

#include "elements.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"

namespace lockstep {

namespace {

/// Quotes the names for a message, at most kShown of them.
std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", '" : "'") + names[i] + "'";
  return names.size() > kShown ? join(out, " and ", names.size() - kShown, " more") : out;
}

bool is_finite(const NamedArray& array) {
  return std::visit(
      [](const auto& values) {
        return std::ranges::all_of(values, [](auto value) { return std::isfinite(static_cast<double>(value)); });
      },
      array.values);
}

}  // namespace

std::size_t NamedArray::count() const {
  return std::visit([](const auto& held) { return held.size(); }, values);
}

const char* NamedArray::dtype() const {
  constexpr const char* kNames[] = {"f32", "f64", "i64"};
  return kNames[values.index()];
}

const NamedArray* NamedArrays::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(arrays, name, {}, &NamedArray::name);
  return found == arrays.end() || found->name != name ? nullptr : &*found;
}

const NamedArray& NamedArrays::at(const std::string& name) const {
  const NamedArray* found = find(name);
  require(found != nullptr, "no array '", name, "'");
  return *found;
}

NamedArrays weights::sorted(std::vector<NamedArray> arrays, const std::string& what) {
  std::ranges::sort(arrays, {}, &NamedArray::name);
  const auto twice = std::ranges::adjacent_find(arrays, {}, &NamedArray::name);
  require_data(twice == arrays.end(), what, ": array '", twice == arrays.end() ? "" : twice->name, "' occurs twice");
  return {std::move(arrays), {}};
}

void require_finite(const NamedArrays& arrays, const std::string& what) {
  std::vector<std::string> wrong;
  for (const NamedArray& array : arrays.arrays)
    if (!is_finite(array)) wrong.push_back(array.name);
  require_data(wrong.empty(), what, ": values that are not finite in ", quoted(wrong), "; choose other weights");
}

NamedArrays read_weights(const std::filesystem::path& path, const std::string& key) {
  const std::string bytes = read_text_file(path), source = path.string(), reading = "reading '" + source + "'";
  constexpr std::size_t kTarMagicAt = 257;
  NamedArrays out;
  require_usage(key.empty() || bytes.starts_with("PK\x03\x04"), reading, ": option --key = '", key,
                "' is for a .pt file of several dictionaries");
  if (is_safetensors(bytes)) {
    out = safetensors_arrays(bytes, source);
  } else if (bytes.starts_with("PK\x03\x04") || bytes.starts_with("PK\x05\x06")) {
    out = bytes.find(".npy") < bytes.find("data.pkl") ? npz_arrays(bytes, source) : torch_arrays(bytes, source, key);
  } else {
    const bool old_torch = bytes.starts_with("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") ||
                           bytes.substr(std::min(bytes.size(), kTarMagicAt)).starts_with("ustar");
    require_data(!old_torch, reading,
                 ": a file of PyTorch before 1.6; read it with torch.load and write it with torch.save of a newer one");
    throw Error(Fault::data,
                join(reading, ": it is ", name(kind_of_bytes(bytes)),
                     ", neither .safetensors nor .npz nor .pt; save the state_dict() with torch.save. For "
                     "the ONNX file of a feed-forward network, use lockstep export --checkpoint FILE.onnx"));
  }
  require_finite(out, reading);
  return out;
}

}  // namespace lockstep
