/// What the times and ids of raw interactions look like, and whether they can be times and ids.
#include <algorithm>

#include "lockstep/base/date_time.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/interaction_lines.hpp"
#include "lockstep/prep/sequences/interactions.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kFrom = 315532800, kUntil = 4102444800;  // 1980 and 2100

bool plausible(std::int64_t seconds) { return seconds >= kFrom && seconds < kUntil; }

/// The unit that makes times between 1980 and 2100 of all these numbers, "" if there is none.
std::string fitting_unit(std::int64_t first, std::int64_t last) {
  for (const TimeUnit& unit : kTimeUnits) {
    const auto fits = [&](std::int64_t number) {
      Moment moment;
      return read_time(std::to_string(number), moment, unit) == TimeFault::none && plausible(moment.seconds);
    };
    if (fits(first) && fits(last)) return unit.name;
  }
  return "";
}
}  // namespace

void summarise_times(const Interactions& raw, const std::string& unit, Summary& summary) {
  if (!raw.has_time) return;
  std::vector<std::int64_t> sorted = raw.time;
  std::ranges::sort(sorted);
  const auto outside = std::ranges::count_if(sorted, [](std::int64_t time) { return !plausible(time); });
  const bool whole_days = std::ranges::all_of(sorted, [](std::int64_t time) { return time % 86400 == 0; });
  const std::int64_t first = sorted.front(), last = sorted.back(), n = std::ssize(sorted);
  const std::int64_t distinct = std::ranges::unique(sorted).begin() - sorted.begin();
  const std::string range = join(date_time_text(first), " to ", date_time_text(last));
  const std::string numbers =
      join("numbers, taken as ", unit == "yyyymmdd" ? "dates " : "", unit, unit == "yyyymmdd" ? "" : " since 1970");
  const bool all_dates = raw.counts.dates >= n, no_dates = raw.counts.dates == 0;
  summary.line("raw times", range, " UTC, ", distinct, " distinct; ",
               all_dates  ? "dates"
               : no_dates ? numbers
                          : "dates and " + numbers);

  constexpr std::int64_t kFew = 100;
  const bool few = distinct < kFew && n > 10 * distinct && !whole_days && !all_dates;
  if (outside == 0 && !few) return;
  const std::string fitting = unit == "s" && no_dates ? fitting_unit(first, last) : "";
  const std::string what =
      outside > 0 ? join(outside, " of ", n, " times are before 1980 or after 2100") : "few different times";
  std::string advice =
      "if they are no times but ratings, counts or positions, leave them aside: --columns user,item,rating, or with a "
      "header --time-column -";
  if (outside > 0 && outside < n)
    advice = "if these are missing or in another unit, leave their lines out, such as by --where 'time >= 1980-01-01'";
  if (outside > 0 && !fitting.empty()) advice = join("with --time-unit ", fitting, " they lie between 1980 and 2100");
  summary.warning(what, ": they run from ", range, " and have ", distinct, " distinct values; ", advice);
}

void summarise_ids(const IdTable& table, const std::vector<std::int32_t>& lines, const char* what, Summary& summary) {
  static const std::vector<std::string> kMissing = {"na", "n/a", "nan", "none", "null", "\\n", "undefined", "unknown"};
  for (std::size_t entry = 0; entry < table.size(); ++entry) {
    std::string word = table.id(entry);
    if (word.size() > 9) continue;
    std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (std::ranges::find(kMissing, word) == kMissing.end()) continue;
    summary.warning(std::ranges::count(lines, static_cast<std::int32_t>(entry)), " of ", lines.size(),
                    " interactions have the ", what, " '", table.id(entry),
                    "'; if it stands for a missing value, leave them out: --where 'COLUMN != ", table.id(entry), "'");
  }
}

}  // namespace lockstep::prep
