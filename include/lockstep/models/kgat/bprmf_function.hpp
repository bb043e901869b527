#pragma once
#include "lockstep/models/array_function.hpp"

namespace lockstep {

/// users () i64, items (K) i64, indices from 0 -> scores (K) f32: the inner products of the user's row with the items'
/// rows. K is the setting "items_per_user", 1 by default.
///
/// errors  data, beginning with `what`: not a weight file of BPRMF, or damaged
std::unique_ptr<ArrayFunction> bprmf_function(const NamedArrays& file, const std::string& what);

}  // namespace lockstep
