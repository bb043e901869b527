#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/models/array_function.hpp"
#include "lockstep/models/har/har.hpp"
#include "lockstep/models/weights.hpp"

namespace lockstep {

/// Data that a user of a trained Har needs besides the network.
struct HarMetadata {
  std::vector<std::string> class_names, channel_names;
  std::vector<std::string> channel_units = {};    ///< per channel; empty: unknown
  std::vector<double> channel_mean, channel_std;  ///< per channel, over the training windows
  double sample_rate = 0;                         ///< Hz
  std::int64_t length = 0;                        ///< samples of a window
};

/// Entries of a weight file that describe a network, and the inverse.
void describe(WeightMetadata& metadata, HarArch arch, HarMetadata data);
/// errors  data, beginning with `what`: a missing or malformed entry, an impossible architecture
void parse(const WeightMetadata& metadata, const std::string& what, HarArch& arch, HarMetadata& data);

/// Loads the encoder's weights from HDF5 (one dataset per weight) or a file of read_weights(). Names are those of Har's
/// parameters, with or without the prefix `encoder.`.
///
/// errors  usage: no such file; data: missing or unknown names (the message lists all), a weight of the wrong shape
void load_encoder_weights(Har& network, const std::filesystem::path& path);

/// x (channels, length) f32, the raw signals of a window -> scores (classes) f32: the logits; in mode independent the
/// means over the channels of their log-probabilities.
///
/// errors  data, beginning with `what`: not a weight file of HAR, or damaged; usage: a network of pictures
std::unique_ptr<ArrayFunction> har_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
