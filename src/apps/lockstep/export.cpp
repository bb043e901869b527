#include <algorithm>
#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/models/emulator/emulator_files.hpp"

namespace lockstep::apps {
namespace {

/// Adds entries about the export. Existing entries stay unchanged.
void add_provenance(EmulatorMetadata& metadata, const std::filesystem::path& source) {
  const auto add = [&](const std::string& key, const std::string& value) {
    for (const auto& [known, old] : metadata.meta) {
      if (known == key) return;
    }
    metadata.meta.emplace_back(key, value);
  };
  add("exported_from", source.filename().string());
  add("exported_by", "lockstep " + build_info().version + " (git " + build_info().git + ")");
}

}  // namespace

int run_export(World& world, const Args& args) {
  std::string checkpoint, format, output, mask_variable;
  std::vector<double> domain;
  Options options(
      "lockstep export", "Write a trained emulator for other programs.",
      "The command reads and verifies a checkpoint (its averaged weights if it has them) or a model file, and "
      "writes the network with its normalisation, variable names, units, levels and mask. Formats: lsem and "
      "h5model for liblockstep in C, C++ and Fortran; onnx for ONNX runtimes; torchscript for "
      "torch::jit::load, with predict and jac_physical; safetensors for programs that read named tensors. An "
      "existing file is replaced only when the new one is complete.");
  options.add("checkpoint", &checkpoint, "", "checkpoint or model file to read").value_name("FILE").required();
  options.choice("format", &format, "lsem", {"h5model", "lsem", "onnx", "torchscript", "safetensors"},
                 "format of the output");
  options.add("output", &output, "", "file to write").value_name("FILE").required();
  options.add("mask-variable", &mask_variable, "", "input whose value decides where the Jacobian is used; see --domain")
      .value_name("NAME");
  options
      .add("domain", &domain, {},
           "smallest and largest value of the mask variable with a Jacobian; it is zero elsewhere")
      .value_name("MIN,MAX");
  options.example("lockstep export --checkpoint runs/ice/checkpoints/best.h5 --format lsem --output ice.lsem",
                  "for a forecast model, with liblockstep");
  options.example("lockstep export --checkpoint ice.lsem --format torchscript --output ice.ts",
                  "convert a model file to another format");
  if (!parse(world, options, args)) return 0;

  world.together("exporting", [&] {
    if (world.rank() != 0) return;
    require_writable(output, {checkpoint});
    TrainedEmulator emulator = read_emulator(std::filesystem::path(checkpoint));
    EmulatorMask& mask = emulator.metadata.mask;
    if (!mask_variable.empty()) {
      if (std::ranges::count(emulator.metadata.variables.input_names, mask_variable) == 0)
        options.reject("mask-variable", "the emulator has no such input");
      mask.variable = mask_variable;
    }
    if (!domain.empty()) {
      if (domain.size() != 2 || !(domain[0] <= domain[1]) || mask.variable.empty())
        options.reject("domain", "must be MIN,MAX with MIN <= MAX, for a mask variable");
      mask.min = domain[0];
      mask.max = domain[1];
    }
    add_provenance(emulator.metadata, checkpoint);
    write_emulator(output, emulator_format(format), emulator.network, emulator.metadata);
    const EmulatorArch& arch = emulator.network.arch();
    std::cout << "wrote " << output << ": " << format << ", " << arch.n_in << " inputs, " << arch.n_out << " outputs, "
              << arch.parameters() << " parameters, "
              << human_bytes(static_cast<double>(std::filesystem::file_size(output))) << std::endl;
  });
  return 0;
}

}  // namespace lockstep::apps
