#include "lockstep/prep/emulator/selection.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <tuple>

#include "lockstep/base/text.hpp"
#include "lockstep/base/units.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/columns.hpp"
#include "lockstep/prep/files.hpp"

namespace lockstep::prep {

const CandidateColumn& Candidates::column(const std::string& name) const {
  const auto found = std::ranges::find(columns, name, &CandidateColumn::name);
  require(found != columns.end(), "column '", name, "' was not read");
  return *found;
}

std::vector<std::string> Selection::columns_needed() const {
  std::vector<std::string> all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  if (needs_aice()) all.emplace_back("aice");
  if (synthetic_label) all.emplace_back("sst");
  std::vector<std::string> once;
  for (const auto& name : all)
    if (std::ranges::find(once, name) == once.end()) once.push_back(name);
  return once;
}

void add_selection_options(Options& o, Selection& s, const std::vector<std::string>& default_inputs,
                           const std::vector<std::string>& default_outputs) {
  o.section("variables", "Columns");
  o.add("variables.input_variables,inputs=NAME,...", &s.inputs, default_inputs, "input columns by short name");
  o.add("variables.output_variables,outputs=NAME,...", &s.outputs, default_outputs, "output columns by short name");
  o.choice("variables.missing,missing", &s.missing, "error", {"error", "zero"},
           "what to do when a file lacks a column: fail, or fill it with zeros");
  o.choice("variables.constant_outputs", &s.constant_outputs, "error", {"error", "keep"},
           "what to do when an output column is constant in the training rows: fail, or keep it");

  o.add("variables.units,units=SHORT=UNITS,...", &s.units, {},
        "units of columns, if the files state none or wrong ones");

  o.section("domain", "Which points become rows");
  o.choice("domain.mask_mode,mask-mode", &s.mask_mode, "both", {"sea_ice", "ocean", "both"},
           "sea_ice keeps points with aice > threshold, ocean those with aice < threshold, both all points");
  o.add("domain.min_ice_concentration,min-ice", &s.min_ice, 0.0, fraction, "threshold of domain.mask_mode");
  o.add("domain.ice_ge,ice-ge", &s.ice_ge, false,
        "sea_ice keeps points with aice >= threshold; with threshold 0 that is every point");
  o.choice("domain.pole,pole", &s.pole, "all", {"all", "north", "south", "both"},
           "north keeps points with lat > domain.lat_min, south those with lat < -domain.lat_min, both keeps both");
  o.add("domain.lat_min,lat-min", &s.lat_min, 40.0, between(0, 90), "latitude limit of domain.pole, degrees");
  o.add("domain.pole_clean,pole-clean", &s.pole_clean, false, "domain.pole also requires 0 < aice <= 1");
  o.add("domain.use_synthetic_data,synthetic-label", &s.synthetic_label, false,
        "replace aice by 0.9 where sst < -1.4 and by 0 elsewhere, before the selection");

  o.section("rows", "How many rows");
  o.add("rows.max_patterns,max-patterns", &s.max_patterns, std::int64_t{400000}, at_least(1), "maximum number of rows");
  o.choice("rows.subsample,subsample", &s.subsample, "random", {"first", "random", "stride"},
           "which rows to keep if there are more: the first in file order, random ones, or evenly spaced ones");
  o.add("rows.thin_fraction,thin-fraction", &s.thin_fraction, 1.0,
        Check{"> 0 and <= 1", [](long double v) { return v > 0 && v <= 1; }},
        "keep this fraction of the remaining rows, chosen at random");

  o.section("split", "Training, validation and test rows");
  o.add("split.val_fraction,val-fraction,split.validation_split,validation-split", &s.validation_split, 0.1, below_one,
        "validation rows, as a fraction of the rows that are not test rows");
  o.add("split.test_fraction,test-fraction,split.test_split,test-split", &s.test_split, 0.0, below_one,
        "test rows, as a fraction of all rows");
  o.choice("split.by", &s.split_by, "random", {"random", "time", "lat-block"},
           "split off random rows, whole time steps (the last ones), or whole bands of latitude; random rows leave "
           "similar, neighbouring points in different parts");
  o.add("split.block_degrees,block-degrees", &s.block_degrees, 5.0, between(0.001, 180),
        "width of the bands of split.by = lat-block, degrees");
  o.add("split.test_files,test-files=FILE,...", &s.test_files, {},
        "the rows of these files (names or patterns) are the test rows");
  o.add("split.test_days,test-days=YYYY-MM-DD,...", &s.test_days, {}, "the rows of these days are the test rows");

  o.section("moments", "Normalisation");
  o.choice("moments.rows,moments", &s.moments, "train", {"train", "all"},
           "rows from which mean and standard deviation are computed");
  o.section("run", "Run");
  o.add("run.seed,seed", &s.seed, std::uint64_t{0}, "seed of every random choice");
}

void check_selection(const Selection& s) {
  require_usage(!s.inputs.empty(), "option variables.input_variables: at least one input is needed");
  require_usage(!s.outputs.empty(), "option variables.output_variables: at least one output is needed");
  for (const auto* list : {&s.inputs, &s.outputs})
    for (auto at = list->begin(); at != list->end(); ++at)
      require_usage(!at->empty() && std::find(list->begin(), at, *at) == at, "option variables: column '", *at,
                    "' is named twice or empty");
  for (const auto& name : s.outputs)
    require_usage(std::ranges::find(s.inputs, name) == s.inputs.end(), "option variables: '", name,
                  "' is both an input and an output");
  for (const auto& [name, units] : parse_names(s.units, "variables.units")) {
    const bool known =
        std::ranges::find(s.inputs, name) != s.inputs.end() || std::ranges::find(s.outputs, name) != s.outputs.end();
    require_usage(known, "option variables.units: '", name, "' is neither an input nor an output");
  }
  const int kinds = (s.test_split > 0) + !s.test_files.empty() + !s.test_days.empty();
  require_usage(kinds <= 1, "options split.test_fraction, split.test_files, split.test_days: give one of them");
}

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Keeps the points for which `keep` holds. errors  data: this drops the last points
std::int64_t narrow(std::vector<std::int64_t>& points, const std::string& reason, auto keep) {
  const std::size_t before = points.size();
  std::erase_if(points, [&](std::int64_t p) { return !keep(static_cast<std::size_t>(p)); });
  require_data(!points.empty(), "selecting rows: none of ", before, " points ", reason);
  return std::ssize(points);
}

std::vector<double> synthetic_aice(const std::vector<double>& sst) {
  constexpr double kFreezing = -1.4, kIce = 0.9;
  std::vector<double> aice(sst.size());
  for (std::size_t i = 0; i < sst.size(); ++i)
    aice[i] = std::isfinite(sst[i]) ? (sst[i] < kFreezing ? kIce : 0.0) : kNan;
  return aice;
}

void keep_indices(std::vector<std::int64_t>& points, const std::vector<std::int64_t>& chosen) {
  std::vector<std::int64_t> kept;
  kept.reserve(chosen.size());
  for (const std::int64_t i : chosen) kept.push_back(points[i]);
  points = std::move(kept);
}

void subsample(std::vector<std::int64_t>& points, const Selection& s) {
  const auto n = std::ssize(points);
  if (n > s.max_patterns) {
    if (s.subsample == "random") {
      keep_indices(points, draw_subset(n, s.max_patterns, s.seed, "prep.subsample"));
    } else if (s.subsample == "stride") {
      std::vector<std::int64_t> chosen;
      for (std::int64_t i = 0; i < s.max_patterns; ++i)
        chosen.push_back(static_cast<std::int64_t>(static_cast<uint128>(i) * static_cast<std::uint64_t>(n) /
                                                   static_cast<std::uint64_t>(s.max_patterns)));
      keep_indices(points, chosen);
    } else {
      points.resize(s.max_patterns);
    }
  }
}

/// The units of a column: the user's, otherwise the files'.
std::string units_of(const CandidateColumn& column, const Selection& s) {
  const auto given = parse_names(s.units, "variables.units");
  const auto found = given.find(column.name);
  return found != given.end() ? found->second : column.units;
}

ColumnNames names_of(const Candidates& c, const Selection& s, const std::vector<std::string>& wanted) {
  ColumnNames out;
  out.names = wanted;
  for (const auto& name : wanted) {
    const CandidateColumn& column = c.column(name);
    out.cf.push_back(column.cf);
    out.units.push_back(units_of(column, s));
    out.level.push_back(column.level);
  }
  return out;
}

/// What 1 is in the units of aice: the options state fractions, and a column may be in percent.
double whole_ice(const Candidates& c, const Selection& s) {
  return !s.synthetic_label && same_units(units_of(c.column("aice"), s), "%") ? 100 : 1;
}

/// "ocean" or "atmosphere" when all inputs share it, otherwise one word per input.
std::string input_source(const Candidates& c, const std::vector<std::string>& inputs) {
  std::vector<std::string> sides;
  for (const auto& name : inputs) sides.push_back(c.column(name).side);
  if (std::ranges::all_of(sides, [&](const auto& side) { return side == sides.front(); })) return sides.front();
  return listed(sides, ",");
}

}  // namespace

EmulatorSet select_rows(const Candidates& c, const Selection& s, SelectionReport& report) {
  const std::vector<double> synthetic =
      s.synthetic_label ? synthetic_aice(c.column("sst").values) : std::vector<double>{};
  const auto column = [&](const std::string& name) -> const std::vector<double>& {
    return s.synthetic_label && name == "aice" ? synthetic : c.column(name).values;
  };

  std::vector<std::int64_t> points;
  report.candidates = static_cast<std::int64_t>(c.points());
  for (std::size_t p = 0; p < c.points(); ++p) points.push_back(static_cast<std::int64_t>(p));
  report.valid = narrow(points, "passes the mask", [&](std::size_t p) { return c.valid[p] != 0; });
  const double whole = s.needs_aice() ? whole_ice(c, s) : 1, threshold = s.min_ice * whole;
  if (s.mask_mode != "both") {
    const auto& aice = column("aice");
    // Points with a missing aice pass; they are counted below with the other missing values.
    report.in_mode = narrow(points,
                            join("has aice ",
                                 s.mask_mode == "ocean" ? "< "
                                 : s.ice_ge             ? ">= "
                                                        : "> ",
                                 threshold, whole > 1 ? " %, its unit; if it is a fraction, say --units aice=1" : ""),
                            [&](std::size_t p) {
                              if (!std::isfinite(aice[p])) return true;
                              const int order = compare(aice[p], threshold);
                              return s.mask_mode == "ocean" ? order < 0 : s.ice_ge ? order >= 0 : order > 0;
                            });
  } else {
    report.in_mode = report.valid;
  }
  report.at_pole = report.in_mode;
  if (s.pole != "all") {
    report.at_pole = narrow(
        points, join("lies beyond ", s.lat_min, " degrees (", s.pole, ")", s.pole_clean ? " with 0 < aice <= 1" : ""),
        [&](std::size_t p) {
          const bool north = c.lat[p] > s.lat_min, south = c.lat[p] < -s.lat_min;
          if (!(s.pole == "north" ? north : s.pole == "south" ? south : north || south)) return false;
          if (!s.pole_clean) return true;
          const double aice = column("aice")[p];
          return aice > 0 && aice <= whole;
        });
  }

  std::vector<std::string> wanted = s.inputs;
  wanted.insert(wanted.end(), s.outputs.begin(), s.outputs.end());
  if (s.mask_mode != "both" && std::ranges::find(wanted, "aice") == wanted.end()) wanted.emplace_back("aice");
  std::vector<const std::vector<double>*> columns;
  for (const auto& name : wanted) {
    columns.push_back(&column(name));
    std::int64_t bad = 0;
    // Values beyond the range of f32 would become infinities.
    for (const std::int64_t p : points) bad += !std::isfinite(static_cast<float>((*columns.back())[p]));
    if (bad > 0) report.dropped.emplace_back(name, bad);
  }
  std::string worst;
  for (const auto& [name, count] : report.dropped)
    worst += (worst.empty() ? " (" : ", ") + name + " missing in " + std::to_string(count);
  report.complete =
      narrow(points, "has a value in every column" + (worst.empty() ? worst : worst + ")"), [&](std::size_t p) {
        return std::ranges::all_of(columns,
                                   [&](const auto* values) { return std::isfinite(static_cast<float>((*values)[p])); });
      });
  subsample(points, s);
  report.subsampled = std::ssize(points);
  if (s.thin_fraction < 1) {
    const auto n = std::ssize(points);
    keep_indices(points, draw_subset(n, static_cast<std::int64_t>(static_cast<double>(n) * s.thin_fraction), s.seed,
                                     "prep.thin"));
    require_data(!points.empty(), "selecting rows: thinning by ", s.thin_fraction, " leaves none of ", n, " rows");
  }
  report.thinned = std::ssize(points);

  EmulatorSet set;
  set.notes = {{"split_by", s.split_by},        {"validation_split", s.validation_split},
               {"test_split", s.test_split},    {"pole", s.pole},
               {"subsample", s.subsample},      {"thin_fraction", s.thin_fraction},
               {"max_patterns", s.max_patterns}};
  set.inputs = names_of(c, s, s.inputs);
  set.outputs = names_of(c, s, s.outputs);
  set.input_source = input_source(c, s.inputs);
  std::vector<std::int64_t> steps;
  const auto degrees = [](double v) { return std::isfinite(v) ? static_cast<float>(v) : 0.0f; };
  for (const std::int64_t p : points) {
    for (std::size_t i = 0; i < s.inputs.size(); ++i) set.x.push_back(static_cast<float>((*columns[i])[p]));
    for (std::size_t o = 0; o < s.outputs.size(); ++o)
      set.y.push_back(static_cast<float>((*columns[s.inputs.size() + o])[p]));
    report.unplaced += !std::isfinite(c.lat[p]) || !std::isfinite(c.lon[p]);
    set.lat.push_back(degrees(c.lat[p]));
    set.lon.push_back(degrees(c.lon[p]));
    set.time.push_back(c.time[p]);
    // Without dates, files follow each other in the order of the command line.
    steps.push_back(c.dated ? c.time[p] : (std::int64_t{c.source[p]} << 32) + c.step[p]);
    set.cell.push_back(c.cell[p]);
    set.source.push_back(c.source[p]);
  }
  set.grid_dims = c.grid.dims;
  set.grid_shape = c.grid.shape;
  set.mask_mode = s.mask_mode;
  set.min_ice = s.min_ice;
  set.seed = s.seed;
  for (const auto& file : c.files) {
    set.sources.push_back(file.filename().string());
    set.sha256.push_back(sha256_of(file));
  }
  set.moment_rows = s.moments == "all" ? MomentRows::all : MomentRows::train;
  if (c.dated && !comparable(c.calendar, Calendar::standard))
    set.notes.emplace_back("calendar", std::string(name(c.calendar)));
  set.split = split_rows(set, s, c, steps);
  report.constant = take_moments(set);
  if (s.constant_outputs == "error")
    require_data(report.constant.outputs.empty(), "selecting rows: the output column ", listed(report.constant.outputs),
                 " is constant in the training rows, so there is nothing to learn; "
                 "select other rows, or keep it with --variables.constant_outputs keep");
  if (s.pole != "all") set.notes.emplace_back("lat_min", s.lat_min);
  if (s.synthetic_label) set.notes.emplace_back("synthetic_label", std::int64_t{1});
  if (!s.test_files.empty()) set.notes.emplace_back("test_files", s.test_files);
  if (!s.test_days.empty()) set.notes.emplace_back("test_days", s.test_days);
  return set;
}

namespace {
std::string range_text(const std::vector<float>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return printed("%.6g to %.6g", static_cast<double>(least), static_cast<double>(most));
}

/// The variables of positions, their ranges, and what cannot be a latitude or a longitude.
void summarise_places(const Candidates& c, const EmulatorSet& set, std::int64_t unplaced, Summary& summary) {
  for (const auto& place : c.places) summary.line("positions", place);
  if (std::ranges::all_of(c.places, [](const auto& place) { return place == "unknown"; })) return;
  summary.line("", "latitude ", range_text(set.lat), ", longitude ", range_text(set.lon), " degrees");
  const auto beyond = [&](const std::vector<float>& of, float limit) {
    return std::ranges::count_if(of, [&](float v) { return std::abs(v) > limit; });
  };
  const auto lat = beyond(set.lat, 90.001F), lon = beyond(set.lon, 360.001F);
  if (lat > 0 && beyond(set.lon, 90.001F) == 0) {
    summary.warning("positions: the latitudes are ", range_text(set.lat), " and the longitudes ", range_text(set.lon),
                    " degrees, as if they were exchanged; name them with --lat and --lon");
  } else if (lat > 0 || lon > 0) {
    summary.warning("positions: ", lat, " of ", set.rows(), " latitudes lie beyond -90 to 90 and ", lon,
                    " longitudes beyond -360 to 360 (latitude ", range_text(set.lat), ", longitude ",
                    range_text(set.lon), "); if these are fill values, declare them in the file or mask their points");
  }
  const bool one_place = set.rows() > 1 && std::ranges::all_of(set.lat, [&](float v) { return v == set.lat[0]; }) &&
                         std::ranges::all_of(set.lon, [&](float v) { return v == set.lon[0]; });
  if (one_place && set.grid_dims.size() > 1)
    summary.warning("positions: all ", set.rows(), " rows lie at latitude ", set.lat[0], ", longitude ", set.lon[0]);
  if (unplaced > 0) summary.note(unplaced, " of ", set.rows(), " rows have no position, stored as 0");
}

/// First and last time, and steps that several files have of the same place.
void summarise_times(const Candidates& c, const EmulatorSet& set, Summary& summary) {
  if (!c.undated.empty()) {
    const bool ordered = std::ranges::any_of(c.step, [](std::int64_t step) { return step > 0; }) || c.files.size() > 1;
    summary.line("times", "no dates: ", listed(c.undated), ordered ? "; the order of steps and files counts" : "");
    if (!c.time_axes.empty())
      summary.warning("times: some files give dates and others none: ", listed(c.undated), "; those rows have time 0");
  }
  for (const auto& axis : c.time_axes) summary.line("times", axis);
  if (!c.dated || set.time.empty()) return;
  std::vector<std::int64_t> times = set.time;
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto date = [&](std::int64_t t) { return date_text(t, c.calendar); };
  summary.line("", date(times.front()), " to ", date(times.back()), ", ", times.size(),
               times.size() == 1 ? " step" : " steps");
  constexpr std::int64_t kLatest_s = 32503680000;  // the year 3000
  if (times.back() > kLatest_s && comparable(c.calendar, Calendar::standard))
    summary.warning("times: the last is ", date(times.back()), "; look at the unit of time");
  // The first point of each step stands for its places: tiles of one time differ there.
  std::map<std::tuple<std::int64_t, double, double>, std::int32_t> seen;
  std::set<std::pair<std::int32_t, std::int64_t>> looked_at;
  for (std::size_t p = 0; p < c.points(); ++p) {
    if (!std::isfinite(c.lat[p]) || !std::isfinite(c.lon[p]) || c.valid[p] == 0) continue;
    if (!looked_at.emplace(c.source[p], c.time[p]).second) continue;
    const auto [before, is_new] = seen.try_emplace({c.time[p], c.lat[p], c.lon[p]}, c.source[p]);
    if (is_new) continue;
    const auto name = [&](std::int32_t file) { return c.files[file].filename().string(); };
    return summary.warning("times: ", date(c.time[p]), " is in ", name(before->second), " and in ", name(c.source[p]),
                           " for the same places; rows that are read twice may be in two parts of the split");
  }
}

/// What the values of a column say about its units: K that are degrees Celsius, percent that are fractions.
void doubt_units(const std::string& name, const std::string& units, const std::string& cf,
                 std::span<const double> values, Summary& summary) {
  const auto [least, most] = std::ranges::minmax(values);
  const bool temperature = cf.find("temperature") != std::string::npos && cf.find("anomaly") == std::string::npos &&
                           cf.find("difference") == std::string::npos && cf.find("tendency") == std::string::npos;
  const bool area = cf.find("area_fraction") != std::string::npos;
  std::string like;
  if (temperature && same_units(units, "K") && least < 100) like = "degC";
  if (same_units(units, "degC") && most > 150) like = "K";
  if (area && same_units(units, "%") && most <= 1.001) like = "1";
  if (area && !same_units(units, "%") && most > 1.5) like = "%";
  if (like.empty()) return;
  summary.warning("column ", name, ": values of ", printed("%.6g to %.6g", least, most), " are unlikely in ",
                  units.empty() ? "the unit 1" : "'" + units + "'", "; if they are in ", like, ", say --units ", name,
                  "=", like);
}
}  // namespace

void summarise_columns(const EmulatorSet& set, const std::vector<std::string>& variables, Summary& summary) {
  std::size_t at = 0;
  const auto side = [&](const ColumnNames& columns, const std::vector<float>& rows) {
    const std::size_t n = columns.names.size();
    for (std::size_t c = 0; c < n; ++c) {
      std::vector<double> values;
      for (std::size_t i = c; i < rows.size(); i += n) values.push_back(static_cast<double>(rows[i]));
      const std::string& name = columns.names[c];
      const std::string variable = at < variables.size() ? variables[at] : name;
      ++at;
      summary.column(variable == name || variable.empty() ? name : name + "=" + variable,
                     c < columns.units.size() ? columns.units[c] : "", values);
      if (!variables.empty()) doubt_units(name, columns.units[c], columns.cf[c], values, summary);
    }
  };
  side(set.inputs, set.x);
  side(set.outputs, set.y);
}

void summarise(const Candidates& c, const Selection& s, const SelectionReport& r, const EmulatorSet& set,
               Summary& summary) {
  constexpr std::size_t kShown = 6;
  const auto more = [&](std::size_t n) { return n > kShown ? join(" and ", n - kShown, " more") : std::string(); };
  std::vector<std::string> names;
  for (const auto& file : c.files | std::views::take(kShown)) names.push_back(file.filename().string());
  summary.line("files", listed(names), more(c.files.size()));
  for (const auto& pair : c.pairs | std::views::take(kShown)) summary.line("pair", pair);
  if (c.pairs.size() > kShown) summary.line("", more(c.pairs.size()).substr(1), " pairs");
  if (!c.indexed.empty())
    summary.warning(
        "pairing ", c.indexed.front(), c.indexed.size() > 1 ? join(" and ", c.indexed.size() - 1, " more") : "",
        ": by index, as neither latitude and longitude nor values of their axes are in both; if the order of their "
        "points differs, values of different places are combined; add latitude and longitude to both");
  summarise_places(c, set, r.unplaced, summary);
  summarise_times(c, set, summary);
  std::vector<std::string> wanted = s.inputs, variables, filled, unknown;
  wanted.insert(wanted.end(), s.outputs.begin(), s.outputs.end());
  for (const auto& name : wanted) {
    const CandidateColumn& column = c.column(name);
    variables.push_back(listed(column.variables, "|"));
    if (column.filled) filled.push_back(name);
    const std::string units = units_of(column, s);
    if (units.empty()) unknown.push_back(name);
    const std::size_t at = variables.size() - 1;
    const auto [mean, deviation] = at < set.n_in()
                                       ? std::pair(set.input_mean[at], set.input_std[at])
                                       : std::pair(set.output_mean[at - set.n_in()], set.output_std[at - set.n_in()]);
    double lost = 0;
    for (const double value : column.values)
      if (const auto single = static_cast<float>(value); std::isfinite(single))
        lost = std::max(lost, std::abs(value - static_cast<double>(single)));
    if (lost > 0.01 * deviation)
      summary.warning("column ", name, ": single precision, in which rows are stored, changes values by up to ",
                      printed("%.2g", lost), ", but their deviation is ", printed("%.2g", deviation),
                      "; subtract an offset, as in ", name, "=", variables.back(), "*1",
                      printed("%+.10g", -std::floor(mean)));
    const auto& without = column.without_units;
    if (!column.units.empty() && !without.empty() && units == column.units)
      summary.warning("column ", name, ": ", without.size(), " of ", c.files.size(),
                      " files state no unit (the first is ", without.front(), "), the others ", units,
                      "; see whether their values are in ", units, ", and say --units ", name, "=", units);
  }
  summarise_columns(set, variables, summary);
  if (!unknown.empty()) summary.line("unknown units", listed(unknown), "  (--units names them)");
  if (!filled.empty()) summary.note("files lack ", listed(filled), ", and --missing zero stands for it");
  summary.line("points read", r.candidates);
  if (r.valid != r.candidates) summary.line("masked out", r.candidates - r.valid, "  (not: ", c.mask, ")");
  if (r.in_mode != r.valid)
    summary.line("outside the mode", r.valid - r.in_mode, "  (", set.mask_mode, ", aice threshold ", set.min_ice, ")");
  if (s.needs_aice() && whole_ice(c, s) > 1)
    summary.note("aice is in %: the threshold ", s.min_ice, " is ", s.min_ice * 100, " %");
  if (s.mask_mode == "both" && (s.min_ice > 0 || s.ice_ge))
    summary.warning("domain.min_ice_concentration = ", s.min_ice,
                    " chooses no points, because domain.mask_mode = both keeps all; say --mask-mode sea_ice or ocean");
  if (s.pole == "all" && (s.pole_clean || s.lat_min != Selection().lat_min))
    summary.warning("domain.lat_min = ", s.lat_min,
                    " chooses no points, because domain.pole = all keeps all; say --pole north, south or both");
  if (r.at_pole != r.in_mode) summary.line("not at the pole", r.in_mode - r.at_pole);
  const auto dropped = listed(r.dropped, ", ", [](const auto& of) { return join(of.first, " ", of.second); });
  summary.line("dropped", r.at_pole - r.complete,
               dropped.empty() ? "" : "  (missing, NaN or infinite: " + dropped + ")");
  if (r.subsampled != r.complete) summary.line("sub-sampled to", r.subsampled);
  if (r.thinned != r.subsampled) summary.line("thinned to", r.thinned);
  std::vector<std::string> constant = r.constant.inputs;
  std::erase_if(constant, [&](const auto& name) { return std::ranges::find(filled, name) != filled.end(); });
  if (!constant.empty())
    summary.warning("constant inputs in the training rows: ", listed(constant),
                    "; see whether they were read as meant");
  if (!r.constant.outputs.empty()) summary.line("constant outputs", listed(r.constant.outputs));
}

}  // namespace lockstep::prep
