#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/build_info.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/models/emulator_files.hpp"

namespace lockstep::apps {
namespace {

/// What the file is told beside what its source already says; an entry that is there stays.
void add_provenance(EmulatorCard& card, const std::filesystem::path& source) {
  const auto add = [&](const std::string& key, const std::string& value) {
    for (const auto& [known, old] : card.meta) {
      if (known == key) return;
    }
    card.meta.emplace_back(key, value);
  };
  add("exported_from", source.filename().string());
  add("exported_by", "lockstep " + build_info().version + " (git " + build_info().git + ")");
}

}  // namespace

int run_export(World& world, const Args& args) {
  std::string checkpoint, format, output;
  Options options("lockstep export", "Write a trained emulator for other programs.",
                  "Reads a checkpoint (the averaged weights when it has them) or a model file, verifies it, and writes "
                  "the network with its normalisation, "
                  "variable names, units, levels and mask. lsem and h5model are for liblockstep, in C, C++ and "
                  "Fortran; onnx for ONNX runtimes; torchscript for "
                  "torch::jit::load, with predict and jac_physical; safetensors for everything that reads named "
                  "tensors. An existing file is replaced at the "
                  "end, whole.");
  options.add("checkpoint", &checkpoint, "", "checkpoint, or model file of another format")
      .value_name("FILE")
      .required();
  options.choice("format", &format, "lsem", {"h5model", "lsem", "onnx", "torchscript", "safetensors"}, "what to write");
  options.add("output", &output, "", "where to write it").value_name("FILE").required();
  options.example("lockstep export --checkpoint runs/ice/checkpoints/best.h5 --format lsem --output ice.lsem",
                  "for a forecast model, with liblockstep");
  options.example("lockstep export --checkpoint ice.lsem --format torchscript --output ice.ts",
                  "a model file becomes another");
  if (!parse(world, options, args)) return 0;

  world.together("exporting", [&] {
    if (world.rank() != 0) return;
    TrainedEmulator emulator = read_emulator(std::filesystem::path(checkpoint));
    add_provenance(emulator.card, checkpoint);
    write_emulator(output, emulator_format(format), emulator.network, emulator.card);
    const EmulatorArch& arch = emulator.network.arch();
    std::cout << "wrote " << output << ": " << format << ", " << arch.n_in << " inputs, " << arch.n_out << " outputs, "
              << arch.parameters() << " parameters, "
              << human_bytes(static_cast<double>(std::filesystem::file_size(output))) << std::endl;
  });
  return 0;
}

}  // namespace lockstep::apps
