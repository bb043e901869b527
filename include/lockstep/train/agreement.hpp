#pragma once
#include <cstdint>
#include <string>

#include "lockstep/comm/world.hpp"

namespace lockstep {

/// Checks that all ranks hold the same text, such as a hash. Collective.
///
/// errors  Error (usage) on all ranks: names the first rank that differs from rank 0, and both values
void require_same(World& world, const char* what, const std::string& mine, const char* remedy);

/// Checks that the processors of all ranks have the same architecture, such as x86_64 or aarch64. Kernels for different
/// architectures may round differently. Collective.
///
/// errors  Error (usage) on all ranks: names the first rank that differs from rank 0
void require_same_architecture(World& world);

/// XXH3 of the program file of this process, or "unknown" if the system has no /proc.
std::string program_hash();

/// The union of all ranks' StepFlags. Collective.
unsigned flags_of_all(Communicator& comm, unsigned mine);

/// Whether all ranks have the same hash. Collective.
bool same_on_all_ranks(World& world, std::uint64_t hash);
/// Describes the ranks whose hash differs from the majority: "the weights of rank 1 (node02, hash ...) are not
/// those of the other ranks (hash ...): ...". Without a majority it names all ranks. The hashes must differ.
/// Collective.
///
/// what  name of the hashed values in the plural, such as "weights"
std::string odd_ranks(World& world, const char* what, std::uint64_t hash);
/// Checks that all ranks hold the same weights, by their hash. Collective.
///
/// errors  Error (internal) on all ranks: names the step and the ranks that differ from the majority
void require_same_weights(World& world, std::uint64_t hash, std::int64_t step);

}  // namespace lockstep
