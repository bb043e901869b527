#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Models of item sequences see a user's history through a window of T slots: the newest event is in the last slot,
/// zeros (padding) are in front. Times are scaled times, >= 1 and ascending; 0 is padding.

/// Copies the newest of `values` to `slots`, right-aligned, and pads the front with zeros. Returns the number of slots
/// that hold a value.
template <class T>
std::int64_t right_align(std::span<const T> values, std::span<T> slots) {
  const std::size_t kept = std::min(values.size(), slots.size());
  std::fill(slots.begin(), slots.end() - static_cast<std::ptrdiff_t>(kept), T{0});
  std::copy(values.end() - static_cast<std::ptrdiff_t>(kept), values.end(),
            slots.end() - static_cast<std::ptrdiff_t>(kept));
  return static_cast<std::int64_t>(kept);
}

/// Fills the training window of a user's training items x_1 .. x_m. Of the last T+1 items, `seq` takes all but the last
/// and `pos` (the targets) all but the first; `time` takes the times of the items in `seq`. With fewer than two items
/// every slot is padding.
///
/// shapes   seq, pos, time (T); train_times and time are empty if the data have no times
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

/// Relation bucket of two times of a window: r_ij = min(|t_i - t_j|, S), S = time_span.
inline std::int32_t relation_bucket(std::int64_t t_i, std::int64_t t_j, std::int32_t time_span) {
  const std::int64_t distance = t_i > t_j ? t_i - t_j : t_j - t_i;
  return static_cast<std::int32_t>(std::min<std::int64_t>(distance, time_span));
}

/// Names of the scales of times: per_user_min, unit:second, unit:minute, unit:hour, unit:day, raw.
const std::vector<std::string>& time_scales();
/// Scales one user's times, which ascend; the first scaled time is 1.
///
///   per_user_min  round_half_even((t_k - t_1) / g) + 1 in f64, g the smallest non-zero gap of adjacent times, or 1
///   unit:U        floor((t_k - t_1) / U) + 1;   raw is unit:second
///
/// source  Li, Wang, McAuley 2020, "Time interval aware self-attention for sequential recommendation", sec. 3.2
void scale_times(std::span<const std::int64_t> raw, const std::string& scale, std::span<std::int64_t> scaled);
}  // namespace lockstep
