#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "lockstep/base/philox.hpp"
#include "lockstep/ops/sample_table.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

// The arithmetic of training windows, shared by the host and kernels.

/// The event in slot s of T slots that hold the newest of `inputs` events, the newest in slot T-1. Negative: padding.
constexpr std::int64_t window_event(std::int64_t slots, std::int64_t inputs, std::int64_t slot) {
  return inputs - slots + slot;
}

/// Most draws of one negative; the last is used even if the user knows it. For a user who knows half of all items, that
/// has probability 2^-64.
inline constexpr std::uint64_t kNegativeTries = 64;

/// The item (1..n) that is negative number `place` of a user: the first of its draws that the user does not know.
template <class Known>
constexpr std::int32_t drawn_negative(const Philox& draws, std::int64_t n, std::int64_t place, const Known& is_known) {
  const std::uint64_t first = static_cast<std::uint64_t>(place) * kNegativeTries;
  std::int32_t item = 0;
  for (std::uint64_t k = 0; k < kNegativeTries; ++k) {
    item = 1 + static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(n), first + k));
    if (!is_known(item)) break;
  }
  return item;
}

/// The first of n ascending values that is greater than x; n if there is none.
template <class T>
constexpr std::int64_t first_above(const T* values, std::int64_t n, T x) {
  std::int64_t low = 0;
  for (std::int64_t high = n; low < high;) {
    const std::int64_t middle = (low + high) / 2;
    if (values[middle] > x)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Candidate k of a step: item i (1..n) with probability (up_to[i] - up_to[i-1]) / up_to[n]. shapes  up_to (n+1)
constexpr std::int64_t drawn_candidate(const Philox& draws, const double* up_to, std::int64_t n, std::int64_t k) {
  const double at = draws.uniform(static_cast<std::uint64_t>(k)) * up_to[n];
  return 1 + first_above(up_to + 1, n - 1, at);  // the product may round up to up_to[n]
}

/// A user as a training sample: m >= 2 items, which begin at `first` in the arrays of a HistoryTable.
struct HistorySample {
  std::int64_t first = 0;
  std::int32_t items = 0;  ///< m
  std::int32_t user = 0;
  /// The events that are inputs, and so have a target, in a window of this many slots.
  constexpr std::int64_t targets(std::int64_t slots) const {
    const std::int64_t inputs = items - 1;
    return inputs < slots ? inputs : slots;
  }
};

/// Histories in GPU memory.
struct HistoryTable {
  std::span<const HistorySample> samples;
  std::span<const std::int32_t> items;  ///< 1..n_items, by user, oldest first
  std::span<const std::int64_t> times;  ///< of `items`; empty: none
  std::span<const std::int32_t> known;  ///< as `items`, but the m items of a sample ascend
  std::int64_t n_items = 0;
};

/// The form of the windows that are made of the samples of a RowDraw.
struct WindowRule {
  std::int64_t slots = 0;
  bool padded = false;                         ///< a window has `slots` tokens, the first of which may be padding
  std::uint64_t step = 0;                      ///< keys the draws of negatives
  const std::uint64_t* step_on_gpu = nullptr;  ///< GPU memory that kernels read in place of `step`, unless null
};

/// The arrays of a batch. shapes  begin (B+1), user (B), first_query (B); item, slot, time, position, pos (M); neg (M,
/// K) with M at least the tokens of the windows
struct WindowArrays {
  Tensor begin, user;           ///< i64
  Tensor item, slot, pos, neg;  ///< i32
  Tensor time;                  ///< i64, or empty
  Tensor position;              ///< i32: slot + 1, 0 for padding; or empty
  Tensor first_query;           ///< i64: the number of padding tokens of a window; or empty
};

/// Makes the training windows of samples: the newest events of each history up to the last but one, packed one after
/// another, each with its successor (pos) and K drawn items outside the history (neg). Padding and rows after the last
/// window are 0 in all arrays, except that padding has its slot.
///
/// draw      in memory that kernels can read; B samples
/// errors    Error if the arrays do not fit together or are not on a GPU
void training_windows(Stream&, const WindowArrays& to, const HistoryTable& table, const WindowRule& rule,
                      const RowDraw* draw);

/// Draws the candidates that all tokens of a step share: drawn_candidate() of k = 0 .. K-1, and the bias of each.
///
/// shapes   items, bias (K); up_to, biases (n_items + 1), in GPU memory
/// dtypes   items i32; bias f32 | f64; up_to, biases f64
/// errors   Error if the shapes do not fit, or the arrays are not on a GPU
void draw_candidates(Stream&, const Tensor& items, const Tensor& bias, std::span<const double> up_to,
                     std::span<const double> biases, std::uint64_t seed, const WindowRule& rule);

}  // namespace lockstep::ops
