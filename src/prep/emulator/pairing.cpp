/// Pairs the points of two files by their coordinates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "lockstep/base/text.hpp"
#include "prep/emulator/candidates.hpp"

namespace lockstep::prep {

namespace {
using Kind = Coordinate::Kind;

double period_of(const Coordinate& c) { return c.kind == Kind::longitude ? 360 : 0; }

/// How far apart two writings of one coordinate may lie: a tenth of the typical step between neighbours, at most 0.01
/// degrees or five minutes, and at least what f32 rounds away.
double tolerance_of(const Coordinate& c) {
  std::vector<double> steps;
  double largest = 0;
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    if (std::isfinite(c.values[i])) largest = std::max(largest, std::abs(c.values[i]));
    if (i == 0) continue;
    const double step = std::abs(c.values[i] - c.values[i - 1]);
    if (step > 0) steps.push_back(step);
  }
  const bool time = c.kind == Kind::time;
  const double most = time ? 300 : c.kind == Kind::plain ? std::numeric_limits<double>::max() : 0.01;
  const double least = time ? 1 : std::max(2e-7 * largest, 1e-9);
  if (steps.empty()) return time ? most : std::max(least, 1e-4);
  const auto middle = steps.begin() + steps.size() / 2;
  std::ranges::nth_element(steps, middle);
  return std::clamp(*middle / 10, least, std::max(most, least));
}

double distance(const Coordinate& c, double a, double b) {
  return period_of(c) > 0 ? std::abs(std::remainder(a - b, period_of(c))) : std::abs(a - b);
}

std::string value_text(const Coordinate& c, double value, Calendar calendar) {
  return c.kind == Kind::time ? date_text(static_cast<std::int64_t>(value), calendar) : printed("%.7g", value);
}

std::string range_text(const Coordinate& c, Calendar calendar) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double v : c.values) {
    if (!std::isfinite(v)) continue;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  return c.name + " " + value_text(c, least, calendar) + " to " + value_text(c, most, calendar);
}

/// Cells of space and time, wider than the tolerance, that list the points in them.
class Cells {
 public:
  Cells(const std::vector<Coordinate>& points, std::vector<double> tolerance)
      : points_(points), tolerance_(std::move(tolerance)) {
    for (std::size_t k = 0; k < points.size(); ++k) {
      const double width = 16 * tolerance_[k], period = period_of(points[k]);
      width_.push_back(period > 0 ? period / std::floor(period / width) : width);
    }
    const std::size_t n = points.front().values.size();
    cells_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t key = 0;
      bool known = true;
      for (std::size_t k = 0; k < points.size() && known; ++k) {
        known = std::isfinite(points[k].values[i]);
        if (known) key = mix(key, cell(k, points[k].values[i]));
      }
      if (known) cells_.emplace(key, static_cast<std::int64_t>(i));
    }
  }

  /// The points at these coordinates, at most two.
  std::vector<std::int64_t> at(const std::vector<double>& place) const {
    std::vector<std::int64_t> found;
    look(place, 0, 0, found);
    return found;
  }

 private:
  std::int64_t cell(std::size_t k, double value) const {
    const double period = period_of(points_[k]);
    if (period == 0) return static_cast<std::int64_t>(std::floor(value / width_[k]));
    const auto cells = static_cast<std::int64_t>(std::llround(period / width_[k]));
    const auto at = static_cast<std::int64_t>(std::floor((value - period * std::floor(value / period)) / width_[k]));
    return (at % cells + cells) % cells;
  }
  static std::uint64_t mix(std::uint64_t key, std::int64_t cell) {
    return (key ^ static_cast<std::uint64_t>(cell)) * 0x9e3779b97f4a7c15ULL + (key >> 29);
  }
  /// Looks into the one or two cells that the tolerance reaches along each coordinate.
  void look(const std::vector<double>& place, std::size_t k, std::uint64_t key,
            std::vector<std::int64_t>& found) const {
    if (k < place.size()) {
      const std::int64_t low = cell(k, place[k] - tolerance_[k]), high = cell(k, place[k] + tolerance_[k]);
      look(place, k + 1, mix(key, low), found);
      if (high != low) look(place, k + 1, mix(key, high), found);
      return;
    }
    const auto [begin, end] = cells_.equal_range(key);
    for (auto entry = begin; entry != end && found.size() < 2; ++entry) {
      bool near = true;
      for (std::size_t c = 0; c < place.size() && near; ++c)
        near = distance(points_[c], points_[c].values[entry->second], place[c]) <= tolerance_[c];
      if (near) found.push_back(entry->second);
    }
  }

  const std::vector<Coordinate>& points_;
  std::vector<double> tolerance_, width_;
  std::unordered_multimap<std::uint64_t, std::int64_t> cells_;
};

/// The coordinates that both have, in one order.
std::vector<Coordinate> shared(const std::vector<Coordinate>& of, const std::vector<Coordinate>& with) {
  std::vector<Coordinate> out;
  for (const auto& c : of)
    if (std::ranges::any_of(with, [&](const auto& other) { return other.name == c.name; })) out.push_back(c);
  return out;
}
}  // namespace

std::vector<Coordinate> coordinates_of(const FilePoints& points) {
  std::vector<Coordinate> out;
  if (!points.lat.empty() && !points.lon.empty()) {
    out.push_back({"latitude", Kind::latitude, points.lat});
    out.push_back({"longitude", Kind::longitude, points.lon});
  }
  if (points.times.trouble.empty() && !points.times.seconds.empty())
    out.push_back({"time", Kind::time, {points.times.seconds.begin(), points.times.seconds.end()}});
  return out;
}

Coordinate step_coordinate(const Times& times) {
  return {"time step", Kind::plain, {times.step.begin(), times.step.end()}};
}

std::vector<std::int64_t> pair_points(const std::vector<Coordinate>& all_own, const std::vector<Coordinate>& all_other,
                                      Calendar calendar, const std::string& what) {
  const std::vector<Coordinate> own = shared(all_own, all_other), other = shared(all_other, all_own);
  std::vector<double> tolerance;
  for (const auto& c : own) tolerance.push_back(tolerance_of(c));
  const std::size_t n = own.front().values.size();
  const auto equal = [&](std::size_t k, std::size_t i) {
    const double a = own[k].values[i], b = other[k].values[i];
    return (std::isnan(a) && std::isnan(b)) || distance(own[k], a, b) <= tolerance[k];
  };
  std::vector<std::int64_t> partner(n);
  bool in_order = other.front().values.size() == n;
  for (std::size_t i = 0; i < n && in_order; ++i) {
    partner[i] = static_cast<std::int64_t>(i);
    for (std::size_t k = 0; k < own.size() && in_order; ++k) in_order = equal(k, i);
  }
  if (in_order) return partner;

  const auto both = [&] {
    const auto ranges = [&](const std::vector<Coordinate>& of) {
      return listed(of, ", ", [&](const auto& c) { return range_text(c, calendar); });
    };
    return join("; the coordinates are ", ranges(own), " (", n, " points) and ", ranges(other), " (",
                other.front().values.size(), " points)");
  };
  const bool in_space = own.front().kind != Kind::time;
  require_data(in_space, what, ": their positions are not known in both, and their times differ", both(),
               "; give files of the same times, or add latitude and longitude to both");
  const Cells cells(other, tolerance);
  std::vector<std::uint8_t> taken(other.front().values.size(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> place;
    for (const auto& c : own) place.push_back(c.values[i]);
    partner[i] = -1;
    if (!std::ranges::all_of(place, [](double v) { return std::isfinite(v); })) continue;
    const auto found = cells.at(place);
    if (found.size() == 1 && taken[found[0]]++ == 0) {
      partner[i] = found[0];
      continue;
    }
    std::string point;
    for (std::size_t k = 0; k < own.size(); ++k)
      point += (k > 0 ? ", " : "") + own[k].name + " " + value_text(own[k], place[k], calendar);
    throw Error(Fault::data,
                join(what, ": the point at ", point, " of the first has ",
                     found.empty() ? "no partner in the second"
                                   : "a partner that is not the only one of its place in the second",
                     both(), "; give files of one grid and the same times, or interpolate one to the other"));
  }
  return partner;
}

std::vector<double> of_partners(const std::vector<double>& values, const std::vector<std::int64_t>& partner) {
  std::vector<double> out;
  out.reserve(partner.size());
  for (const std::int64_t p : partner) out.push_back(p < 0 ? std::numeric_limits<double>::quiet_NaN() : values[p]);
  return out;
}

void pair_by_index(Candidates& out, const std::string& files, const Grid& own, const Grid& other) {
  out.pairs.push_back(files + " by index");
  out.indexed.push_back(join(files, ", ", dims_text(own.dims, own.shape), " and ", dims_text(other.dims, other.shape)));
}

std::string describe_pairs(const std::vector<std::int64_t>& partner, std::size_t others) {
  const bool ordered = std::ranges::is_sorted(partner);
  return join(ordered ? "in the same order" : "reordered",
              others > partner.size() ? join(", ", others - partner.size(), " points of the second left aside") : "");
}

}  // namespace lockstep::prep
