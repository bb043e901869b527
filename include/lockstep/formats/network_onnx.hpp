#pragma once
#include <string>

#include "lockstep/io/weights.hpp"

namespace lockstep {

/// The bytes of an ONNX file (opset 13, f32): x (n, channels, length), raw signals -> scores (n, classes), the logits;
/// in mode independent the means over the channels of their log-probabilities.
///
/// errors  data, beginning with `what`: not a weight file of HAR, or damaged; usage: a network of pictures
std::string har_onnx(const NamedArrays& file, const std::string& what);

/// The bytes of an ONNX file (opset 13, f32): items (n, slots) i64, histories with the newest item last and zeros
/// before the first -> scores (n, items) of items 1, 2, ... as the next item.
///
/// errors  data, beginning with `what`: not a weight file of SASRec, or damaged; usage: TiSASRec, or hyper-connections
std::string sasrec_onnx(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
