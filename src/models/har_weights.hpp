#pragma once
#include <filesystem>

#include "lockstep/models/har.hpp"

namespace lockstep {

/// Takes the weights of the encoder from a file: HDF5 with one dataset per weight, or safetensors; named as Har names them,
/// with or without the leading `encoder.`.
///
/// errors  usage: no such file; data: names that are missing or surplus, all of them listed; a weight of another shape
void load_encoder_weights(Har& network, const std::filesystem::path& path);

}  // namespace lockstep
