#pragma once
#include <filesystem>

#include "lockstep/models/har/har.hpp"

namespace lockstep {

/// Loads the encoder's weights from HDF5 (one dataset per weight) or a file of read_weights(). Names are those of Har's parameters,
/// with or without the prefix `encoder.`.
///
/// errors  usage: no such file; data: missing or unknown names (the message lists all), a weight of another shape
void load_encoder_weights(Har& network, const std::filesystem::path& path);

}  // namespace lockstep
