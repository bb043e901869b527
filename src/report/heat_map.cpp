#include "lockstep/report/heat_map.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "report/svg_plot.hpp"

namespace lockstep {

namespace {

using Colour = std::array<unsigned char, 3>;
constexpr Colour kPaper = {255, 255, 255}, kInk = {8, 64, 129}, kDark = {20, 30, 45};

struct Extents {
  std::size_t rows, columns;
  explicit Extents(const MetricTable& t) : rows(t.rows.size()), columns(t.columns.size()) {}
};

/// The cell's share of its row's sum, in [0, 1]; 0 if the row is empty.
double share(const MetricTable& t, std::size_t row, std::size_t column) {
  const std::size_t width = t.columns.size();
  double sum = 0;
  for (std::size_t c = 0; c < width; ++c) sum += t.values[row * width + c];
  return sum > 0 ? t.values[row * width + column] / sum : 0;
}
Colour shade(double part) {
  Colour out;
  for (std::size_t i = 0; i < 3; ++i)
    out[i] = static_cast<unsigned char>(std::lround(kPaper[i] + part * (kInk[i] - kPaper[i])));
  return out;
}
const Colour& text_on(double part) { return part > 0.5 ? kPaper : kDark; }
std::string hex(const Colour& c) { return printed("#%02x%02x%02x", c[0], c[1], c[2]); }

void append_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}
const Bytef* bytes_of(const std::string& text) { return reinterpret_cast<const Bytef*>(text.data()); }

/// A chunk of a PNG file: length, type, data, CRC-32 of type and data. source  RFC 2083
void append_chunk(std::string& out, const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  append_big_endian(out, static_cast<std::uint32_t>(data.size()));
  out += checked;
  append_big_endian(out, static_cast<std::uint32_t>(crc32(0, bytes_of(checked), static_cast<uInt>(checked.size()))));
}
std::string compressed(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  require(compress(reinterpret_cast<Bytef*>(out.data()), &size, bytes_of(bytes), bytes.size()) == Z_OK,
          "compressing a picture of ", bytes.size(), " bytes: zlib is out of memory");
  out.resize(size);
  return out;
}

/// Digits of three by five pixels: five rows of three bits, top row first.
constexpr std::array<std::uint16_t, 10> kDigits = {
    0b111101101101111, 0b010110010010111, 0b111001111100111, 0b111001111001111, 0b101101111001001,
    0b111100111001111, 0b111100111101111, 0b111001010010010, 0b111101111101111, 0b111101111001111};

class Canvas {
 public:
  Canvas(std::size_t width, std::size_t height) : width_(width), rows_(height, std::string(1 + 3 * width, '\0')) {}
  void fill(std::size_t x0, std::size_t y0, std::size_t width, std::size_t height, const Colour& colour) {
    for (std::size_t y = y0; y < y0 + height; ++y)
      for (std::size_t x = x0; x < x0 + width; ++x)
        for (std::size_t i = 0; i < 3; ++i) rows_[y][1 + 3 * x + i] = static_cast<char>(colour[i]);
  }
  /// Draws digits in the centre of a square, unless they are too wide for it.
  void digits(const std::string& text, std::size_t x0, std::size_t y0, std::size_t square, const Colour& colour) {
    constexpr std::size_t kScale = 2;
    const std::size_t width = (4 * text.size() - 1) * kScale;
    if (width > square) return;
    for (std::size_t d = 0; d < text.size(); ++d)
      for (std::size_t bit = 0; bit < 15; ++bit) {
        if (!(kDigits[text[d] - '0'] >> (14 - bit) & 1u)) continue;
        fill(x0 + (square - width) / 2 + (4 * d + bit % 3) * kScale, y0 + (square - 5 * kScale) / 2 + bit / 3 * kScale,
             kScale, kScale, colour);
      }
  }
  std::string png() const {
    std::string header, pixels, out = "\x89PNG\r\n\x1a\n";
    append_big_endian(header, static_cast<std::uint32_t>(width_));
    append_big_endian(header, static_cast<std::uint32_t>(rows_.size()));
    header += std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, red green blue
    for (const std::string& row : rows_) pixels += row;
    append_chunk(out, "IHDR", header);
    append_chunk(out, "IDAT", compressed(pixels));
    append_chunk(out, "IEND", "");
    return out;
  }

 private:
  std::size_t width_;
  std::vector<std::string> rows_;  ///< each begins with its filter type, 0 (none)
};

}  // namespace

std::string heat_map_svg(const MetricTable& t) {
  const Extents e(t);
  constexpr int kCell = 64, kLetter = 8, kLongest = 60;
  const auto longest = [&](const std::vector<std::string>& names) {
    std::size_t most = 0;
    for (const std::string& n : names) most = std::max(most, n.size());
    return std::min(static_cast<int>(most), kLongest);
  };
  // Column names that are wider than a cell are turned.
  const bool turned = kLetter * longest(t.columns) > kCell;
  const int left = 20 + kLetter * longest(t.rows), top = turned ? 20 + kLetter * longest(t.columns) : 40;
  const int width = left + kCell * static_cast<int>(e.columns), height = top + kCell * static_cast<int>(e.rows);
  std::string out = join("<svg viewBox=\"0 0 ", width + 10, " ", height + 10, "\" style=\"max-width:", width + 10,
                         "px;width:100%\" font-size=\"13\" font-family=\"sans-serif\" role=\"img\" aria-label=\"",
                         escape_html(t.name), "\">");
  const auto text = [&](int x, int y, const char* anchor, const std::string& fill, const std::string& what,
                        bool turn = false) {
    out += join("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\" fill=\"", fill, "\"",
                turn ? join(" transform=\"rotate(-90 ", x, " ", y, ")\"") : "", ">", escape_html(what), "</text>");
  };
  for (std::size_t c = 0; c < e.columns; ++c)
    text(left + kCell * static_cast<int>(c) + kCell / 2 + (turned ? 4 : 0), top - 12, turned ? "start" : "middle",
         "currentColor", t.columns[c], turned);
  for (std::size_t r = 0; r < e.rows; ++r) {
    const int y = top + kCell * static_cast<int>(r);
    text(left - 10, y + kCell / 2 + 5, "end", "currentColor", t.rows[r]);
    for (std::size_t c = 0; c < e.columns; ++c) {
      const double part = share(t, r, c);
      const int x = left + kCell * static_cast<int>(c);
      out += join("<rect x=\"", x, "\" y=\"", y, "\" width=\"", kCell - 2, "\" height=\"", kCell - 2, "\" fill=\"",
                  hex(shade(part)), "\"/>");
      text(x + kCell / 2 - 1, y + kCell / 2 - 3, "middle", hex(text_on(part)), join(t.values[r * e.columns + c]));
      text(x + kCell / 2 - 1, y + kCell / 2 + 15, "middle", hex(text_on(part)), printed("%.1f %%", 100 * part));
    }
  }
  return out + "</svg>";
}

std::string heat_map_png(const MetricTable& t) {
  const Extents e(t);
  constexpr std::size_t kCell = kHeatMapCell;
  Canvas canvas(kCell * e.columns, kCell * e.rows);
  for (std::size_t r = 0; r < e.rows; ++r)
    for (std::size_t c = 0; c < e.columns; ++c) {
      const double part = share(t, r, c), value = t.values[r * e.columns + c];
      canvas.fill(kCell * c, kCell * r, kCell, kCell, kDark);
      canvas.fill(kCell * c, kCell * r, kCell - 1, kCell - 1, shade(part));
      if (value >= 0) canvas.digits(std::to_string(std::lround(value)), kCell * c, kCell * r, kCell, text_on(part));
    }
  return canvas.png();
}

}  // namespace lockstep
