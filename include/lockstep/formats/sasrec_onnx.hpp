#pragma once
#include <string>

#include "lockstep/io/weights.hpp"

namespace lockstep {

/// The bytes of an ONNX file (opset 13, f32): items (n, slots) i64, histories with the newest item last and zeros
/// before the first -> scores (n, items) of items 1, 2, ... as the next item.
///
/// errors  data, beginning with `what`: not a weight file of SASRec, or damaged; usage: TiSASRec, or hyper-connections
std::string sasrec_onnx(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
