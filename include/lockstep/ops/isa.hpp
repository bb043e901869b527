#pragma once
#include <array>
#include <string>
#include <vector>

#include "lockstep/base/named.hpp"

namespace lockstep::ops {

/// Instruction sets that the CPU kernels are compiled for: generic and, on x86-64, avx2 and avx512, on AArch64 asimd.
/// One is chosen at run time. Results may differ between them in the last digits.
enum class Isa { generic, avx2, avx512, asimd };
constexpr auto names_of(Isa) { return std::array{"generic", "avx2", "avx512", "asimd"}; }

/// The set as checkpoints record it: name(), and for generic kernels the architecture unless that is x86-64, because
/// kernels of different architectures are not promised to give the same bits.
std::string record_name(Isa isa);
/// The sets that this build contains and this processor supports, slowest first. Never empty.
const std::vector<Isa>& available_isas();
/// The set that the kernels use: the last of available_isas(), unless use_isa() chose another.
Isa active_isa();
/// Makes all threads use `isa` from now on, for tests and comparisons. Do not call it while an op runs.
///
/// errors   Error (usage) if `isa` is not available
void use_isa(Isa isa);

}  // namespace lockstep::ops
