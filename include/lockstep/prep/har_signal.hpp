#pragma once
#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

/// Coefficients of a causal third-order filter, a[0] = 1: a y = b x.
struct Filter3 {
  std::array<double, 4> b, a;
};
/// Butterworth low-passes for 50 Hz, cut off at 20 Hz (noise) and at 0.3 Hz (gravity, slow drift).
inline constexpr Filter3 kLowPass20Hz = {
    {0.5276243825019432, 1.5828731475058295, 1.5828731475058295, 0.5276243825019432},
    {1, 1.7600418803431688, 1.1828932620378305, 0.2780599176345463}};
inline constexpr Filter3 kLowPass03Hz = {
    {6.451849129090928e-06, 1.9355547387272784e-05, 1.9355547387272784e-05, 6.451849129090928e-06},
    {1, -2.9246062354506974, 2.8520278185938936, -0.9273699683501638}};

/// y_i = median(x_{i-1}, x_i, x_{i+1}), zeros beyond both ends, as scipy.signal.medfilt.
std::vector<double> median3(std::span<const double> x);
/// Direct form II transposed, its state that of a signal which has always been x_0: what scipy.signal.lfilter gives with
/// lfilter_zi times x_0, but for the 1e-11 that its linear solve loses on the slow filter.
std::vector<double> filter3(const Filter3& filter, std::span<const double> x);

/// A raw sensor column as windows use it.
struct SplitSignal {
  std::vector<double> total;  ///< median of 3, then low-pass 20 Hz
  std::vector<double> body;   ///< total without its low-pass 0.3 Hz
};
SplitSignal split_signal(std::span<const double> raw);

/// Numbers of a text file, a row per line, separated by blanks or one comma each.
struct TextTable {
  std::filesystem::path path;
  std::vector<std::string> header;  ///< of a first line without numbers; else empty
  std::size_t columns = 0;
  std::vector<double> values;  ///< (rows, columns)
  std::size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  /// "FILE:LINE" of a row.
  std::string line_of(std::size_t row) const;
  std::vector<double> column(std::size_t c) const;
};
enum class Header : std::uint8_t { none, optional };
/// Reads a table with `columns` numbers in each line (0: as many as the first has). Blank lines may only end the file.
/// errors  usage: the file is missing; data: naming file and line: another number of values, no number, not finite; an empty file
TextTable read_text_table(const std::filesystem::path& path, std::size_t columns, Header header = Header::none);
/// A value that must be a whole number that fits i32. errors  data: naming file and line
std::int32_t whole_number(const TextTable& table, std::size_t row, std::size_t column);

}  // namespace lockstep::prep
