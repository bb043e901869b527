#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/text.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/grid.hpp"
#include "lockstep/prep/emulator/selection.hpp"
#include "lockstep/prep/files.hpp"

namespace lockstep::prep {

namespace {

constexpr std::uint8_t kTrain = 0, kValidation = 1, kTest = 2;
constexpr std::int64_t kDay = 86400;

std::vector<std::int64_t> rows_left(const std::vector<std::uint8_t>& split) {
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < split.size(); ++row)
    if (split[row] == kTrain) rows.push_back(static_cast<std::int64_t>(row));
  return rows;
}

void mark(std::vector<std::uint8_t>& split, std::int64_t row, std::uint8_t part) { split[row] = part; }

void mark_random(std::vector<std::uint8_t>& split, std::int64_t count, std::uint8_t part, const Selection& s,
                 Site site) {
  const auto left = rows_left(split);
  for (const std::int64_t i : draw_subset(std::ssize(left), count, s.seed, site)) mark(split, left[i], part);
}

/// Marks whole groups in the given order until at least `count` rows are marked. At least one group stays for training.
void mark_groups(std::vector<std::uint8_t>& split, const std::vector<std::vector<std::int64_t>>& groups,
                 std::int64_t count, std::uint8_t part, const char* what) {
  require_data(groups.size() >= 2, "splitting rows by ", what, ": all rows that are left are in one, so no other part ",
               "can have one of its own; give more data, or choose another split.by");
  std::int64_t marked = 0;
  for (std::size_t g = 0; g + 1 < groups.size() && marked < count; ++g) {
    for (const std::int64_t row : groups[g]) mark(split, row, part);
    marked += std::ssize(groups[g]);
  }
}

std::vector<std::vector<std::int64_t>> group_by(const std::vector<std::int64_t>& rows, auto key) {
  std::map<std::int64_t, std::vector<std::int64_t>> groups;
  for (const std::int64_t row : rows) groups[key(static_cast<std::size_t>(row))].push_back(row);
  std::vector<std::vector<std::int64_t>> out;
  for (auto& [_, members] : groups) out.push_back(std::move(members));
  return out;
}

void mark_fraction(std::vector<std::uint8_t>& split, double fraction, std::uint8_t part, const EmulatorSet& rows,
                   const std::vector<std::int64_t>& steps, const Selection& s, Site site) {
  if (fraction <= 0) return;
  const auto left = rows_left(split);
  const auto count = static_cast<std::int64_t>(static_cast<double>(left.size()) * fraction);
  require_data(count > 0, "splitting rows: a fraction of ", fraction, " of ", left.size(),
               " rows is none; choose a larger one, or 0 for no such rows");
  if (s.split_by == "random") {
    mark_random(split, count, part, s, site);
  } else if (s.split_by == "time") {
    auto groups = group_by(left, [&](std::size_t row) { return steps[row]; });
    std::reverse(groups.begin(), groups.end());  // the latest first
    mark_groups(split, groups, count, part, "time step");
  } else {
    const auto groups = group_by(left, [&](std::size_t row) {
      return static_cast<std::int64_t>(std::floor(static_cast<double>(rows.lat[row]) / s.block_degrees));
    });
    std::vector<std::vector<std::int64_t>> shuffled;
    for (const std::int64_t g : draw_permutation(std::ssize(groups), s.seed, site)) shuffled.push_back(groups[g]);
    mark_groups(split, shuffled, count, part, "band of latitude");
  }
}

}  // namespace

std::vector<std::uint8_t> split_rows(const EmulatorSet& rows, const Selection& s, const Candidates& candidates,
                                     const std::vector<std::int64_t>& steps) {
  const auto& files = candidates.files;
  const std::size_t n = rows.cell.size();
  std::vector<std::uint8_t> split(n, kTrain);
  if (!s.test_files.empty()) {
    for (const auto& pattern : s.test_files) {
      std::int64_t found = 0;
      for (std::size_t f = 0; f < files.size(); ++f) {
        if (!matches_pattern(files[f], pattern)) continue;
        ++found;
        for (std::size_t row = 0; row < n; ++row)
          if (rows.source[row] == static_cast<std::int32_t>(f)) split[row] = kTest;
      }
      require_usage(found > 0, "option split.test_files: no input file matches '", pattern, "'");
    }
  }
  for (const auto& day : s.test_days) {
    require_data(candidates.dated, "option split.test_days: the files give no dates: ", listed(candidates.undated),
                 "; name whole files with split.test_files, or use split.by = time");
    const std::int64_t wanted = parse_day(day, candidates.calendar);
    std::int64_t found = 0;
    for (std::size_t row = 0; row < n; ++row) {
      const std::int64_t t = rows.time[row];
      if ((t >= 0 ? t / kDay : -((kDay - 1 - t) / kDay)) != wanted) continue;
      split[row] = kTest;
      ++found;
    }
    const auto [first, last] = std::ranges::minmax(rows.time);
    require_data(found > 0, "option split.test_days: no row is of ", day, "; the rows are of ",
                 date_text(first, candidates.calendar), " to ", date_text(last, candidates.calendar));
  }
  mark_fraction(split, s.test_split, kTest, rows, steps, s, "prep.test");
  mark_fraction(split, s.validation_split, kValidation, rows, steps, s, "prep.validation");
  require_data(std::find(split.begin(), split.end(), kTrain) != split.end(), "splitting rows: none of ", n,
               " is left for training");
  return split;
}

}  // namespace lockstep::prep
