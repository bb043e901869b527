#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/prep/sequence_set.hpp"

namespace lockstep::test {

/// A prepared set of these histories; item k of a user happens at `times[user][k]` seconds, or without times at all.
prep::SequenceSet sequence_set(const std::vector<std::vector<std::int32_t>>& items, std::int64_t n_items,
                               const std::vector<std::vector<std::int64_t>>& times = {});

/// Generated sessions in which the pauses matter: small enough for a test.
prep::SequenceSet gap_sessions(std::int64_t users, std::uint64_t seed = 1);

}  // namespace lockstep::test
