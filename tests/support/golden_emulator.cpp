#include "support/golden_emulator.hpp"

#include <span>

#include "lockstep/io/h5.hpp"
#include "support/paths.hpp"

namespace lockstep::test {

const std::vector<std::string>& golden_emulators() {
  static const std::vector<std::string> names = {
      "emulator_aice",          "emulator_multi",   "emulator_relu_mae", "emulator_act_tanh", "emulator_act_sigmoid",
      "emulator_act_leakyrelu", "emulator_act_elu", "emulator_act_silu", "emulator_conv",     "emulator_default"};
  return names;
}

TrainedEmulator read_model(const std::string& bytes) { return read_emulator(std::as_bytes(std::span(bytes)), "net"); }

std::string model_refusal(const std::string& bytes) {
  try {
    read_model(bytes);
  } catch (const ModelFileError& error) {
    return error.what();
  }
  return "read";
}

TrainedEmulator golden_emulator(const std::string& name, DType dtype) {
  const H5File file = H5File::open(golden_path(name + ".h5"));
  EmulatorArch arch;
  arch.n_in = file.int_attribute("/", "inputs");
  arch.n_out = file.int_attribute("/", "outputs");
  arch.hidden = file.int_attribute("/", "hidden");
  arch.layers = file.int_attribute("/", "layers");
  arch.activation = named<ops::Activation>(file.text_attribute("/", "activation"), "activation");
  arch.conv_channels = file.int_attribute("/", "conv_channels");
  arch.conv_kernel = file.int_attribute("/", "conv_kernel");
  TrainedEmulator out{Emulator(arch, read_moments(file, "/norm", arch.n_in, arch.n_out), dtype), {}};
  for (const Param& param : out.network.params().all()) {
    visit_float(dtype, [&]<class T>() { file.read_into<T>("/weights/" + param.name, param.value.span<T>()); });
  }
  EmulatorVariables& v = out.metadata.variables;
  for (std::int64_t i = 0; i < arch.n_in; ++i) {
    v.input_names.push_back(join("in", i));
    v.input_cf.push_back(i == 0 ? "sea_water_temperature" : "");
    v.input_units.push_back(i == 0 ? "degC" : "1");
    v.input_level.push_back(i);
  }
  for (std::int64_t o = 0; o < arch.n_out; ++o) {
    v.output_names.push_back(join("out", o));
    v.output_cf.push_back("");
    v.output_units.push_back("1");
    v.output_level.push_back(0);
  }
  v.input_source = "ocean";
  out.metadata.mask = {"in1", -2.5, 1e30, "both"};
  out.metadata.meta = {{"model_class", "Emulator"}, {"note", "two lines\nand a \\ and an = sign"}, {"source", name}};
  return out;
}

}  // namespace lockstep::test
