#include "lockstep/report/heat_map.hpp"

#include <zlib.h>

#include "support/test.hpp"

namespace {

const MetricTable kTable{"confusion", {"SIT", "<LIE>", "WALK"}, {"SIT", "<LIE>", "WALK"}, {7, 3, 0, 0, 12, 0, 0, 0, 0}};

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

TEST_SUITE("report.heat_map") {
  TEST_CASE("the drawing names rows and columns and shows each value with its part of the row") {
    const std::string svg = heat_map_svg(kTable);
    for (const char* text : {"SIT", "&lt;LIE&gt;", ">7<", ">3<", ">12<", "70.0 %", "30.0 %", "100.0 %"})
      CHECK(svg.find(text) != std::string::npos);
    CHECK(svg.find("<LIE>") == std::string::npos);
    CHECK(svg.find("nan") == std::string::npos);  // a row without samples
  }

  TEST_CASE("long names are shown whole: columns turn, and rows take the room that they need") {
    const MetricTable wide{"confusion", {"WALKING_UPSTAIRS", "S"}, {"WALKING_UPSTAIRS", "S"}, {1, 2, 3, 4}};
    const std::string svg = heat_map_svg(wide);
    CHECK(svg.find("rotate(-90") != std::string::npos);
    const auto first = svg.find(">WALKING_UPSTAIRS<");
    CHECK(first != std::string::npos);
    CHECK(svg.find(">WALKING_UPSTAIRS<", first + 1) != std::string::npos);
    CHECK(heat_map_svg(kTable).find("rotate") == std::string::npos);
  }

  TEST_CASE("the picture is a PNG of its size whose pixels are shaded by the share of the row") {
    const std::string png = heat_map_png(kTable);
    CHECK(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
    const std::uint32_t side = 3 * kHeatMapCell;
    CHECK(big_endian(png, 16) == side);
    CHECK(big_endian(png, 20) == side);
    const std::size_t data = png.find("IDAT") + 4;
    const std::uint32_t length = big_endian(png, data - 8);
    const auto* bytes = reinterpret_cast<const Bytef*>(png.data());
    CHECK(big_endian(png, data + length) == crc32(0, bytes + data - 4, length + 4));
    std::string pixels(2 * side * (1 + 3 * side), '\0');
    uLongf size = pixels.size();
    CHECK(uncompress(reinterpret_cast<Bytef*>(pixels.data()), &size, bytes + data, length) == Z_OK);
    CHECK(size == side * (1 + 3 * side));
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
