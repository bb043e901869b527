#include "prep/har/har_plausible.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/text.hpp"
#include "lockstep/base/units.hpp"
#include "lockstep/prep/har/har_signal.hpp"

namespace lockstep::prep {

namespace {

/// The channels of a sensor: x, y, z, or one channel.
struct Sensor {
  std::size_t first = 0, axes = 1;
  std::string name;
};

std::vector<Sensor> sensors_of(const HarSet& set) {
  const auto& names = set.channel_names;
  const auto axis = [&](std::size_t c) {
    return c < names.size() ? static_cast<char>(std::tolower(static_cast<unsigned char>(names[c].back()))) : '\0';
  };
  const auto stem = [&](std::size_t c) { return names[c].substr(0, names[c].size() - 1); };
  const bool numbered = names.size() % 3 == 0 && names.front().starts_with("channel_");
  std::vector<Sensor> sensors;
  for (std::size_t c = 0; c < names.size(); c += sensors.back().axes) {
    const bool triad = numbered || (axis(c) == 'x' && axis(c + 1) == 'y' && axis(c + 2) == 'z' &&
                                    stem(c) == stem(c + 1) && stem(c) == stem(c + 2));
    sensors.push_back(triad ? Sensor{c, 3, listed({names[c], names[c + 1], names[c + 2]})} : Sensor{c, 1, names[c]});
  }
  return sensors;
}

/// The mean length of a sensor's vector in a window.
double magnitude(const HarSet& set, const Sensor& sensor, std::int64_t n) {
  const auto L = static_cast<std::size_t>(set.length);
  const auto x = set.window(n).subspan(sensor.first * L, sensor.axes * L);
  double sum = 0;
  for (std::size_t t = 0; t < L; ++t) {
    double square = 0;
    for (std::size_t axis = 0; axis < sensor.axes; ++axis) square += x[axis * L + t] * x[axis * L + t];
    sum += std::sqrt(square);
  }
  return sum / static_cast<double>(L);
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

constexpr double kGravity = 9.80665;
struct Factor {
  double value;
  const char *large, *small;  ///< units: the numbers in `large` are `value` times those in `small`
};
constexpr Factor kFactors[] = {
    {kGravity, "m/s2", "g"}, {1000, "mg", "g"}, {1000 / kGravity, "mg", "m/s2"}, {57.29577951308232, "deg/s", "rad/s"}};
bool is_gravity(double magnitude) {
  return std::ranges::any_of(std::initializer_list<double>{1, kGravity, 1000},
                             [&](double g) { return std::abs(std::log(magnitude / g)) < std::log(1.25); });
}

std::string shortened(std::vector<std::string> names) {
  constexpr std::size_t kMost = 5;
  if (const std::size_t count = names.size(); count > kMost) {
    names.resize(kMost);
    names.push_back(join("and ", count - kMost, " more"));
  }
  return listed(names);
}

/// A class of windows of one subject or recording, by the logarithm of its sensor's mean magnitude.
using Sizes = std::map<std::int64_t, std::map<std::int32_t, double>>;  // by subject or recording, by class

Sizes sizes_of(const HarSet& set, const Sensor& sensor, const std::vector<std::int32_t>& source) {
  std::map<std::int64_t, std::map<std::int32_t, std::pair<double, std::int64_t>>> sums;
  for (std::int64_t n = 0; n < set.windows(); ++n) {
    if (source[n] < 0) continue;
    auto& [sum, count] = sums[source[n]][set.labels[n]];
    sum += magnitude(set, sensor, n);
    ++count;
  }
  Sizes sizes;
  for (const auto& [id, classes] : sums)
    for (const auto& [label, of] : classes)
      if (of.first > 0) sizes[id][label] = std::log(of.first / static_cast<double>(of.second));
  return sizes;
}

struct Oddity {
  const Factor* factor;
  bool larger;  ///< the others times the factor
  bool operator<(const Oddity& o) const { return std::pair(factor, larger) < std::pair(o.factor, o.larger); }
};

/// The sources whose sizes are those of the others times a factor.
std::map<Oddity, std::vector<std::int64_t>> odd_sources(const Sizes& sizes) {
  struct Others {
    double size = 0;
    std::size_t sources = 0;
    bool steady = false;
  };
  std::map<std::int32_t, std::vector<double>> by_class;
  for (const auto& [id, classes] : sizes)
    for (const auto& [label, size] : classes) by_class[label].push_back(size);
  std::map<std::int32_t, Others> others;
  for (auto& [label, all] : by_class) {
    Others& o = others[label];
    o.sources = all.size();
    o.size = lower_median(all);
    for (double& size : all) size = std::abs(size - o.size);
    o.steady = lower_median(all) < std::log(1.25) && (all.size() >= 4 || is_gravity(std::exp(o.size)));
    // Of two sources either may be the odd one, so one of them must have the magnitude of gravity in both.
  }
  std::map<Oddity, std::vector<std::int64_t>> odd;
  for (const auto& [id, classes] : sizes) {
    for (const Factor& factor : kFactors) {
      for (const bool larger : {true, false}) {
        const double wanted = (larger ? 1 : -1) * std::log(factor.value);
        double sum = 0, count = 0;
        bool close = true, far = false, steady = true;
        for (const auto& [label, size] : classes) {
          const Others& o = others[label];
          if (o.sources < 2) continue;
          const double off = size - o.size - wanted;
          sum += off, count += 1;
          close = close && std::abs(off) < std::log(1.15);
          far = far || std::abs(off) > std::log(2.5) || o.sources < 3;
          steady = steady && o.steady;
        }
        if (count > 0 && ((close && steady) || (count > 1 && !far && std::abs(sum / count) < std::log(1.3))))
          odd[{&factor, larger}].push_back(id);
      }
    }
  }
  return odd;
}

}  // namespace

void look_at_classes(const HarSet& set, Summary& summary) {
  std::map<std::string, std::vector<std::string>> alike;
  for (const auto& name : set.class_names) {
    std::string key;
    for (const char c : name) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isspace(letter) == 0 && c != '_' && c != '-') key += static_cast<char>(std::tolower(letter));
    }
    alike[key].push_back("'" + name + "'");
    if (is_missing(name) || key == "null" || key == "none")
      summary.warning("class '", name, "' looks like a missing label; --skip-labels ", name, " leaves its samples out");
  }
  for (const auto& [key, names] : alike)
    if (names.size() > 1)
      summary.warning("classes ", listed(names), " differ by case, blanks, _ or - only; give them one name");
}

void look_at_units(const HarSet& set, Summary& summary) {
  if (set.channel_units.empty()) return;
  struct Range {
    const char* unit;
    double most;     ///< beyond the range of common sensors
    bool fractions;  ///< measured values are no whole numbers
    double gravity;  ///< of a sensor at rest; 0: no acceleration
  };
  constexpr Range kRanges[] = {{"g", 40, true, 1},
                               {"m/s2", 400, true, kGravity},
                               {"mg", 4e4, false, 1000},
                               {"rad/s", 60, true, 0},
                               {"deg/s", 4000, false, 0}};
  for (const Sensor& sensor : sensors_of(set)) {
    const std::string& unit = set.channel_units[sensor.first];
    const auto* range = std::ranges::find_if(kRanges, [&](const Range& r) { return same_units(unit, r.unit); });
    if (range == std::end(kRanges)) continue;
    double least = INFINITY, most = -INFINITY;
    bool whole = true;
    std::vector<double> sizes;
    const auto L = static_cast<std::size_t>(set.length);
    for (std::int64_t n = 0; n < set.windows(); ++n) {
      for (const double x : set.window(n).subspan(sensor.first * L, sensor.axes * L)) {
        least = std::min(least, x), most = std::max(most, x);
        whole = whole && x == std::floor(x);
      }
      sizes.push_back(magnitude(set, sensor, n));
    }
    const auto found = [&](const std::string& why) {
      summary.warning(sensor.name, ": ", printed("%.6g to %.6g", least, most), " ", unit, ", ", why,
                      "; convert them, or name their unit with --units");
    };
    if (whole && range->fractions && most > least) {
      found("are whole numbers only, as a converter counts");
    } else if (std::max(-least, most) > range->most) {
      found(join("more than sensors measure (", range->most, " ", unit, ")"));
    } else if (range->gravity > 0 && sensor.axes == 3) {
      // With gravity, sensors that are moved have its magnitude in most windows.
      std::ranges::sort(sizes);
      const double low = sizes[sizes.size() / 10], middle = sizes[sizes.size() / 2];
      for (const Range& other : kRanges) {
        const auto near = [&](double size) { return std::abs(std::log(size / other.gravity)) < std::log(1.25); };
        if (&other != range && other.gravity > 0 && near(low) && near(middle))
          found(join("with a typical length of ", printed("%.3g", middle), ", that of gravity in ", other.unit));
      }
    }
  }
}

void compare_scales(const HarSet& set, Summary& summary) {
  for (const Sensor& sensor : sensors_of(set)) {
    std::set<std::int32_t> odd_subjects;
    const auto warn = [&](const char* what, const std::vector<std::int32_t>& source, const auto& name) {
      for (const auto& [oddity, ids] : odd_sources(sizes_of(set, sensor, source))) {
        std::vector<std::string> names;
        for (const std::int64_t id : ids) {
          const auto at = static_cast<std::size_t>(std::ranges::find(source, id) - source.begin());
          if (&source != &set.subject && odd_subjects.contains(set.subject[at])) continue;
          if (&source == &set.subject) odd_subjects.insert(set.subject[at]);
          names.push_back(name(static_cast<std::int32_t>(id)));
        }
        if (names.empty()) continue;
        const Factor& f = *oddity.factor;
        summary.warning(sensor.name, " of ", what, names.size() == 1 ? " " : "s ", shortened(names),
                        oddity.larger ? " are about " : " are about 1/", printed("%.4g", f.value),
                        " times those of the others in the same classes, as ", oddity.larger ? f.large : f.small,
                        " and ", oddity.larger ? f.small : f.large, " differ: convert them to one unit");
      }
    };
    warn("subject", set.subject, [&](std::int32_t s) { return set.subject_name(s); });
    warn("recording", set.recording, [&](std::int32_t r) {
      const auto file = static_cast<std::size_t>(r) + 1;  // the first file is the manifest
      return set.source == "har-manifest" && file < set.files.size() ? set.files[file] : std::to_string(r);
    });
  }
}

}  // namespace lockstep::prep
