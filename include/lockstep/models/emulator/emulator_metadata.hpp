#pragma once
#include "lockstep/models/emulator/emulator.hpp"

namespace lockstep {

class H5File;

/// Writes everything but the weights of an emulator: architecture as attributes of /, then /norm, /vars, /mask, /meta.
void save_emulator_metadata(H5File& file, const EmulatorArch& arch, const Moments& moments,
                            const EmulatorMetadata& metadata);
struct EmulatorDescription {
  EmulatorArch arch;
  Moments moments;
  EmulatorMetadata metadata;
};
/// errors  data: a missing attribute or dataset, an invalid architecture, invalid moments
EmulatorDescription read_emulator_metadata(const H5File& file);

}  // namespace lockstep
