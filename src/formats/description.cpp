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

/// Parses entries by name. errors  data: a missing, repeated or malformed entry
class Entries {
 public:
  Entries(const Pairs& pairs, const std::string& source) : source_(source) {
    for (const auto& [key, value] : pairs) {
      require_model(values_.emplace(key, value).second, source, "entry '", key, "' occurs twice; the file is damaged");
    }
  }
  const std::string& text(const std::string& key) const {
    const auto found = values_.find(key);
    require_model(found != values_.end(), source_, "no entry '", key, "'; the file is damaged or foreign");
    return found->second;
  }
  std::int64_t integer(const std::string& key) const { return number<std::int64_t>(key, "an integer"); }
  double real(const std::string& key) const { return number<double>(key, "a number"); }

 private:
  template <class T>
  T number(const std::string& key, const char* what) const {
    const std::string& value = text(key);
    const std::optional<T> out = number_in<T>(value);
    require_model(out && !std::isnan(static_cast<double>(*out)), source_, "entry ", key, " = '", value, "' is not ",
                  what, "; the file is damaged");
    return *out;
  }
  std::string source_;
  std::map<std::string, std::string> values_;
};

std::string real_text(double value) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

std::string at_or_empty(const std::vector<std::string>& values, std::size_t i) {
  return i < values.size() ? values[i] : std::string();
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

std::vector<double> take(Tensors& tensors, const std::string& name, const std::vector<std::int64_t>& shape,
                         const std::string& source) {
  const auto found = tensors.find(name);
  require_model(found != tensors.end(), source, "no tensor '", name, "'; the file is damaged or foreign");
  NamedArray& tensor = found->second;
  auto* values = std::get_if<std::vector<double>>(&tensor.values);
  require_model(values != nullptr && tensor.shape == shape, source, "tensor '", name, "' is ", tensor.dtype(), " ",
                shape_text(tensor.shape), ", expected f64 ", shape_text(shape));
  require_model(all_finite(tensor), source, "tensor '", name, "' holds a value that is not finite");
  std::vector<double> out = std::move(*values);
  tensors.erase(found);
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
  Pairs out = {{"format", kFormat},
               {"version", std::to_string(kVersion)},
               {"n_in", std::to_string(arch.n_in)},
               {"n_out", std::to_string(arch.n_out)},
               {"hidden", std::to_string(arch.hidden)},
               {"layers", std::to_string(arch.layers)},
               {"activation", arch.activation},
               {"conv_channels", std::to_string(arch.conv_channels)},
               {"conv_kernel", std::to_string(arch.conv_kernel)}};
  const EmulatorVariables& v = metadata.variables;
  const auto variables = [&](const char* side, std::int64_t n, const auto& names, const auto& cf, const auto& units,
                             const auto& level) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::string key = join(side, ".", i, ".");
      out.emplace_back(key + "name", at_or_empty(names, i));
      out.emplace_back(key + "cf", at_or_empty(cf, i));
      out.emplace_back(key + "units", at_or_empty(units, i));
      out.emplace_back(key + "level", std::to_string(i < level.size() ? level[i] : 0));
    }
  };
  variables("input", arch.n_in, v.input_names, v.input_cf, v.input_units, v.input_level);
  variables("output", arch.n_out, v.output_names, v.output_cf, v.output_units, v.output_level);
  out.emplace_back("input_source", v.input_source);
  out.emplace_back("mask.variable", metadata.mask.variable);
  out.emplace_back("mask.min", real_text(metadata.mask.min));
  out.emplace_back("mask.max", real_text(metadata.mask.max));
  out.emplace_back("mask.mode", metadata.mask.mode);
  out.emplace_back("meta", std::to_string(metadata.meta.size()));
  for (std::size_t i = 0; i < metadata.meta.size(); ++i) {
    out.emplace_back(join("meta.", i, ".key"), metadata.meta[i].first);
    out.emplace_back(join("meta.", i, ".value"), metadata.meta[i].second);
  }
  return out;
}

EmulatorDescription parse_description(const Pairs& pairs, const std::string& source) {
  const Entries entries(pairs, source);
  require_model_format(entries.text("format") == kFormat, source, "its format is '", entries.text("format"),
                       "', expected '", kFormat, "'");
  const std::int64_t version = entries.integer("version");
  require_model_format(version >= 1 && version <= kVersion, source, "version ", version,
                       " is not supported; this program reads 1 to ", kVersion, "; use a newer one");
  EmulatorDescription out;
  EmulatorArch& arch = out.arch;
  arch.n_in = entries.integer("n_in");
  arch.n_out = entries.integer("n_out");
  arch.hidden = entries.integer("hidden");
  arch.layers = entries.integer("layers");
  arch.activation = entries.text("activation");
  arch.conv_channels = entries.integer("conv_channels");
  arch.conv_kernel = entries.integer("conv_kernel");
  require_extents(arch, source);
  arch.check(Fault::data);
  // Each variable has its own entries and each layer two tensors, so their number is bounded by the size of the file.
  require_model(std::max({arch.n_in, arch.n_out}) <= std::ssize(pairs), source, arch.n_in, " inputs and ", arch.n_out,
                " outputs, but only ", pairs.size(), " entries; the file is damaged");
  EmulatorVariables& v = out.metadata.variables;
  const auto variables = [&](const char* side, std::int64_t n, auto& names, auto& cf, auto& units, auto& level) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::string key = join(side, ".", i, ".");
      names.push_back(entries.text(key + "name"));
      cf.push_back(entries.text(key + "cf"));
      units.push_back(entries.text(key + "units"));
      level.push_back(entries.integer(key + "level"));
    }
  };
  variables("input", arch.n_in, v.input_names, v.input_cf, v.input_units, v.input_level);
  variables("output", arch.n_out, v.output_names, v.output_cf, v.output_units, v.output_level);
  v.input_source = entries.text("input_source");
  out.metadata.mask = {entries.text("mask.variable"), entries.real("mask.min"), entries.real("mask.max"),
                       entries.text("mask.mode")};
  const std::int64_t meta = entries.integer("meta");
  require_model(meta >= 0 && meta <= std::ssize(pairs), source, meta, " meta entries; the file is damaged");
  for (std::int64_t i = 0; i < meta; ++i)
    out.metadata.meta.emplace_back(entries.text(join("meta.", i, ".key")), entries.text(join("meta.", i, ".value")));
  return out;
}

TrainedEmulator assemble(EmulatorDescription description, const Tensors& weights, const std::string& source) {
  const EmulatorArch& arch = description.arch;
  require_extents(arch, source);
  require_model(2 * (arch.layers + 1) <= std::ssize(weights), source, arch.layers, " hidden layers, but only ",
                weights.size(), " weight tensors; the file is damaged");
  const auto expected = expected_weights(arch);
  const std::string dtype = weights.begin()->second.dtype();
  for (const Expected& want : expected) {
    const auto found = weights.find(want.name);
    require_model(found != weights.end(), source, "no tensor '", want.name, "'; the file is damaged or foreign");
    const NamedArray& have = found->second;
    require_model(have.shape == want.shape && have.dtype() == dtype, source, "tensor '", want.name, "' is ",
                  have.dtype(), " ", shape_text(have.shape), ", expected ", dtype, " ", shape_text(want.shape));
    require_model(all_finite(have), source, "tensor '", want.name, "' holds a value that is not finite");
  }
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
