#include <algorithm>
#include <charconv>
#include <cmath>

#include "files.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::files {
namespace {

constexpr std::int64_t kLargestExtent = std::int64_t{1} << 30;  ///< the product of two extents cannot overflow

void require_extents(const EmulatorArch& arch, const std::string& source) {
  for (const std::int64_t extent :
       {arch.n_in, arch.n_out, arch.hidden, arch.layers, arch.conv_channels, arch.conv_kernel}) {
    require_model(extent >= 0 && extent <= kLargestExtent, source, "an extent of ", extent, "; the file is damaged");
  }
}

/// Entries that are written, or parsed by name. errors  when parsing: data, a missing, repeated or malformed entry
class Entries {
 public:
  Entries() = default;
  Entries(const Pairs& pairs, std::string source) : parses_(true), source_(std::move(source)) {
    for (const auto& [key, value] : pairs) {
      require_model(values_.emplace(key, value).second, source_, "entry '", key, "' occurs twice; the file is damaged");
    }
  }
  void text(const std::string& key, std::string& value) {
    if (!parses_) return static_cast<void>(written_.emplace_back(key, value));
    const auto found = values_.find(key);
    require_model(found != values_.end(), source_, "no entry '", key, "'; the file is damaged or foreign");
    value = found->second;
  }
  /// An integer or real number.
  template <class T>
  void number(const std::string& key, T& value) {
    char buffer[64];
    std::string stored(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
    text(key, stored);
    const std::optional<T> parsed = number_in<T>(stored);
    require_model(parsed && !std::isnan(static_cast<double>(*parsed)), source_, "entry ", key, " = '", stored,
                  "' is not ", std::is_integral_v<T> ? "an integer" : "a number", "; the file is damaged");
    value = *parsed;
  }
  template <Named E>
  void choice(const std::string& key, E& value) {
    std::string stored = name(value);
    text(key, stored);
    const std::optional<E> parsed = named<E>(stored);
    require_model(parsed.has_value(), source_, "entry ", key, " = '", stored, "' is not one of ", listed(choices<E>()),
                  "; the file is damaged");
    value = *parsed;
  }
  /// Parsed entries bound what they describe.
  std::int64_t most() const { return parses_ ? std::ssize(values_) : kLargestExtent; }
  const std::string& source() const { return source_; }
  const Pairs& written() const { return written_; }

 private:
  bool parses_ = false;
  std::string source_;
  std::map<std::string, std::string> values_;
  Pairs written_;
};

/// Names each entry with its member, for both directions.
void fields(Entries& io, EmulatorArch& arch, EmulatorMetadata& metadata) {
  std::string format = kFormat;
  std::int64_t version = kVersion, meta = std::ssize(metadata.meta);
  io.text("format", format);
  require_model_format(format == kFormat, io.source(), "its format is '", format, "', expected '", kFormat, "'");
  io.number("version", version);
  require_model_format(version >= 1 && version <= kVersion, io.source(), "version ", version,
                       " is not supported; this program reads 1 to ", kVersion, "; use a newer one");
  io.number("n_in", arch.n_in);
  io.number("n_out", arch.n_out);
  io.number("hidden", arch.hidden);
  io.number("layers", arch.layers);
  io.choice("activation", arch.activation);
  io.number("conv_channels", arch.conv_channels);
  io.number("conv_kernel", arch.conv_kernel);
  require_extents(arch, io.source());
  arch.check(Fault::data);
  // Each variable has its own entries and each layer two tensors, so their number is bounded by the size of the file.
  require_model(std::max({arch.n_in, arch.n_out}) <= io.most(), io.source(), arch.n_in, " inputs and ", arch.n_out,
                " outputs, but only ", io.most(), " entries; the file is damaged");
  EmulatorVariables& v = metadata.variables;
  const auto variables = [&](const char* side, std::int64_t n, auto& names, auto& cf, auto& units, auto& level) {
    for (auto* texts : {&names, &cf, &units}) texts->resize(n);
    level.resize(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::string key = join(side, ".", i, ".");
      io.text(key + "name", names[i]);
      io.text(key + "cf", cf[i]);
      io.text(key + "units", units[i]);
      io.number(key + "level", level[i]);
    }
  };
  variables("input", arch.n_in, v.input_names, v.input_cf, v.input_units, v.input_level);
  variables("output", arch.n_out, v.output_names, v.output_cf, v.output_units, v.output_level);
  io.text("input_source", v.input_source);
  io.text("mask.variable", metadata.mask.variable);
  io.number("mask.min", metadata.mask.min);
  io.number("mask.max", metadata.mask.max);
  io.text("mask.mode", metadata.mask.mode);
  io.number("meta", meta);
  require_model(meta >= 0 && meta <= io.most(), io.source(), meta, " meta entries; the file is damaged");
  metadata.meta.resize(meta);
  for (std::int64_t i = 0; i < meta; ++i) {
    io.text(join("meta.", i, ".key"), metadata.meta[i].first);
    io.text(join("meta.", i, ".value"), metadata.meta[i].second);
  }
}

struct Expected {
  std::string name;
  std::vector<std::int64_t> shape;
};

std::vector<Expected> expected_weights(const EmulatorArch& arch) {
  std::vector<Expected> out;
  if (arch.conv_channels > 0) {
    out.push_back({"conv1d.weight", {arch.conv_channels, 1, arch.conv_kernel}});
    out.push_back({"conv1d.bias", {arch.conv_channels}});
  }
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    const std::int64_t in = k == 0 ? arch.first_width() : arch.hidden;
    const std::int64_t width = k == arch.layers ? arch.n_out : arch.hidden;
    out.push_back({join("network.", 2 * k, ".weight"), {width, in}});
    out.push_back({join("network.", 2 * k, ".bias"), {width}});
  }
  return out;
}

bool all_finite(const NamedArray& tensor) {
  return std::visit([](const auto& all) { return std::ranges::all_of(all, [](auto v) { return std::isfinite(v); }); },
                    tensor.values);
}

/// errors  data: no finite tensor of this name, type and shape
const NamedArray& find(const Tensors& tensors, const std::string& name, const std::string& dtype,
                       const std::vector<std::int64_t>& shape, const std::string& source) {
  const auto found = tensors.find(name);
  require_model(found != tensors.end(), source, "no tensor '", name, "'; the file is damaged or foreign");
  const NamedArray& tensor = found->second;
  require_model(tensor.dtype() == dtype && tensor.shape == shape, source, "tensor '", name, "' is ", tensor.dtype(),
                " ", shape_text(tensor.shape), ", expected ", dtype, " ", shape_text(shape));
  require_model(all_finite(tensor), source, "tensor '", name, "' holds a value that is not finite");
  return tensor;
}

std::vector<double> take(Tensors& tensors, const std::string& name, const std::vector<std::int64_t>& shape,
                         const std::string& source) {
  auto out = std::get<std::vector<double>>(find(tensors, name, "f64", shape, source).values);
  tensors.erase(name);
  return out;
}

}  // namespace

std::string_view bytes_of(const NamedArray& array) {
  return std::visit(
      [](const auto& values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), std::span(values).size_bytes());
      },
      array.values);
}

std::vector<NamedArray> weights_of(const Emulator& network) {
  std::vector<NamedArray> out;
  for (const Param& param : network.params().all()) {
    out.push_back(array_of(param));
    require_data(all_finite(out.back()), "writing a model file: parameter '", param.name,
                 "' holds a value that is not finite; choose an earlier checkpoint");
  }
  return out;
}

std::vector<NamedArray> moments_of(const Moments& m, const std::string& prefix) {
  std::vector<NamedArray> out;
  for (const auto& [name, part] : kMoments) out.push_back({prefix + name, {std::ssize(m.*part)}, m.*part});
  return out;
}

std::vector<NamedArray> selftest_of(const EmulatorSelfTest& t, const EmulatorArch& arch) {
  return {{"selftest.x", {t.rows, arch.n_in}, t.x},
          {"selftest.y", {t.rows, arch.n_out}, t.y},
          {"selftest.J", {t.rows, arch.n_out, arch.n_in}, t.j}};
}

std::vector<std::string> public_names(const std::vector<std::string>& cf, const std::vector<std::string>& names) {
  std::vector<std::string> out = names;
  for (std::size_t i = 0; i < out.size() && i < cf.size(); ++i)
    if (!cf[i].empty()) out[i] = cf[i];
  return out;
}

Pairs describe(const EmulatorArch& arch, const EmulatorMetadata& metadata) {
  Entries entries;
  EmulatorDescription copy{arch, {}, metadata};
  fields(entries, copy.arch, copy.metadata);
  return entries.written();
}

EmulatorDescription parse_description(const Pairs& pairs, const std::string& source) {
  Entries entries(pairs, source);
  EmulatorDescription out;
  fields(entries, out.arch, out.metadata);
  return out;
}

TrainedEmulator assemble(EmulatorDescription description, const Tensors& weights, const std::string& source) {
  const EmulatorArch& arch = description.arch;
  require_extents(arch, source);
  require_model(2 * (arch.layers + 1) <= std::ssize(weights), source, arch.layers, " hidden layers, but only ",
                weights.size(), " weight tensors; the file is damaged");
  const auto expected = expected_weights(arch);
  const std::string dtype = weights.begin()->second.dtype();
  for (const Expected& want : expected) find(weights, want.name, dtype, want.shape, source);
  require_model(expected.size() == weights.size(), source, weights.size(), " tensors, expected ", expected.size(),
                "; this program does not know its network");
  TrainedEmulator out{Emulator(arch, description.moments, dtype == "f64" ? DType::f64 : DType::f32),
                      std::move(description.metadata)};
  for (const Expected& want : expected) assign(out.network.params().at(want.name), weights.at(want.name));
  return out;
}

Moments take_moments(Tensors& tensors, const std::string& prefix, const EmulatorArch& arch, const std::string& source) {
  Moments out;
  for (const auto& [name, part] : kMoments)
    out.*part = take(tensors, prefix + name, {name[0] == 'i' ? arch.n_in : arch.n_out}, source);
  check_moments(out, arch.n_in, arch.n_out, source);
  return out;
}

EmulatorSelfTest take_selftest(Tensors& tensors, const EmulatorArch& arch, const std::string& source) {
  const auto found = tensors.find("selftest.x");
  require_model(found != tensors.end() && found->second.shape.size() == 2, source,
                "no tensor 'selftest.x' (rows, n_in); the file is damaged");
  EmulatorSelfTest out;
  out.rows = found->second.shape[0];
  out.x = take(tensors, "selftest.x", {out.rows, arch.n_in}, source);
  out.y = take(tensors, "selftest.y", {out.rows, arch.n_out}, source);
  out.j = take(tensors, "selftest.J", {out.rows, arch.n_out, arch.n_in}, source);
  return out;
}

}  // namespace lockstep::files

std::optional<lockstep::EmulatorDescription> lockstep::described_emulator(
    const std::map<std::string, std::string>& metadata, const std::string& source) {
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != files::kFormat) return std::nullopt;
  return files::parse_description({metadata.begin(), metadata.end()}, source);
}
