#pragma once
#include <cstdint>
#include <string>

#include "lockstep/comm/world.hpp"

namespace lockstep {

/// Checks that all ranks hold the same text, such as a hash. Collective.
///
/// errors  Error (usage) on all ranks: names the first rank that differs from rank 0, and both values
void require_same(World& world, const char* what, const std::string& mine, const char* remedy);

/// Checks that the processors of all ranks are of one architecture, such as x86_64 or aarch64: kernels of different ones
/// may round differently. Collective.
///
/// errors  Error (usage) on all ranks: names the first rank that differs from rank 0
void require_same_architecture(World& world);

/// XXH3 of the program file of this process, or "unknown" if the system has no /proc.
std::string program_hash();

/// The union of all ranks' StepFlags. Collective.
unsigned flags_of_all(Communicator& comm, unsigned mine);

/// Checks that all ranks hold the same weights, by their hash. Collective.
///
/// errors  Error (internal) on all ranks: names the step and the ranks that differ from the majority
void require_same_weights(World& world, std::uint64_t hash, std::int64_t step);

}  // namespace lockstep
