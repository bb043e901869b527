#include "files.hpp"
#include "lockstep/io/zip.hpp"
#include "pickle.hpp"
#include "torchscript_code.hpp"

/// A TorchScript archive without libtorch: an uncompressed ZIP of the module's source (torchscript_code.cpp), a pickle
/// of its attributes, and the raw elements of its tensors.
/// source  PyTorch torch/csrc/jit/docs/serialization.md
namespace lockstep::files {
namespace {

const std::string kFolder = "emulator/";

}  // namespace

std::string torchscript_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const Emulator rounded = network.as(DType::f32);
  const EmulatorVariables& v = metadata.variables;
  const Moments& m = network.moments();
  const std::vector<std::string> names = torchscript_names(network.arch());

  ZipWriter zip;
  Pickle pickle;
  pickle.global("__torch__", "Emulator").empty_tuple().new_object().empty_dict().mark();
  std::vector<std::string> storages;
  const auto buffer = [&](const std::string& attribute, const std::vector<std::int64_t>& shape,
                          std::string_view bytes) {
    pickle.text(attribute).tensor(static_cast<int>(storages.size()), shape);
    storages.emplace_back(bytes);
  };
  const auto weights = weights_of(rounded);
  for (std::size_t i = 0; i < weights.size(); ++i) buffer(names.at(i), weights[i].shape, bytes_of(weights[i]));
  for (const auto& [attribute, part] : kMoments) {
    const std::vector<float> narrow((m.*part).begin(), (m.*part).end());
    buffer(attribute, {std::ssize(narrow)}, {reinterpret_cast<const char*>(narrow.data()), 4 * narrow.size()});
  }
  pickle.text("input_names").text_list(public_names(v.input_cf, v.input_names));
  pickle.text("output_names").text_list(public_names(v.output_cf, v.output_names));
  pickle.text("input_short_names").text_list(v.input_names);
  pickle.text("output_short_names").text_list(v.output_names);
  pickle.text("input_levels").int_list(v.input_level);
  pickle.text("output_levels").int_list(v.output_level);
  pickle.text("mask_var_name").text(metadata.mask.variable);
  pickle.text("mask_min").real(metadata.mask.min);
  pickle.text("mask_max").real(metadata.mask.max);
  pickle.text("meta").global("torch.jit._pickle", "restore_type_tag").mark().empty_dict().mark();
  for (const auto& [key, value] : describe(network.arch(), metadata)) pickle.text(key).text(value);
  pickle.set_items().text("Dict[str, str]").tuple().reduce();
  pickle.text("training").boolean(false);
  pickle.set_items().build();

  zip.add(kFolder + "data.pkl", pickle.finish());
  zip.add(kFolder + "code/__torch__.py", torchscript_code(network.arch(), metadata.mask));
  for (std::size_t i = 0; i < storages.size(); ++i) zip.add(kFolder + "data/" + std::to_string(i), storages[i]);
  zip.add(kFolder + "constants.pkl", Pickle().empty_tuple().finish());
  zip.add(kFolder + "version", "3\n");
  zip.add(kFolder + "byteorder", "little");
  return zip.finish();
}

}  // namespace lockstep::files
