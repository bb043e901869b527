#pragma once
#include <cstdint>

#include "lockstep/base/philox.hpp"

namespace lockstep {

/// The memory of one picture: bit masks (samples/rasteriser.hpp) and colours (ops/line_patches.hpp).
struct HarPicture {
  std::uint32_t* line = nullptr;
  std::uint32_t* outside = nullptr;  ///< pixels beyond the rotated picture's edges; null without draws
  std::uint32_t* scratch = nullptr;  ///< size of line; null without draws
  double* colours = nullptr;         ///< (3, 3), normalised: paper, line, outside x red, green, blue
};

/// Draws `length` samples as a blue line on white, `size` pixels wide and high, and normalises the colours by
/// ImageNet's mean and standard deviation.
///
/// With draws, for training: mirrors left to right with probability 1/2; multiplies brightness and contrast by factors
/// from U(0.8, 1.2), in random order; rotates by U(-15, 15) degrees about the centre (nearest pixel, black beyond the
/// edges).
/// source  torchvision's RandomHorizontalFlip, ColorJitter, RandomRotation, Normalize
void draw_har_picture(const double* x, std::int64_t length, std::int64_t size, const Philox* draws,
                      const HarPicture& picture);

}  // namespace lockstep
