#pragma once
#include "lockstep/models/array_function.hpp"

namespace lockstep {

/// x (channels, length) f32, the raw signals of a window -> scores (classes) f32: the logits; in mode independent the
/// means over the channels of their log-probabilities.
///
/// errors  data, beginning with `what`: not a weight file of HAR, or damaged; usage: a network of pictures
std::unique_ptr<ArrayFunction> har_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
