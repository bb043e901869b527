#pragma once
#include "lockstep/models/array_function.hpp"

namespace lockstep {

/// items (slots) i64, a history with the newest item last and zeros before the first; TiSASRec: times (slots) i64, its
/// scaled times, not descending, zeros before the first -> scores (items) f32 of items 1, 2, ... as the next item.
///
/// errors  data, beginning with `what`: not a weight file of SASRec or TiSASRec, or damaged
std::unique_ptr<ArrayFunction> sasrec_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
