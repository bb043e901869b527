#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator_model.hpp"

namespace lockstep {

void save_emulator_card(H5File& file, const EmulatorArch& arch, const Moments& moments, const EmulatorCard& card) {
  file.set_attribute("/", "n_in", arch.n_in);
  file.set_attribute("/", "n_out", arch.n_out);
  file.set_attribute("/", "hidden", arch.hidden);
  file.set_attribute("/", "layers", arch.layers);
  file.set_attribute("/", "activation", arch.activation);
  file.set_attribute("/", "conv_channels", arch.conv_channels);
  file.set_attribute("/", "conv_kernel", arch.conv_kernel);
  write_moments(file, "/norm", moments);
  write_variables(file, "/vars", card.variables);
  file.create_group("/mask");
  file.set_attribute("/mask", "var", card.mask.variable);
  file.set_attribute("/mask", "min", card.mask.min);
  file.set_attribute("/mask", "max", card.mask.max);
  file.set_attribute("/mask", "mode", card.mask.mode);
  std::vector<std::string> keys, values;
  for (const auto& [key, value] : card.meta) keys.push_back(key), values.push_back(value);
  file.create_group("/meta");
  file.write_text("/meta/keys", keys);
  file.write_text("/meta/values", values);
}

EmulatorDescription read_emulator_card(const H5File& file) {
  const std::string reading = join("reading the emulator in '", file.path().string(), "'");
  EmulatorDescription d;
  for (const char* attribute : {"n_in", "n_out", "hidden", "layers", "activation", "conv_channels", "conv_kernel"})
    require_data(file.has_attribute("/", attribute), reading, ": no attribute '", attribute,
                 "'; this file holds no emulator");
  d.arch.n_in = file.int_attribute("/", "n_in");
  d.arch.n_out = file.int_attribute("/", "n_out");
  d.arch.hidden = file.int_attribute("/", "hidden");
  d.arch.layers = file.int_attribute("/", "layers");
  d.arch.activation = file.text_attribute("/", "activation");
  d.arch.conv_channels = file.int_attribute("/", "conv_channels");
  d.arch.conv_kernel = file.int_attribute("/", "conv_kernel");
  try {
    d.arch.check(Fault::data);
  } catch (const Error& error) {
    throw Error(Fault::data, join(reading, ": ", error.what()));
  }
  d.moments = read_moments(file, "/norm", d.arch.n_in, d.arch.n_out);
  d.card.variables = read_variables(file, "/vars", d.arch.n_in, d.arch.n_out);
  d.card.mask.variable = file.text_attribute("/mask", "var");
  d.card.mask.min = file.real_attribute("/mask", "min");
  d.card.mask.max = file.real_attribute("/mask", "max");
  d.card.mask.mode = file.text_attribute("/mask", "mode");
  const std::vector<std::string> keys = file.read_text("/meta/keys"), values = file.read_text("/meta/values");
  require_data(keys.size() == values.size(), reading, ": /meta has ", keys.size(), " keys and ", values.size(),
               " values");
  for (std::size_t i = 0; i < keys.size(); ++i) d.card.meta.emplace_back(keys[i], values[i]);
  return d;
}

EmulatorCard EmulatorModel::card() const {
  EmulatorCard card;
  card.variables = data_.variables;
  card.mask.mode = data_.mask_mode;
  const EmulatorArch& arch = emulator_.arch();
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return text;
  };
  card.meta = {{"model_class", "lockstep.emulator"},
               {"hidden_layers", std::to_string(arch.layers)},
               {"hidden_size", std::to_string(arch.hidden)},
               {"input_variables", list(data_.variables.input_cf)},
               {"output_variables", list(data_.variables.output_cf)},
               {"input_short_names", list(data_.variables.input_names)},
               {"output_short_names", list(data_.variables.output_names)},
               {"loss", options_.loss.name},
               {"training_data", data_.path.filename().string()}};
  return card;
}

void EmulatorModel::save(H5File& file) const {
  save_emulator_card(file, emulator_.arch(), emulator_.moments(), card());
}

}  // namespace lockstep
