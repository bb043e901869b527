#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::prep {

/// Coefficients of a causal third-order filter, a[0] = 1: a y = b x.
struct Filter3 {
  std::array<double, 4> b, a;
};
/// Butterworth low-pass filters for 50 Hz, with cut-off at 20 Hz (noise) and at 0.3 Hz (gravity, slow drift).
inline constexpr Filter3 kLowPass20Hz = {
    {0.5276243825019432, 1.5828731475058295, 1.5828731475058295, 0.5276243825019432},
    {1, 1.7600418803431688, 1.1828932620378305, 0.2780599176345463}};
inline constexpr Filter3 kLowPass03Hz = {
    {6.451849129090928e-06, 1.9355547387272784e-05, 1.9355547387272784e-05, 6.451849129090928e-06},
    {1, -2.9246062354506974, 2.8520278185938936, -0.9273699683501638}};

/// y_i = median(x_{i-1}, x_i, x_{i+1}) with zeros beyond both ends, as scipy.signal.medfilt.
std::vector<double> median3(std::span<const double> x);
/// Applies a filter, direct form II transposed. The initial state is the steady state of the constant signal x_0, as in
/// scipy.signal.lfilter with zi = lfilter_zi * x_0.
/// differs  by 1e-11 on the slow filter, where SciPy's linear solve loses digits
std::vector<double> filter3(const Filter3& filter, std::span<const double> x);

/// A raw sensor column, filtered.
struct SplitSignal {
  std::vector<double> total;  ///< median of 3, then low-pass 20 Hz
  std::vector<double> body;   ///< total minus its low-pass 0.3 Hz
};
SplitSignal split_signal(std::span<const double> raw);

/// Texts of the rows of a table, such as labels; each different text is stored once.
struct TextColumn {
  std::vector<std::string> words;
  std::vector<std::int32_t> of_row;  ///< index into words; empty: the table has no such column
  const std::string& at(std::size_t row) const { return words[of_row[row]]; }
};

/// The numbers of a text file: one row per line. The first line decides whether semicolons, tabs, commas or blanks
/// separate its fields, and so does the first line of numbers after a line of names. Fields may be quoted as in CSV
/// files. A separator or a semicolon at the end of the lines is no field. A comma inside a number is a decimal comma,
/// unless commas separate.
struct TextTable {
  std::filesystem::path path;
  std::vector<std::string> header;  ///< fields of a first line without numbers, or empty
  std::size_t fields = 0;           ///< in each line
  std::vector<std::string> names;   ///< of the channels: from the header, otherwise `channel_0`, `channel_1`, ...
  std::vector<std::string> aside;   ///< names of the columns that were not read
  std::size_t columns = 0;          ///< channels
  std::vector<double> values;       ///< (rows, columns); NaN: missing
  TextColumn labels, subjects;
  std::string time_name;        ///< the column of `times`, or ""
  std::vector<double> times;    ///< of each row, in the column's unit, or in seconds since 1970; NaN: missing
  bool dates = false;           ///< times are dates or clock times
  bool comma_decimals = false;  ///< every second column holds digits only, some of them as no whole number is written
  std::size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  /// "FILE:LINE" of a row.
  std::string line_of(std::size_t row) const;
  std::vector<double> column(std::size_t c) const;
};
enum class Header : std::uint8_t { none, optional };
/// Which columns of a table are read, by name.
struct ColumnChoice {
  std::vector<std::string> take, skip;  ///< channels; empty: takes all others, skips none
  std::vector<std::string> header;      ///< names of the columns if the table has no header; empty: none
  std::string label, subject;           ///< columns of texts; empty: none
  /// The column of times; empty: the first one that is no channel by `take` and whose name says time; none: none.
  std::string time = "none";
  bool missing = false;  ///< numbers may be missing: empty, nan, NA, n/a or ?
};
/// Whether a field says that its value is missing.
bool is_missing(std::string_view field);
/// Whether the name of a column says that it holds times: `time`, `Creation_Time`, `timestamp (ms)`, `t`.
bool says_time(std::string_view name);

/// Reads the chosen columns, which must hold numbers, of a table with `fields` fields per line (0: as many as the first
/// line has). Only the end of the file may have blank lines.
/// errors  usage: the file or a chosen column is missing; data, naming file and line: another number of fields, a field
///         that is not a number of 32-bit floats; an empty file
TextTable read_text_table(const std::filesystem::path& path, std::size_t fields, Header header = Header::none,
                          const ColumnChoice& choice = {});
/// A value that must be an integer within i32. errors  data: naming file and line
std::int32_t whole_number(const TextTable& table, std::size_t row, std::size_t column);

}  // namespace lockstep::prep
