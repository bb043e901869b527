#include "lockstep/models/emulator/emulator_metadata.hpp"

#include "lockstep/io/h5.hpp"

namespace lockstep {

void save_emulator_metadata(H5File& file, const EmulatorArch& arch, const Moments& moments,
                            const EmulatorMetadata& metadata) {
  file.set_attribute("/", "n_in", arch.n_in);
  file.set_attribute("/", "n_out", arch.n_out);
  file.set_attribute("/", "hidden", arch.hidden);
  file.set_attribute("/", "layers", arch.layers);
  file.set_attribute("/", "activation", name(arch.activation));
  file.set_attribute("/", "conv_channels", arch.conv_channels);
  file.set_attribute("/", "conv_kernel", arch.conv_kernel);
  write_moments(file, "/norm", moments);
  write_variables(file, "/vars", metadata.variables);
  file.create_group("/mask");
  file.set_attribute("/mask", "var", metadata.mask.variable);
  file.set_attribute("/mask", "min", metadata.mask.min);
  file.set_attribute("/mask", "max", metadata.mask.max);
  file.set_attribute("/mask", "mode", metadata.mask.mode);
  std::vector<std::string> keys, values;
  for (const auto& [key, value] : metadata.meta) {
    keys.push_back(key);
    values.push_back(value);
  }
  file.create_group("/meta");
  file.write_text("/meta/keys", keys);
  file.write_text("/meta/values", values);
}

EmulatorDescription read_emulator_metadata(const H5File& file) {
  const std::string reading = join("reading the emulator in '", file.path().string(), "'");
  EmulatorDescription d;
  for (const char* attribute : {"n_in", "n_out", "hidden", "layers", "activation", "conv_channels", "conv_kernel"})
    require_data(file.has_attribute("/", attribute), reading, ": no attribute '", attribute,
                 "'; this file holds no emulator");
  d.arch.n_in = file.int_attribute("/", "n_in");
  d.arch.n_out = file.int_attribute("/", "n_out");
  d.arch.hidden = file.int_attribute("/", "hidden");
  d.arch.layers = file.int_attribute("/", "layers");
  d.arch.conv_channels = file.int_attribute("/", "conv_channels");
  d.arch.conv_kernel = file.int_attribute("/", "conv_kernel");
  try {
    d.arch.activation = named<ops::Activation>(file.text_attribute("/", "activation"), "activation");
    d.arch.check(Fault::data);
  } catch (const Error& error) {
    throw Error(Fault::data, join(reading, ": ", error.what()));
  }
  d.moments = read_moments(file, "/norm", d.arch.n_in, d.arch.n_out);
  d.metadata.variables = read_variables(file, "/vars", d.arch.n_in, d.arch.n_out);
  d.metadata.mask.variable = file.text_attribute("/mask", "var");
  d.metadata.mask.min = file.real_attribute("/mask", "min");
  d.metadata.mask.max = file.real_attribute("/mask", "max");
  d.metadata.mask.mode = file.text_attribute("/mask", "mode");
  const std::vector<std::string> keys = file.read_text("/meta/keys"), values = file.read_text("/meta/values");
  require_data(keys.size() == values.size(), reading, ": /meta has ", keys.size(), " keys and ", values.size(),
               " values");
  for (std::size_t i = 0; i < keys.size(); ++i) d.metadata.meta.emplace_back(keys[i], values[i]);
  return d;
}

}  // namespace lockstep
