#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/prep/har/har_signal.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// What the times of the samples say about recordings: the rate, and where samples are lacking.
///
/// The interval between samples is the mean of the steps up to 1.75 times the median of the steps that are not 0, so
/// that neither gaps nor a coarse clock shift it. The unit of plain numbers is the one of s, ms, us, ns that comes
/// nearest to the given rate; steps of exactly 1 that fit none count samples.
class SampleTimes {
 public:
  explicit SampleTimes(double rate) : rate_(rate) {}
  /// For each row, how many samples lack before it, at least 1 where time falls; 0: it follows the row before.
  /// A gap is a step of more than five intervals. joined[row]: the row continues the activity of the row before.
  std::vector<std::int64_t> lacking(const TextTable& table, const std::vector<bool>& joined);
  /// Adds lines about times, rate and gaps, and warnings: another rate than the given one, times that fall or repeat.
  void report(Summary& summary) const;

 private:
  struct Recording {
    std::string name, unit;
    double hz;
  };
  double rate_;
  std::string column_, first_gap_, first_fall_;
  std::vector<Recording> recordings_;
  double first_ = std::nan(""), last_ = std::nan(""), gap_seconds_ = 0;
  std::int64_t steps_ = 0, gaps_ = 0, falls_ = 0, repeats_ = 0, tables_ = 0, constant_ = 0;
};

}  // namespace lockstep::prep
