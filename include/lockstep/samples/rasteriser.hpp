#pragma once
#include <cstdint>

/// Rasterises a signal as a blue line on white, into a mask of one bit per pixel: a 224 x 224 picture takes 6,272 bytes
/// instead of 602,112. The functions use plain pointers, allocate nothing and call no library, so the same code runs in
/// data preparation, in kernels and in constant expressions. Compile without contraction to FMA (-ffp-contract=off,
/// nvcc -fmad=false).
///
/// differs  nothing: the result equals ImageDraw.line(width=2) of Pillow 9.4 bit for bit; each segment is its own
///          polygon
namespace lockstep::line_plot {

/// Number of 32-pixel words per row of the mask. Pixel (x, y) is bit x % 32 of word y * words_per_row(size) + x / 32;
/// unused bits are 0.
constexpr int words_per_row(int size) { return (size + 31) / 32; }
constexpr std::int64_t mask_words(int size) { return static_cast<std::int64_t>(size) * words_per_row(size); }
constexpr bool pixel(const std::uint32_t* mask, int size, int x, int y) {
  return (mask[static_cast<std::int64_t>(y) * words_per_row(size) + x / 32] >> (x % 32) & 1u) != 0;
}
/// Rows above and below the line that stay empty: floor(size / 20), which equals floor(0.05 size).
constexpr int margin(int size) { return size / 20; }

/// Column of sample i of `length`: trunc(linspace(0, size - 1, length)_i), with numpy's spacing and end point.
constexpr int x_of(std::int64_t i, std::int64_t length, int size) {
  if (length < 2) return 0;
  if (i == length - 1) return size - 1;
  const double step = static_cast<double>(size - 1) / static_cast<double>(length - 1);
  return static_cast<int>(static_cast<double>(i) * step);
}

/// Smallest and largest value of a window. A flat window (range below 1e-8) is drawn at half height.
struct Range {
  double low = 0, high = 0;
};
template <class T>
constexpr Range range_of(const T* x, std::int64_t length) {
  Range range{static_cast<double>(x[0]), static_cast<double>(x[0])};
  for (std::int64_t i = 1; i < length; ++i) {
    const double value = static_cast<double>(x[i]);
    if (value < range.low) range.low = value;
    if (value > range.high) range.high = value;
  }
  return range;
}
/// Row of a value: size - m - trunc(n (size - 2m)), n = (value - low) / (high - low), m = margin(size). The row is
/// `size`, outside the picture, only if m = 0.
constexpr int y_of(double value, Range range, int size) {
  const double span = range.high - range.low;
  const double n = span < 1e-8 ? 0.5 : (value - range.low) / span;
  const int m = margin(size);
  return size - m - static_cast<int>(n * static_cast<double>(size - 2 * m));
}

namespace detail {

/// floor(|f| + 0.5) and ceil(|f| - 0.5), with the sign of f; the sum and the difference are rounded to float32.
// NOLINTNEXTLINE(bugprone-incorrect-roundings): the pixels of the public code
constexpr int round_up(float f) { return f >= 0.0f ? static_cast<int>(f + 0.5f) : -static_cast<int>(-f + 0.5f); }
constexpr int round_down(float f) {
  const float shifted = (f >= 0.0f ? f : -f) - 0.5f;  // >= -0.5, where truncation rounds up
  const int whole = static_cast<int>(shifted);
  const int up = whole + (shifted > static_cast<float>(whole) ? 1 : 0);
  return f >= 0.0f ? up : -up;
}

/// Sets the pixels x0 .. x1 of a row, clipped to the picture.
constexpr void fill(std::uint32_t* mask, int size, int y, int x0, int x1) {
  if (y < 0 || y >= size) return;
  if (x0 < 0) x0 = 0;
  if (x1 >= size) x1 = size - 1;
  if (x0 > x1) return;
  std::uint32_t* row = mask + static_cast<std::int64_t>(y) * words_per_row(size);
  const int first = x0 / 32, last = x1 / 32;
  const std::uint32_t from = ~std::uint32_t{0} << (x0 % 32), to = ~std::uint32_t{0} >> (31 - x1 % 32);
  if (first == last) {
    row[first] |= from & to;
    return;
  }
  row[first] |= from;
  for (int word = first + 1; word < last; ++word) row[word] = ~std::uint32_t{0};
  row[last] |= to;
}

constexpr int sign(int v) { return (v > 0) - (v < 0); }

}  // namespace detail

/// Draws the segment (x0, y0) - (x1, y1), two pixels wide, into the mask.
///
/// With h = hypot(dx, dy), a = round(dy / h), b = round(dx / h), it fills the polygon (x0, y0 + b), (x1, y1 + b), (x1 +
/// a, y1), (x0 + a, y0). |dy / h| = 1/2 has no integer solution, so a = sign(dy) [3 dy^2 > dx^2] exactly, and likewise
/// b. A row crosses an edge at X = (y - ya) s + xa in float32, each operation rounded, with s = (xb - xa) / (yb - ya)
/// and (xa, ya) the first vertex of the edge. The lower end of an edge counts twice unless it is in the lowest row of
/// the polygon.
constexpr void draw_segment(std::uint32_t* mask, int size, int x0, int y0, int x1, int y1) {
  const std::int64_t dx = x1 - x0, dy = y1 - y0;
  if (dx == 0 && dy == 0) return detail::fill(mask, size, y0, x0, x0);
  const int a = 3 * dy * dy > dx * dx ? detail::sign(y1 - y0) : 0,
            b = 3 * dx * dx > dy * dy ? detail::sign(x1 - x0) : 0;
  const int vx[4] = {x0, x1, x1 + a, x0 + a}, vy[4] = {y0 + b, y1 + b, y1, y0};
  float slope[4] = {};
  int low = vy[0], high = vy[0];
  for (int e = 0; e < 4; ++e) {
    const int n = (e + 1) % 4;
    low = vy[e] < low ? vy[e] : low;
    high = vy[e] > high ? vy[e] : high;
    if (vy[n] == vy[e]) {
      detail::fill(mask, size, vy[e], vx[e] < vx[n] ? vx[e] : vx[n], vx[e] < vx[n] ? vx[n] : vx[e]);
    } else {
      slope[e] = static_cast<float>(vx[n] - vx[e]) / static_cast<float>(vy[n] - vy[e]);
    }
  }
  for (int y = low; y <= high; ++y) {
    float crossing[8] = {};
    int count = 0;
    const auto insert = [&](float x) {
      int at = count++;
      for (; at > 0 && crossing[at - 1] > x; --at) crossing[at] = crossing[at - 1];
      crossing[at] = x;
    };
    for (int e = 0; e < 4; ++e) {
      const int n = (e + 1) % 4;
      const int top = vy[e] < vy[n] ? vy[e] : vy[n], bottom = vy[e] < vy[n] ? vy[n] : vy[e];
      if (top == bottom || y < top || y > bottom) continue;
      const float run = static_cast<float>(y - vy[e]) * slope[e];  // rounded before the sum, no FMA
      const float x = run + static_cast<float>(vx[e]);
      insert(x);
      if (y == bottom && y < high) insert(x);
    }
    int cursor = 0;
    for (int i = 1; i < count; i += 2) {
      const int end = detail::round_down(crossing[i]);
      if (end < cursor) continue;
      const int begin = detail::round_up(crossing[i - 1]);
      detail::fill(mask, size, y, begin > cursor ? begin : cursor, end);
      cursor = end + 1;
    }
  }
}

/// Draws `length` samples, scaled by their smallest and largest value, from the left edge of the picture to the right.
///
/// shapes   x (length), mask (mask_words(size)), overwritten
/// dtypes   x f32 or f64; arithmetic in f64
/// units    finite values; size >= 1, length >= 1 (one sample draws nothing)
/// source   ImageDraw.line of Pillow 9.4; the pixels agree on 360 real and synthetic windows
template <class T>
constexpr void draw(const T* x, std::int64_t length, int size, std::uint32_t* mask) {
  for (std::int64_t i = 0; i < mask_words(size); ++i) mask[i] = 0;
  const Range range = range_of(x, length);
  int x0 = x_of(0, length, size), y0 = y_of(static_cast<double>(x[0]), range, size);
  for (std::int64_t i = 1; i < length; ++i) {
    const int x1 = x_of(i, length, size), y1 = y_of(static_cast<double>(x[i]), range, size);
    draw_segment(mask, size, x0, y0, x1, y1);
    x0 = x1;
    y0 = y1;
  }
}

}  // namespace lockstep::line_plot
