#pragma once
#include <cstdint>
#include <span>

#include "lockstep/data/sampler.hpp"
#include "lockstep/data/sequence_data.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// What a model sees of a history.
struct WindowShape {
  std::int64_t slots = 200;  ///< T: the newest events that it sees
  bool timed = false;        ///< the times of the events are wanted
  bool padded = false;       ///< slots without an event are tokens of item 0 too, in front
};

/// Windows of several users, packed: the tokens of one sample follow those of the one before, and padding takes no room
/// unless WindowShape asks for it. The arrays lie in an arena.
///
/// shapes   begin (B+1), user (B); item, slot, time, pos, neg (M), M the tokens of all samples
struct SequenceBatch {
  std::int64_t slots = 0;    ///< T
  std::int64_t targets = 0;  ///< tokens with pos != 0
  Tensor begin;              ///< i64: tokens of sample b are begin[b] .. begin[b+1]-1
  Tensor user;               ///< i64: who, the key of everything random about a sample
  Tensor item;               ///< i32, 1..I, or 0 for padding
  Tensor slot;               ///< i32, 0..T-1; the newest token of a sample is in slot T-1
  Tensor time;               ///< i64: scaled times, 0 for padding; empty unless wanted
  Tensor pos, neg;           ///< i32: the next item and a drawn one that the user does not know; 0 where there is none
  std::int64_t samples() const { return user.size(); }
  std::int64_t tokens() const { return item.size(); }
};

/// The training windows at the shard's positions of its epoch. Each target gets one negative, uniform over the items
/// that are none of the user's training items (any item, should the user know all), drawn from (seed, step, user, slot).
SequenceBatch training_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, const Shard& shard);
/// The newest windows of these users' histories, without targets.
SequenceBatch judging_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, Seen seen,
                            std::span<const std::int64_t> users);

/// Items drawn uniformly, with replacement, from those that are not in the user's whole history: the candidates
/// that a held-out item is ranked against, a function of (seed, user). errors  data: the user knows every item
void draw_unknown(const SequenceData& data, std::int64_t user, std::uint64_t seed, std::span<std::int32_t> out);

}  // namespace lockstep
