#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

/// The comparison of a computed array with the same array of a reference file.
struct ReferenceRow {
  std::string name;  ///< path in the file; a remark in parentheses distinguishes several computations of one array
  double tolerance = 0;
  bool absolute = false;
  double error = 0;         ///< largest difference, absolute or relative to the largest reference value
  std::int64_t worst = -1;  ///< element with the largest difference
  double value = 0, expected = 0;
  std::string note;                                                   ///< why the arrays do not match, or ""
  bool passed() const { return note.empty() && error <= tolerance; }  ///< false when the error is NaN
};

/// How a difference is measured against the tolerance.
enum class Difference : std::uint8_t {
  relative,  ///< max|a-b| / max|b|; where the reference is all zeros, only zeros pass
  absolute,  ///< max|a-b|
};

/// Arrays compared with a reference file, one row each. A returned row is valid until the next row is added.
class ReferenceReport {
 public:
  /// Adds a row. Integers are subtracted as integers. Arrays of different sizes do not match, whatever the tolerance.
  template <class A, class B>
  ReferenceRow& compare(const std::string& name, std::span<const A> values, std::span<const B> expected,
                        double tolerance, Difference difference = Difference::relative) {
    ReferenceRow& row = add(name, tolerance, difference);
    if (values.size() != expected.size()) {
      row.error = std::numeric_limits<double>::infinity();
      row.note = join(values.size(), " values, the reference has ", expected.size());
      return row;
    }
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
      const double distance = distance_between(values[i], expected[i]);
      if (i > 0 && (std::isnan(row.error) || distance <= row.error)) continue;
      row.error = distance;
      row.worst = static_cast<std::int64_t>(i);
      row.value = static_cast<double>(values[i]);
      row.expected = static_cast<double>(expected[i]);
    }
    if (!row.absolute && row.error != 0) row.error /= largest;
    return row;
  }
  template <class A, class B>
  ReferenceRow& compare(const std::string& name, const std::vector<A>& values, const std::vector<B>& expected,
                        double tolerance, Difference difference = Difference::relative) {
    return compare(name, std::span<const A>(values), std::span<const B>(expected), tolerance, difference);
  }
  /// The same for a dataset of the file, named by its path without the first slash.
  /// errors  data: no such dataset, or one of strings
  template <class A>
  ReferenceRow& compare(const H5File& file, const std::string& dataset, const std::vector<A>& values, double tolerance,
                        Difference difference = Difference::relative) {
    const H5Type type = file.info(dataset).type;
    if (type == H5Type::f32 || type == H5Type::f64)
      return compare(dataset.substr(1), values, file.read<double>(dataset), tolerance, difference);
    return compare(dataset.substr(1), values, file.read<std::int64_t>(dataset), tolerance, difference);
  }
  /// Adds a row without arrays: `note` describes the mismatch; the row passes if it is "".
  ReferenceRow& state(const std::string& name, const std::string& note);

  void append(const ReferenceReport& more) { rows_.insert(rows_.end(), more.rows_.begin(), more.rows_.end()); }
  const std::vector<ReferenceRow>& rows() const { return rows_; }
  /// Whether there is a row, and every row passes.
  bool passed() const { return !rows_.empty() && failed() == 0; }
  std::size_t failed() const;
  /// A line for each row and a last one that counts those that agree; "" without rows.
  std::string text() const;

 private:
  ReferenceRow& add(const std::string& name, double tolerance, Difference difference);
  template <class A, class B>
  static double distance_between(A a, B b) {
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
      return std::abs(static_cast<double>(static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b)));
    else
      return std::abs(static_cast<double>(a) - static_cast<double>(b));
  }
  std::vector<ReferenceRow> rows_;
};

}  // namespace lockstep
