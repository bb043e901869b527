#include "prep/har/har_times.hpp"

#include <algorithm>
#include <set>

#include "lockstep/base/date_time.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

namespace {
constexpr double kGapSteps = 5, kNear = 0.05;
constexpr double kFewFalls = 1e-3;  // of the samples: new sessions, not a table out of order
struct Unit {
  const char* name;
  double seconds;
};
constexpr Unit kUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
const char* const kCounts = "samples";

bool is_near(double hz, double rate) { return std::abs(hz / rate - 1) <= kNear; }

/// The date of a time in seconds since 1970, if it is a plausible one, otherwise the number.
std::string moment_text(double seconds) {
  constexpr double k1980 = 315532800, k2100 = 4102444800;
  if (seconds >= k1980 && seconds < k2100) return date_time_text(static_cast<std::int64_t>(seconds));
  return join(printed("%.9g", seconds), " s");
}
}  // namespace

std::vector<std::int64_t> SampleTimes::lacking(const TextTable& table, const std::vector<bool>& joined) {
  std::vector<std::int64_t> out(table.rows(), 0);
  const std::vector<double>& t = table.times;
  if (t.empty()) return out;
  ++tables_;
  column_ = table.time_name;
  // NaN where the row before has no time, or is of another activity or subject.
  std::vector<double> step(t.size(), std::nan("")), rises;
  std::int64_t falls = 0, steps = 0;
  for (std::size_t i = 1; i < t.size(); ++i) {
    if (!joined[i]) continue;
    step[i] = t[i] - t[i - 1];
    steps += std::isfinite(step[i]);
    falls += step[i] < 0;
    repeats_ += step[i] == 0;
    if (step[i] > 0) rises.push_back(step[i]);
    if (step[i] < 0 && falls_ + falls == 1) first_fall_ = table.line_of(i);
  }
  falls_ += falls;
  steps_ += steps;
  if (rises.empty()) {
    ++constant_;
    return out;
  }
  const auto middle = rises.begin() + rises.size() / 2;
  std::ranges::nth_element(rises, middle);
  const double typical = *middle;
  double sum = 0, count = 0;
  for (const double s : step)
    if (s >= 0 && s <= 1.75 * typical) sum += s, count += 1;
  const double interval = sum / count;
  Unit unit = kUnits[0];
  const auto off = [&](const Unit& u) { return std::abs(std::log(rate_ * interval * u.seconds)); };
  if (!table.dates) unit = *std::ranges::min_element(kUnits, {}, off);
  if (!table.dates && interval == 1 && !is_near(1 / unit.seconds, rate_)) unit = {kCounts, 1 / rate_};
  recordings_.push_back({table.path.filename().string(), unit.name, 1 / (interval * unit.seconds)});
  for (const double time : t) {
    first_ = std::fmin(first_, time * unit.seconds);
    last_ = std::fmax(last_, time * unit.seconds);
  }

  const bool ordered = static_cast<double>(falls) <= std::max(1.0, 10 * kFewFalls * static_cast<double>(steps));
  for (std::size_t i = 1; i < t.size() && ordered; ++i) {
    if (step[i] < 0) out[i] = 1;
    if (!(step[i] > std::max(kGapSteps * interval, 1.5 * typical))) continue;
    out[i] = std::max<std::int64_t>(1, std::llround(std::min(step[i] / interval, 1e12)) - 1);
    if (gaps_++ == 0) first_gap_ = join(printed("%.4g", step[i] * unit.seconds), " s before ", table.line_of(i));
    gap_seconds_ += step[i] * unit.seconds;
  }
  return out;
}

void SampleTimes::report(Summary& summary) const {
  if (tables_ == 0) {
    summary.line("rate", rate_, " Hz as given; no column of times to compare it with");
    return;
  }
  if (recordings_.empty()) {
    summary.warning("the times of column ", column_, " are the same in all samples: they tell neither rate nor gaps");
    return;
  }
  std::set<std::string> units;
  for (const auto& r : recordings_) units.insert(r.unit);
  const std::vector<std::string> unit_names(units.begin(), units.end());
  if (units.size() == 1 && *units.begin() == kCounts) {
    summary.line("time", "column ", column_, " counts samples; it is no channel");
    summary.line("rate", rate_, " Hz as given");
  } else {
    summary.line("time", "column ", column_, " in ", listed(unit_names), ", from ", moment_text(first_), " to ",
                 moment_text(last_), "; it is no channel");
    std::vector<double> hz;
    for (const auto& r : recordings_) hz.push_back(r.hz);
    std::ranges::sort(hz);
    summary.line("rate", rate_, " Hz as given, ", printed("%.4g", hz[hz.size() / 2]), " Hz by the times",
                 hz.size() > 1 ? printed(" (%.4g to %.4g)", hz.front(), hz.back()) : "");
  }
  if (constexpr double k2100 = 4102444800; last_ >= k2100)
    summary.warning("the times of column ", column_, " in ", listed(unit_names), " reach ", printed("%.6g", last_),
                    " s, later than the year 2100: the rate, ", rate_, " Hz, does not fit them");
  if (units.size() > 1)
    summary.warning("the times of column ", column_, " are in different units: ", listed(unit_names),
                    "; check the recordings");
  std::vector<std::string> others;
  for (const auto& r : recordings_)
    if (!is_near(r.hz, rate_)) others.push_back(join(r.name, " ", printed("%.4g", r.hz), " Hz"));
  if (!others.empty()) {
    const std::size_t count = others.size();
    if (count > 3) others.resize(3), others.push_back(join("and ", count - 3, " more"));
    summary.warning("--rate ", rate_, " is not the rate of ", count, " of ", recordings_.size(),
                    " recordings by their times in column ", column_, ": ", listed(others),
                    "; give the true rate, or resample them");
  }
  if (gaps_ > 0)
    summary.line("gaps", gaps_, " within recordings, ", printed("%.4g", gap_seconds_), " s in all, the first of ",
                 first_gap_, "; no window lies across them");
  const auto share = [&](std::int64_t n) { return static_cast<double>(n) / static_cast<double>(steps_); };
  if (share(falls_) > kFewFalls)
    summary.warning(
        "the times of column ", column_, " fall at ", falls_, " of ", steps_, " samples, first at ", first_fall_,
        ": windows end there if these are a few new sessions; otherwise sort the table, or name another column "
        "with --time-column");
  else if (falls_ > 0)
    summary.note("the times of column ", column_, " fall at ", falls_, " samples, first at ", first_fall_,
                 "; a new session begins there");
  if (share(repeats_) > 0.1)
    summary.warning("the times of column ", column_, " do not rise at ", repeats_, " of ", steps_,
                    " samples: the clock is coarse, or samples are repeated");
  else if (repeats_ > 0)
    summary.note("the times of column ", column_, " repeat at ", repeats_, " of ", steps_, " samples");
  if (constant_ > 0)
    summary.warning("the times of column ", column_, " are the same in all samples of ", constant_, " of ", tables_,
                    " recordings");
}

}  // namespace lockstep::prep
