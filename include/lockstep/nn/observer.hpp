#pragma once
#include <functional>
#include <string>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Receives the intermediate values of a forward pass, by the names that they have in reference files. A pass with an
/// observer may run further operations to compute them.
using Observer = std::function<void(const std::string& name, const Tensor& value)>;

}  // namespace lockstep
