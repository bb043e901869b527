#pragma once
#include <cstdint>
#include <span>

#include "lockstep/data/shard.hpp"
#include "lockstep/models/sequences/sequence_batch.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The training windows at the shard's positions of its epoch. Each target has one negative, uniform over the items
/// that are not among the user's training items (over all items if the user knows all), drawn by (seed, step, user,
/// slot).
SequenceBatch training_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, const Shard& shard);
/// The newest windows of these histories, without targets. The batch's users are 0, 1, ....
SequenceBatch newest_batch(Arena& arena, const WindowShape& shape, std::span<const UserHistory> histories);

/// Draws the candidates that a held-out item is ranked against: uniform, with replacement, from the items outside the
/// user's whole history. A function of (seed, user). errors  data: the user knows nearly every item
void draw_unknown(const SequenceData& data, std::int64_t user, std::uint64_t seed, std::span<std::int32_t> out);

}  // namespace lockstep
