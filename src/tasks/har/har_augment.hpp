#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/philox.hpp"
#include "lockstep/tasks/har/har_task.hpp"

namespace lockstep {

/// The first channel of each triad NAME_x, NAME_y, NAME_z of consecutive channels.
std::vector<std::int32_t> triads_of(const std::vector<std::string>& channel_names);

/// Whether the augmentation changes signals, not only pictures.
bool augments_signals(const HarAugment& augment);

/// Writes a window (C, L) of the data set, shifted, rotated and scaled by these draws. Units of the data.
void augment_window(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                    std::int64_t window, const Philox& draws, double* out);

}  // namespace lockstep
