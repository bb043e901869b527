#pragma once
#include <string>
#include <vector>

namespace lockstep::apps {

/// The values of one key that a search tries:
///
///   choice(a, b, c)   these
///   range(n)          0 .. n-1;  range(a .. b)  the whole numbers a .. b
///   uniform(a .. b)   numbers; a grid needs how many: uniform(a .. b, 5)
///   log(a .. b)       numbers whose logarithms are uniform
///
/// Numbers have four significant digits; those of a key of whole numbers are rounded to whole ones.
class SearchRange {
 public:
  /// whole   whether the key has whole numbers
  /// errors  Error (usage): names the key, the text and what is allowed
  SearchRange(std::string key, const std::string& text, bool whole);
  const std::string& key() const { return key_; }
  /// The number of values of a grid. errors  Error (usage): it is not given
  double count() const;
  /// Value i of a grid, 0 <= i < count().
  std::string value(std::size_t i) const;
  /// The value at a place u of [0, 1).
  std::string at(double u) const;
  /// The place of a value on an axis, in [0, 1].
  double place(const std::string& value) const;
  /// The least and the largest value, or all of a choice.
  std::vector<std::string> ends() const { return is_interval() ? std::vector{at(0), at(1)} : list_; }
  /// Whether the values are numbers of an interval, not a list.
  bool is_interval() const { return list_.empty(); }

 private:
  std::string key_;
  bool whole_, log_ = false;
  std::vector<std::string> list_;
  double low_ = 0, high_ = 0, points_ = 0;
};

}  // namespace lockstep::apps
