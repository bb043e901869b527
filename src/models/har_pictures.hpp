#pragma once
// Pictures of signals: drawn, augmented and coloured as the reference does.
#include <cstdint>

#include "lockstep/base/philox.hpp"

namespace lockstep {

/// One picture's memory: bits of line_plot.hpp and colours of line_patches.hpp.
struct HarPicture {
  std::uint32_t* line = nullptr;
  std::uint32_t* outside = nullptr;  ///< null: the picture is not turned
  std::uint32_t* scratch = nullptr;  ///< as large as line; only needed with outside
  double* colours = nullptr;         ///< (3, 3): paper, line, outside; red, green, blue, normalised
};

/// Draws `length` samples as a blue line on white, `size` pixels wide and high, and normalises the colours by the mean
/// and standard deviation of ImageNet's.
///
/// With draws, for training: mirrored left to right (one time in two); brightness and contrast by factors from
/// U(0.8, 1.2), in random order; turned by U(-15, 15) degrees about its centre, nearest pixel, black beyond its edges.
/// source  torchvision's RandomHorizontalFlip, ColorJitter, RandomRotation, Normalize
void draw_har_picture(const double* x, std::int64_t length, std::int64_t size, const Philox* draws,
                      const HarPicture& picture);

}  // namespace lockstep
