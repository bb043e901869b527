#pragma once
#include <cstdint>
#include <string>

#include "lockstep/comm/world.hpp"

namespace lockstep {

/// All ranks must hold the same text (a hash, a version): else every rank leaves with one message that names the first rank that
/// differs from rank 0, and both values. Collective.
void require_same(World& world, const char* what, const std::string& mine, const char* remedy);

/// XXH3 of the program file that this process runs, or "unknown" where the system does not tell.
std::string program_hash();

/// StepFlags of any rank. Collective.
unsigned wishes_of_all(Communicator& comm, unsigned mine);

/// Compares the ranks' weights; when they are not the same, every rank leaves with one message that names the ranks that differ from the
/// majority, and the step. Collective.
void require_same_weights(World& world, std::uint64_t hash, std::int64_t step);

}  // namespace lockstep
