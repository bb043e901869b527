#include "train/heat_map.hpp"

#include <doctest/doctest.h>

using namespace lockstep;

namespace {

const MetricTable kTable{"confusion", {"SIT", "<LIE>", "WALK"}, {"SIT", "<LIE>", "WALK"}, {7, 3, 0, 0, 12, 0, 0, 0, 0}};

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

TEST_SUITE("train.heat_map") {
  TEST_CASE("the drawing names rows and columns and shows each value with its part of the row") {
    const std::string svg = heat_map_svg(kTable);
    for (const char* text : {"SIT", "&lt;LIE&gt;", ">7<", ">3<", ">12<", "70.0 %", "30.0 %", "100.0 %"})
      CHECK(svg.find(text) != std::string::npos);
    CHECK(svg.find("<LIE>") == std::string::npos);
    CHECK(svg.find("nan") == std::string::npos);  // a row without samples
  }

  TEST_CASE("the picture is a PNG of its size whose stored pixels are shaded by the part of the row") {
    const std::string png = heat_map_png(kTable);
    CHECK(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
    const std::uint32_t side = 3 * kHeatMapCell;
    CHECK(big_endian(png, 16) == side);
    CHECK(big_endian(png, 20) == side);
    const std::size_t data = png.find("IDAT") + 4;
    // A zlib header, then stored blocks of at most 65535 bytes behind five bytes each.
    std::string pixels;
    for (std::size_t at = data + 2;;) {
      const bool last = png[at] == 1;
      const std::size_t length = static_cast<unsigned char>(png[at + 1]) |
                                 static_cast<std::size_t>(static_cast<unsigned char>(png[at + 2])) << 8;
      pixels += png.substr(at + 5, length);
      at += 5 + length;
      if (last) break;
    }
    CHECK(pixels.size() == side * (1 + 3 * side));
    const auto red = [&](std::size_t row, std::size_t column) {
      return static_cast<unsigned char>(
          pixels[(row * kHeatMapCell + 2) * (1 + 3 * side) + 1 + 3 * (column * kHeatMapCell + 2)]);
    };
    CHECK(red(0, 2) == 255);
    CHECK(red(0, 0) < red(0, 1));
    CHECK(red(1, 1) < red(0, 0));
    CHECK(red(2, 1) == 255);
  }
}
