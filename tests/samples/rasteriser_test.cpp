#include "lockstep/samples/rasteriser.hpp"

#include "support/test.hpp"

namespace {

using Picture = std::vector<std::uint8_t>;

/// Direct implementation of the rules, one byte per pixel: hypot in double, every crossing collected and sorted.
struct Slow {
  int size;
  Picture pixels;

  static int ru(float f) { return static_cast<int>(f >= 0 ? std::floor(f + 0.5f) : -std::floor(std::abs(f) + 0.5f)); }
  static int rd(float f) { return static_cast<int>(f >= 0 ? std::ceil(f - 0.5f) : -std::ceil(std::abs(f) - 0.5f)); }
  static int ru_double(double f) {
    return static_cast<int>(f >= 0 ? std::floor(f + 0.5) : -std::floor(std::abs(f) + 0.5));
  }
  static int rd_double(double f) {
    return static_cast<int>(f >= 0 ? std::ceil(f - 0.5) : -std::ceil(std::abs(f) - 0.5));
  }
  void fill(int y, int begin, int end) {
    for (int x = begin; x <= end; ++x) {
      if (x >= 0 && x < size && y >= 0 && y < size) pixels[to_size(y * size + x)] = 1;
    }
  }
  void segment(int x0, int y0, int x1, int y1) {
    const int dx = x1 - x0, dy = y1 - y0;
    if (dx == 0 && dy == 0) return fill(y0, x0, x0);
    const double h = std::hypot(dx, dy);
    const int a = rd_double(dy / h), b = ru_double(dx / h);
    const std::array<std::pair<int, int>, 4> v = {{{x0, y0 + b}, {x1, y1 + b}, {x1 + a, y1}, {x0 + a, y0}}};
    int low = v[0].second, high = v[0].second;
    for (const auto& [x, y] : v) low = std::min(low, y), high = std::max(high, y);
    for (std::size_t e = 0; e < 4; ++e) {
      const auto& [xa, ya] = v[e];
      const auto& [xb, yb] = v[(e + 1) % 4];
      if (ya == yb) fill(ya, std::min(xa, xb), std::max(xa, xb));
    }
    for (int y = low; y <= high; ++y) {
      std::vector<float> xs;
      for (std::size_t e = 0; e < 4; ++e) {
        const auto& [xa, ya] = v[e];
        const auto& [xb, yb] = v[(e + 1) % 4];
        if (ya == yb || y < std::min(ya, yb) || y > std::max(ya, yb)) continue;
        const float s = static_cast<float>(static_cast<double>(xb - xa) / (yb - ya));
        const volatile float run = static_cast<float>(y - ya) * s;
        const float x = run + static_cast<float>(xa);
        xs.push_back(x);
        if (y == std::max(ya, yb) && y < high) xs.push_back(x);
      }
      std::sort(xs.begin(), xs.end());
      int c = 0;
      for (std::size_t i = 0; i + 1 < xs.size(); i += 2) {
        const int e = rd(xs[i + 1]);
        if (e < c) continue;
        fill(y, std::max(ru(xs[i]), c), e);
        c = e + 1;
      }
    }
  }
  Picture draw(const std::vector<double>& x) {
    pixels.assign(to_size(size * size), 0);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const int m = static_cast<int>(std::floor(0.05 * size));
    const auto place = [&](std::size_t i) {
      const double n = *high - *low < 1e-8 ? 0.5 : (x[i] - *low) / (*high - *low);
      double column = 0;
      if (x.size() > 1)
        column = i + 1 == x.size()
                     ? size - 1
                     : static_cast<double>(i) * (static_cast<double>(size - 1) / static_cast<double>(x.size() - 1));
      return std::pair(static_cast<int>(column), size - m - static_cast<int>(n * (size - 2 * m)));
    };
    for (std::size_t i = 1; i < x.size(); ++i) {
      const auto [x0, y0] = place(i - 1);
      const auto [x1, y1] = place(i);
      segment(x0, y0, x1, y1);
    }
    return pixels;
  }
};

Picture draw(const std::vector<double>& x, int size) {
  // Stale bits must not survive.
  std::vector<std::uint32_t> mask(to_size(line_plot::mask_words(size)), 0xdeadbeef);
  line_plot::draw(x.data(), std::ssize(x), size, mask.data());
  Picture out;
  for (int row = 0; row < size; ++row) {
    for (int column = 0; column < size; ++column) out.push_back(line_plot::pixel(mask.data(), size, column, row));
  }
  return out;
}

std::vector<double> walk(std::size_t length, std::uint64_t sample, double roughness) {
  const Philox random(5, 0, "test.walk", sample);
  std::vector<double> x(length);
  double level = 0;
  for (std::size_t i = 0; i < length; ++i) {
    level += random.normal(2 * i);
    x[i] = level + roughness * random.normal(2 * i + 1);
  }
  return x;
}

/// A picture as text, one line per row.
std::string text_of(const Picture& pixels, int size) {
  std::string text;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    text += pixels[i] != 0 ? '#' : '.';
    if ((i + 1) % to_size(size) == 0) text += '\n';
  }
  return text;
}

constexpr bool drawn_by_the_compiler() {
  const double x[] = {3, 3};
  std::uint32_t mask[8] = {};
  line_plot::draw(x, 2, 8, mask);
  return line_plot::pixel(mask, 8, 0, 4) && line_plot::pixel(mask, 8, 7, 5) && !line_plot::pixel(mask, 8, 0, 3);
}
static_assert(drawn_by_the_compiler());

}  // namespace

TEST_SUITE("samples.rasteriser") {
  TEST_CASE("pixels equal those of the direct implementation, for any size, length and roughness") {
    std::uint64_t sample = 0;
    for (const int size : {1, 7, 28, 32, 33, 64, 224}) {
      for (const std::size_t length : {2u, 3u, 17u, 128u, 300u}) {
        for (const double roughness : {0.0, 1.0, 20.0}) {
          const auto x = walk(length, sample++, roughness);
          CAPTURE(size);
          CAPTURE(length);
          CAPTURE(roughness);
          const bool same = draw(x, size) == Slow{size, {}}.draw(x);
          CHECK(same);
        }
      }
    }
  }

  TEST_CASE("all short segments agree with the direct implementation, on and beyond the edges") {
    constexpr int kSize = 33;
    int wrong = 0;
    for (int x0 = 0; x0 < kSize; x0 += 4) {
      for (int y0 = 0; y0 <= kSize; y0 += 3) {
        for (int dx = 0; dx < 9; ++dx) {
          for (int y1 = 0; y1 <= kSize; ++y1) {
            std::vector<std::uint32_t> mask(to_size(line_plot::mask_words(kSize)));
            line_plot::draw_segment(mask.data(), kSize, x0, y0, x0 + dx, y1);
            Slow slow{kSize, Picture(kSize * kSize)};
            slow.segment(x0, y0, x0 + dx, y1);
            for (int i = 0; i < kSize * kSize; ++i)
              wrong += line_plot::pixel(mask.data(), kSize, i % kSize, i / kSize) != (slow.pixels[to_size(i)] != 0);
            for (int row = 0; row < kSize; ++row) wrong += (mask[to_size(row * 2 + 1)] >> 1) != 0;
          }
        }
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("a flat window is a line of two rows at half height, whatever its value") {
    const std::string expected = "........\n........\n........\n........\n########\n########\n........\n........\n";
    for (const double level : {0.0, -3.0, 1e9}) CHECK(text_of(draw({level, level, level}, 8), 8) == expected);
    CHECK(draw({1, 1 + 1e-9, 1}, 224) == draw({0, 0, 0}, 224));
    CHECK(draw({1, 1 + 1e-7, 1}, 224) != draw({0, 0, 0}, 224));
  }

  TEST_CASE("scale and offset change nothing; one sample draws nothing; f32 input works") {
    std::vector<double> x = walk(128, 99, 1), y;
    for (double& value : x) value = static_cast<double>(static_cast<float>(value));
    for (const double value : x) y.push_back(4 * value);
    CHECK(draw(x, 224) == draw(y, 224));
    CHECK(draw({3}, 28) == Picture(28 * 28, 0));
    const std::vector<float> f(x.begin(), x.end());
    std::vector<std::uint32_t> a(1568), b(1568);
    line_plot::draw(f.data(), 128, 224, a.data());
    line_plot::draw(x.data(), 128, 224, b.data());
    CHECK(a == b);
  }

  TEST_CASE("a picture of 224 x 224 takes 6272 bytes; the margin is a twentieth") {
    CHECK(line_plot::mask_words(224) * 4 == 6272);
    for (int size = 1; size < 2000; ++size) CHECK(line_plot::margin(size) == static_cast<int>(std::floor(0.05 * size)));
  }
}
