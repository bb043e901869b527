#include "tasks/har/har_pictures.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "lockstep/samples/rasteriser.hpp"

namespace lockstep {

namespace {

using Colour = std::array<double, 3>;
constexpr Colour kMean = {0.485, 0.456, 0.406}, kStd = {0.229, 0.224, 0.225};
constexpr Colour kGrey = {0.2989, 0.587, 0.114};
constexpr double kJitter = 0.2, kDegrees = 15;

/// Indices of a picture's draws.
enum Draw : std::uint64_t { kMirror, kOrder, kBrightness, kContrast, kAngle };

double between(double low, double high, double u) { return low + (high - low) * u; }
double grey(const Colour& c) { return kGrey[0] * c[0] + kGrey[1] * c[1] + kGrey[2] * c[2]; }

void mirror(const std::uint32_t* from, std::uint32_t* to, int size) {
  const int words = line_plot::words_per_row(size);
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x)
      if (line_plot::pixel(from, size, x, y)) {
        const int there = size - 1 - x;
        to[y * words + there / 32] |= std::uint32_t{1} << (there % 32);
      }
}

/// Rotates `from` by `angle` (radians, counter-clockwise) into `line`, by the nearest source pixel. A pixel whose
/// source is beyond the edges is set in `outside` instead.
void turn(const std::uint32_t* from, std::uint32_t* line, std::uint32_t* outside, int size, double angle) {
  const int words = line_plot::words_per_row(size);
  const double c = std::cos(angle), s = std::sin(angle), half = size / 2.0;
  for (int row = 0; row < size; ++row) {
    const double y = row + 0.5 - half;
    for (int column = 0; column < size; ++column) {
      const double x = column + 0.5 - half;
      const auto i = static_cast<int>(std::nearbyint(x * c - y * s + half - 0.5)),
                 j = static_cast<int>(std::nearbyint(x * s + y * c + half - 0.5));
      const std::uint32_t bit = std::uint32_t{1} << (column % 32);
      if (i < 0 || i >= size || j < 0 || j >= size)
        outside[row * words + column / 32] |= bit;
      else if (line_plot::pixel(from, size, i, j))
        line[row * words + column / 32] |= bit;
    }
  }
}

/// Jitters brightness and contrast of a picture with these two colours; `part` is the share of line pixels.
void jitter(const Philox& draws, double part, Colour& paper, Colour& line) {
  const auto each = [&](const auto& f) {
    for (double& v : paper) v = std::clamp(f(v), 0.0, 1.0);
    for (double& v : line) v = std::clamp(f(v), 0.0, 1.0);
  };
  const auto brightness = [&] {
    const double factor = between(1 - kJitter, 1 + kJitter, draws.uniform(kBrightness));
    each([&](double v) { return factor * v; });
  };
  const auto contrast = [&] {
    const double factor = between(1 - kJitter, 1 + kJitter, draws.uniform(kContrast));
    const double mean = (1 - part) * grey(paper) + part * grey(line);
    each([&](double v) { return factor * v + (1 - factor) * mean; });
  };
  const bool brightness_first = draws.uniform(kOrder) < 0.5;
  if (brightness_first) brightness();
  contrast();
  if (!brightness_first) brightness();
}

}  // namespace

void draw_har_picture(const double* x, std::int64_t length, std::int64_t pixels, const Philox* draws,
                      const HarPicture& picture) {
  const int size = static_cast<int>(pixels);
  const std::int64_t words = line_plot::mask_words(size);
  Colour paper = {1, 1, 1}, line = {0, 0, 1};
  if (draws == nullptr) {
    line_plot::draw(x, length, size, picture.line);
  } else {
    const auto clear = [&](std::uint32_t* mask) { std::fill_n(mask, words, 0u); };
    line_plot::draw(x, length, size, picture.scratch);
    if (draws->uniform(kMirror) < 0.5) {
      clear(picture.line);
      mirror(picture.scratch, picture.line, size);
      std::copy_n(picture.line, words, picture.scratch);
    }
    std::int64_t set = 0;
    for (std::int64_t w = 0; w < words; ++w) set += std::popcount(picture.scratch[w]);
    jitter(*draws, static_cast<double>(set) / static_cast<double>(size * size), paper, line);
    clear(picture.line);
    clear(picture.outside);
    turn(picture.scratch, picture.line, picture.outside, size,
         between(-kDegrees, kDegrees, draws->uniform(kAngle)) * std::numbers::pi / 180);
  }
  const std::array<Colour, 3> colours = {paper, line, Colour{0, 0, 0}};
  for (std::size_t k = 0; k < colours.size(); ++k)
    for (std::size_t c = 0; c < 3; ++c) picture.colours[3 * k + c] = (colours[k][c] - kMean[c]) / kStd[c];
}

}  // namespace lockstep
