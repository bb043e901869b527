#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A window of a data set, possibly shifted and rotated.
struct WindowPick {
  std::int64_t window = 0;
  std::int64_t later = 0;            ///< the pick begins this many samples after the start of `window`
  std::int64_t next = 0, ahead = 0;  ///< a window that begins `ahead` >= later samples after it; read if later > 0
  std::array<double, 9> turn = {};   ///< rotation of triads, row-major
};

/// One channel of a pick.
struct SensorSequence {
  std::int64_t pick = 0, channel = 0;
  std::int64_t triad = -1;                 ///< the first of three channels that rotate together; -1: no rotation
  double factor = 1, mean = 0, scale = 1;  ///< see sensor_windows()
};

/// Selected, augmented and normalised channels of windows in GPU memory:
///
///   y_it = (factor_i x_it - mean_i) scale_i,   x the channel, or its row of the rotated triad
///
/// Computed in f64 without FMA and rounded once, so it has the bits of the same calculation on the CPU.
///
/// shapes   signals (n, C, L); y (sequences, ...): the first samples of each sequence; zeros after its last
/// dtypes   signals f64; y f32 | f64 | bf16 | f16 (rounded to f32, then to halves)
/// errors   Error if y or signals are not on a GPU, or the shapes do not fit. Picks and sequences must be in memory
///          that kernels can read; their numbers are not checked.
void sensor_windows(Stream&, const Tensor& y, const Tensor& signals, std::span<const WindowPick> picks,
                    std::span<const SensorSequence> sequences);

}  // namespace lockstep::ops
