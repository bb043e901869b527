#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/training_windows.hpp"

namespace lockstep::ops::cuda {

/// The pointers of WindowArrays and HistoryTable; null for empty arrays.
struct Windows {
  std::int64_t *begin, *user, *time, *first_query;
  std::int32_t *item, *slot, *pos, *neg, *position;
  std::int64_t rows, negatives;
  const HistorySample* samples;
  const std::int32_t *items, *known;
  const std::int64_t* times;
  std::int64_t n_items;
  WindowRule rule;
};

void training_windows(const Stream& stream, std::int64_t samples, const Windows& windows, const RowDraw* draw);

template <class T>
void draw_candidates(const Stream& stream, std::int64_t count, std::int32_t* items, T* bias, const double* up_to,
                     const double* biases, std::int64_t n_items, std::uint64_t seed, const WindowRule& rule);

}  // namespace lockstep::ops::cuda
