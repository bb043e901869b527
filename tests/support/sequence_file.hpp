#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/prep/sequences/sequence_set.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"

namespace lockstep::test {

/// A prepared set of these histories. Item k of a user has the time times[user][k] in seconds; without `times` the set
/// has none.
prep::SequenceSet sequence_set(const std::vector<std::vector<std::int32_t>>& items, std::int64_t n_items,
                               const std::vector<std::vector<std::int64_t>>& times = {});

/// The set as a task reads it from a file. File and arrays live as long as the process.
SequenceData read_set(const prep::SequenceSet& set);
/// Whether a part of a user's history has this item.
bool has_had(const SequenceData& data, std::int64_t user, std::int32_t item, Seen seen);

/// A small generated set of sessions in which the time gaps determine the next item.
prep::SequenceSet gap_sessions(std::int64_t users, std::uint64_t seed = 1);

}  // namespace lockstep::test
