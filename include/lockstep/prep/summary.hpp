#pragma once
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

/// What a source of lockstep-prep understood of the raw data: lines for people, and warnings where the reading is
/// implausible, such as play counts taken for times. The prepared file keeps the warnings, so that `lockstep-prep
/// check` and `info` repeat them.
class Summary {
 public:
  /// A line: a name and what it stands for. The lines of a column align.
  void line(const std::string& name, const auto&... parts) { lines_.push_back({name, join(parts...)}); }
  /// A remark on what was assumed, which is right for most data.
  void note(const auto&... parts) { line("note", parts...); }
  /// An implausible reading: what was found, the values that show why, what to change. An error under --strict.
  void warning(const auto&... parts) { warnings_.push_back(join(parts...)); }
  /// A line with the range, median and missing values (NaN) of a column, unless there are many columns, and a warning
  /// of values that stand for missing ones: magnitudes that only a fill value has, numbers like -9999 apart from all
  /// others. `unit` is "" where unknown.
  void column(const std::string& name, const std::string& unit, std::span<const double> values);

  const std::vector<std::string>& warnings() const { return warnings_; }
  void print(std::ostream& out) const;
  /// Logs the warnings and adds them to the attributes of the prepared file. errors  data: `strict` and a warning
  void settle(bool strict, DatasetNotes& notes) const;

 private:
  struct Line {
    std::string name, text;
  };
  std::vector<Line> lines_;
  std::size_t columns_ = 0, rest_ = 0;  ///< number of columns; the line that counts those without one
  std::vector<std::string> warnings_;
};

/// The warnings that a prepared file keeps.
std::vector<std::string> stored_warnings(const H5File& file);

}  // namespace lockstep::prep
