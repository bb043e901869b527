#pragma once
#include <vector>

namespace lockstep::ops {

/// Instruction sets that the CPU kernels are compiled for; one is chosen at run time. An output's bits may differ in
/// the last digits between them.
enum class Isa { generic, avx2, avx512 };

const char* name(Isa isa);
/// What this build holds and this processor runs, slowest first; never empty.
const std::vector<Isa>& available_isas();
/// What the kernels use: the best available one unless use_isa() said otherwise.
Isa active_isa();
/// For tests and comparisons: all threads use `isa` from now on; not to be called while an operation runs. errors Error
/// (usage) if it is not available
void use_isa(Isa isa);

}  // namespace lockstep::ops
