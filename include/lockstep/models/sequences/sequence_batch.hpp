#pragma once
#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// The window of a history that a model sees.
struct WindowShape {
  std::int64_t slots = 200;  ///< T, the newest events
  bool timed = false;        ///< include the times of the events
  bool padded = false;       ///< leading slots without an event become tokens of item 0
};

/// Windows of several users, packed one after another without padding (unless WindowShape::padded). The arrays lie in
/// an arena: of the host, or of the GPU that the network is on; then `token_capacity` and `pairs` are set.
///
/// With `token_capacity`, the arrays of tokens have that many rows. In rows after the last sample, item, slot, time,
/// pos and neg are 0; these rows change neither the loss nor a gradient.
///
/// shapes   begin (B+1), user (B); item, slot, time, position, pos (M) with M tokens in all samples, or token_capacity;
///          neg (M, K);
///          first_query (B); candidates, bias (K)
struct SequenceBatch {
  std::int64_t slots = 0;           ///< T
  std::int64_t token_capacity = 0;  ///< 0: none
  std::int64_t targets = 0;         ///< tokens with pos != 0
  std::int64_t pairs = 0;           ///< CausalAttention::pairs
  Tensor begin;                     ///< i64; sample b has the tokens begin[b] .. begin[b+1]-1
  Tensor user;                      ///< i64; keys the random draws of a sample
  Tensor item;                      ///< i32, 1..I, or 0 for padding
  Tensor slot;                      ///< i32, 0..T-1; the newest token of a sample is in slot T-1
  Tensor time;                      ///< i64, scaled times, 0 for padding; empty unless WindowShape::timed
  Tensor position;                  ///< i32, slot + 1, or 0 for padding; empty before SasRec::prepare(), and with times
  Tensor first_query;  ///< i64, padding tokens of a sample; empty before SasRec::prepare(), and without padding
  Tensor pos;          ///< i32, the next item; 0 for none
  Tensor neg;          ///< i32, drawn items that are not training items of the user; 0 for none
  Tensor candidates;   ///< i32, drawn items that all tokens share; empty unless the loss uses them
  Tensor bias;         ///< f32 | f64, added to their scores
  std::int64_t samples() const { return user.size(); }
  std::int64_t tokens() const { return item.size(); }
};

/// Allocates a batch without targets and sets `begin` and `user`. The other arrays are unset, except for zeros after
/// the last sample.
/// sample  sample(b, user) sets the user of sample b and returns the number of its tokens
/// errors  Error if `token_capacity` is less than the tokens
template <class Sample>
SequenceBatch allocate_batch(Arena& arena, std::int64_t slots, bool timed, std::int64_t samples, const Sample& sample,
                             std::int64_t token_capacity = 0) {
  SequenceBatch batch;
  batch.slots = slots;
  batch.token_capacity = token_capacity;
  batch.begin = allocate(arena, DType::i64, {samples + 1});
  batch.user = allocate(arena, DType::i64, {samples});
  auto* begin = batch.begin.data<std::int64_t>();
  begin[0] = 0;
  for (std::int64_t b = 0; b < samples; ++b) begin[b + 1] = begin[b] + sample(b, batch.user.data<std::int64_t>()[b]);
  const std::int64_t used = begin[samples], rows = token_capacity > 0 ? token_capacity : used;
  require(rows >= used, "a batch of ", samples, " sequences: ", used, " tokens do not fit into ", token_capacity);
  const auto tokens = [&]<class T>(DType dtype) {
    const Tensor array = allocate(arena, dtype, {rows});
    std::fill(array.data<T>() + used, array.data<T>() + rows, T{0});
    return array;
  };
  batch.item = tokens.template operator()<std::int32_t>(DType::i32);
  batch.slot = tokens.template operator()<std::int32_t>(DType::i32);
  if (timed) batch.time = tokens.template operator()<std::int64_t>(DType::i64);
  return batch;
}

}  // namespace lockstep
