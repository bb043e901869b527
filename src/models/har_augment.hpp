#pragma once
// Augmentation of signals.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/philox.hpp"
#include "lockstep/models/har_model.hpp"

namespace lockstep {

/// First channel of each three consecutive ones called NAME_x, NAME_y, NAME_z.
std::vector<std::int32_t> triads_of(const std::vector<std::string>& channel_names);

/// Whether any of it changes signals.
bool augments_signals(const HarAugment& augment);

/// A window (C, L) of the data set as these draws change it: begun later, turned, stretched; in the units of the data.
void augment_window(const HarAugment& augment, const HarData& data, std::span<const std::int32_t> triads,
                    std::int64_t window, const Philox& draws, double* out);

}  // namespace lockstep
