#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>

namespace lockstep {

/// What a model of item sequences sees of a user's history: a window of T slots, the newest event in the last slot,
/// zeros (padding) in front. Times are scaled times, >= 1 and ascending; 0 is padding.

/// The newest of `values` in `slots`, right-aligned, padded with zeros in front. Returns how many slots hold a value.
template <class T>
std::int64_t right_align(std::span<const T> values, std::span<T> slots) {
  const std::size_t kept = std::min(values.size(), slots.size());
  std::fill(slots.begin(), slots.end() - static_cast<std::ptrdiff_t>(kept), T{0});
  std::copy(values.end() - static_cast<std::ptrdiff_t>(kept), values.end(),
            slots.end() - static_cast<std::ptrdiff_t>(kept));
  return static_cast<std::int64_t>(kept);
}

/// The training window of a user's train items x_1 .. x_m: of the last T+1 of them, `seq` is all but the last and `pos`
/// (the targets) all but the first; `time` holds the times of the items in `seq`. With fewer than two train items every
/// slot is padding.
///
/// shapes   seq, pos, time (T); times is empty, and time too, when the data have none
/// returns  the number of targets
inline std::int64_t training_window(std::span<const std::int32_t> train_items,
                                    std::span<const std::int64_t> train_times, std::span<std::int32_t> seq,
                                    std::span<std::int32_t> pos, std::span<std::int64_t> time) {
  assert(seq.size() == pos.size() && (time.empty() || time.size() == seq.size()));
  assert(train_times.empty() || train_times.size() == train_items.size());
  const std::size_t inputs = train_items.size() < 2 ? 0 : train_items.size() - 1;
  if (!time.empty()) right_align(train_times.first(std::min(inputs, train_times.size())), time);
  right_align(train_items.first(inputs), seq);
  return right_align(train_items.last(inputs), pos);
}

/// Bucket of two times of a window: r_ij = min(|t_i - t_j|, S). Symmetric; 0 on the diagonal and for ties.
inline std::int32_t relation_bucket(std::int64_t t_i, std::int64_t t_j, std::int32_t time_span) {
  const std::int64_t distance = t_i > t_j ? t_i - t_j : t_j - t_i;
  return static_cast<std::int32_t>(std::min<std::int64_t>(distance, time_span));
}

/// Times of a window in 32 bits with the same buckets: every gap longer than S counts as S,
///
///   t'_1 = min(t_1, S),  t'_k = t'_(k-1) + min(t_k - t_(k-1), S),  padding stays 0
///
/// so t'_k <= T * S, and min(|t'_i - t'_j|, S) = min(|t_i - t_j|, S) for all slots, padding included.
///
/// shapes   time, narrow (T), ascending behind the padding
/// units    T * S < 2^31
inline void narrow_times(std::span<const std::int64_t> time, std::int32_t time_span, std::span<std::int32_t> narrow) {
  assert(time.size() == narrow.size());
  std::int64_t before = 0;
  std::int32_t at = 0;
  for (std::size_t k = 0; k < time.size(); ++k) {
    at += static_cast<std::int32_t>(std::min<std::int64_t>(time[k] - before, time_span));
    before = time[k];
    narrow[k] = at;
  }
}

/// All buckets of a window. For tests and inspection: a model computes them from the times where it needs them.
///
/// shapes   time (T), relation (T, T)
inline void relation_matrix(std::span<const std::int64_t> time, std::int32_t time_span,
                            std::span<std::int32_t> relation) {
  assert(relation.size() == time.size() * time.size());
  for (std::size_t i = 0; i < time.size(); ++i) {
    for (std::size_t j = 0; j < time.size(); ++j)
      relation[i * time.size() + j] = relation_bucket(time[i], time[j], time_span);
  }
}

}  // namespace lockstep
