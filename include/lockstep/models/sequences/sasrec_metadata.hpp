#pragma once
#include "lockstep/io/h5.hpp"
#include "lockstep/models/sequences/sasrec.hpp"

namespace lockstep {

/// Writes the architecture to a checkpoint, as attributes of /sequence_model.
void save_sasrec_metadata(H5File& file, const SasRecArch& arch);
/// errors  data: no group /sequence_model, a missing attribute, an unknown value
SasRecArch read_sasrec_metadata(const H5File& file);

}  // namespace lockstep
