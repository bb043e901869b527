#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/philox.hpp"
#include "lockstep/ops/sensor_windows.hpp"
#include "lockstep/tasks/har/har_task.hpp"

namespace lockstep {

/// The first channel of each triad of consecutive channels whose names differ in their last letter: x, y, z or X, Y, Z.
std::vector<std::int32_t> triads_of(const std::vector<std::string>& channel_names);

/// Whether the augmentation changes signals, not only pictures.
bool augments_signals(const HarAugment& augment);

/// The change of a window by these draws: its shift and rotation, and a factor for each channel. shapes  factors (C)
ops::WindowPick draw_change(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                            std::int64_t window, const Philox& draws, std::span<double> factors);

/// Writes a window (C, L) of the data set, shifted, rotated and scaled as in draw_change(). Units of the data.
void augment_window(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                    std::int64_t window, const Philox& draws, std::span<double> factors, double* out);

}  // namespace lockstep
