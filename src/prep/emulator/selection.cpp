#include "lockstep/prep/emulator/selection.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/columns.hpp"
#include "lockstep/prep/files.hpp"

namespace lockstep::prep {

const std::vector<double>& Candidates::column(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  require(found != names.end(), "column '", name, "' was not read");
  return columns[static_cast<std::size_t>(found - names.begin())];
}

std::vector<std::string> Selection::columns_needed() const {
  std::vector<std::string> all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  if (needs_aice()) all.emplace_back("aice");
  if (synthetic_label) all.emplace_back("sst");
  std::vector<std::string> once;
  for (const auto& name : all) {
    if (std::ranges::find(once, name) == once.end()) once.push_back(name);
  }
  return once;
}

void add_selection_options(Options& o, Selection& s, const std::vector<std::string>& default_inputs,
                           const std::vector<std::string>& default_outputs) {
  o.section("variables", "Columns");
  o.add("variables.input_variables,inputs", &s.inputs, default_inputs, "input columns by short name")
      .value_name("NAME,...");
  o.add("variables.output_variables,outputs", &s.outputs, default_outputs, "output columns by short name")
      .value_name("NAME,...");
  o.choice("variables.missing,missing", &s.missing, "error", {"error", "zero"},
           "what to do when a file lacks a column: fail, or fill it with zeros");
  o.choice("variables.constant_outputs", &s.constant_outputs, "error", {"error", "keep"},
           "what to do when an output column is constant in the training rows: fail, or keep it");

  o.add("variables.units,units", &s.units, {}, "units of columns, if the files state none or wrong ones")
      .value_name("SHORT=UNITS,...");

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
  o.add("split.validation_split,validation-split", &s.validation_split, 0.1, below_one,
        "validation rows, as a fraction of the rows that are not test rows");
  o.add("split.test_split,test-split", &s.test_split, 0.0, below_one, "test rows, as a fraction of all rows");
  o.choice("split.by", &s.split_by, "random", {"random", "time", "lat-block"},
           "split off random rows, whole time steps (the last ones), or whole bands of latitude; random rows leave "
           "similar, neighbouring points in different parts");
  o.add("split.block_degrees,block-degrees", &s.block_degrees, 5.0, between(0.001, 180),
        "width of the bands of split.by = lat-block, degrees");
  o.add("split.test_files,test-files", &s.test_files, {},
        "the rows of these files (names or patterns) are the test rows")
      .value_name("FILE,...");
  o.add("split.test_days,test-days", &s.test_days, {}, "the rows of these days are the test rows")
      .value_name("YYYY-MM-DD,...");

  o.section("moments", "Normalisation");
  o.choice("moments.rows,moments", &s.moments, "train", {"train", "all"},
           "rows from which mean and standard deviation are computed");
  o.section("run", "Run");
  o.add("run.seed,seed", &s.seed, std::uint64_t{0}, "seed of every random choice");
}

void check_selection(const Selection& s) {
  require_usage(!s.inputs.empty(), "option variables.input_variables: at least one input is needed");
  require_usage(!s.outputs.empty(), "option variables.output_variables: at least one output is needed");
  for (const auto* list : {&s.inputs, &s.outputs}) {
    for (auto at = list->begin(); at != list->end(); ++at) {
      require_usage(!at->empty() && std::find(list->begin(), at, *at) == at, "option variables: column '", *at,
                    "' is named twice or empty");
    }
  }
  for (const auto& name : s.outputs) {
    require_usage(std::ranges::find(s.inputs, name) == s.inputs.end(), "option variables: '", name,
                  "' is both an input and an output");
  }
  for (const auto& [name, units] : parse_names(s.units, "variables.units")) {
    const bool known =
        std::ranges::find(s.inputs, name) != s.inputs.end() || std::ranges::find(s.outputs, name) != s.outputs.end();
    require_usage(known, "option variables.units: '", name, "' is neither an input nor an output");
  }
  const int kinds = (s.test_split > 0) + !s.test_files.empty() + !s.test_days.empty();
  require_usage(kinds <= 1, "options split.test_split, split.test_files, split.test_days: give one of them");
}

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Keeps the points for which `keep` holds. errors  data: this drops the last points
template <class Keep>
std::int64_t narrow(std::vector<std::int64_t>& points, const std::string& reason, Keep keep) {
  const std::size_t before = points.size();
  std::erase_if(points, [&](std::int64_t p) { return !keep(static_cast<std::size_t>(p)); });
  require_data(!points.empty(), "selecting rows: none of ", before, " points ", reason);
  return static_cast<std::int64_t>(points.size());
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
  for (const std::int64_t i : chosen) kept.push_back(points[static_cast<std::size_t>(i)]);
  points = std::move(kept);
}

void subsample(std::vector<std::int64_t>& points, const Selection& s) {
  const auto n = static_cast<std::int64_t>(points.size());
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
      points.resize(static_cast<std::size_t>(s.max_patterns));
    }
  }
}

ColumnNames names_of(const Candidates& c, const std::vector<std::string>& wanted,
                     const std::map<std::string, std::string>& units) {
  ColumnNames out;
  out.names = wanted;
  for (const auto& name : wanted) {
    const auto at = static_cast<std::size_t>(std::ranges::find(c.names, name) - c.names.begin());
    out.cf.push_back(c.cf[at]);
    const auto given = units.find(name);
    out.units.push_back(given != units.end() ? given->second : c.units[at]);
    out.level.push_back(c.level[at]);
  }
  return out;
}

/// "ocean" or "atmosphere" when all inputs share it, otherwise one word per input.
std::string input_source(const Candidates& c, const std::vector<std::string>& inputs) {
  std::vector<std::string> sides;
  for (const auto& name : inputs)
    sides.push_back(c.side[static_cast<std::size_t>(std::ranges::find(c.names, name) - c.names.begin())]);
  if (std::ranges::all_of(sides, [&](const auto& side) { return side == sides.front(); })) return sides.front();
  return listed(sides, ",");
}

}  // namespace

EmulatorSet select_rows(const Candidates& c, const Selection& s, SelectionReport& report) {
  const std::vector<double> synthetic = s.synthetic_label ? synthetic_aice(c.column("sst")) : std::vector<double>{};
  const auto column = [&](const std::string& name) -> const std::vector<double>& {
    return s.synthetic_label && name == "aice" ? synthetic : c.column(name);
  };

  std::vector<std::int64_t> points;
  report.candidates = static_cast<std::int64_t>(c.points());
  for (std::size_t p = 0; p < c.points(); ++p) points.push_back(static_cast<std::int64_t>(p));
  report.valid = narrow(points, "passes the mask", [&](std::size_t p) { return c.valid[p] != 0; });
  if (s.mask_mode != "both") {
    const auto& aice = column("aice");
    // Points with a missing aice pass; they are counted below with the other missing values.
    report.in_mode = narrow(points,
                            join("has aice ",
                                 s.mask_mode == "ocean" ? "< "
                                 : s.ice_ge             ? ">= "
                                                        : "> ",
                                 s.min_ice),
                            [&](std::size_t p) {
                              if (!std::isfinite(aice[p])) return true;
                              if (s.mask_mode == "ocean") return aice[p] < s.min_ice;
                              return s.ice_ge ? aice[p] >= s.min_ice : aice[p] > s.min_ice;
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
          return aice > 0 && aice <= 1;
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
    for (const std::int64_t p : points)
      bad += !std::isfinite(static_cast<float>((*columns.back())[static_cast<std::size_t>(p)]));
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
  report.subsampled = static_cast<std::int64_t>(points.size());
  if (s.thin_fraction < 1) {
    const auto n = static_cast<std::int64_t>(points.size());
    keep_indices(points, draw_subset(n, static_cast<std::int64_t>(static_cast<double>(n) * s.thin_fraction), s.seed,
                                     "prep.thin"));
    require_data(!points.empty(), "selecting rows: thinning by ", s.thin_fraction, " leaves none of ", n, " rows");
  }
  report.thinned = static_cast<std::int64_t>(points.size());

  EmulatorSet set;
  const auto units = parse_names(s.units, "variables.units");
  set.inputs = names_of(c, s.inputs, units);
  set.outputs = names_of(c, s.outputs, units);
  set.input_source = input_source(c, s.inputs);
  const auto degrees = [](double v) { return std::isfinite(v) ? static_cast<float>(v) : 0.0f; };
  for (const std::int64_t point : points) {
    const auto p = static_cast<std::size_t>(point);
    for (std::size_t i = 0; i < s.inputs.size(); ++i) set.x.push_back(static_cast<float>((*columns[i])[p]));
    for (std::size_t o = 0; o < s.outputs.size(); ++o)
      set.y.push_back(static_cast<float>((*columns[s.inputs.size() + o])[p]));
    set.lat.push_back(degrees(c.lat[p]));
    set.lon.push_back(degrees(c.lon[p]));
    set.time.push_back(c.time[p]);
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
  set.split = split_rows(set, s, c.files);
  report.places = c.places;
  report.constant = take_moments(set);
  if (s.constant_outputs == "error")
    require_data(report.constant.outputs.empty(), "selecting rows: the output column ", listed(report.constant.outputs),
                 " is constant in the training rows, so there is nothing to learn; "
                 "select other rows, or keep it with --variables.constant_outputs keep");
  set.notes = {{"split_by", s.split_by},        {"validation_split", s.validation_split},
               {"test_split", s.test_split},    {"pole", s.pole},
               {"subsample", s.subsample},      {"thin_fraction", s.thin_fraction},
               {"max_patterns", s.max_patterns}};
  if (s.pole != "all") set.notes.emplace_back("lat_min", s.lat_min);
  if (s.synthetic_label) set.notes.emplace_back("synthetic_label", std::int64_t{1});
  if (!s.test_files.empty()) set.notes.emplace_back("test_files", s.test_files);
  if (!s.test_days.empty()) set.notes.emplace_back("test_days", s.test_days);
  return set;
}

void summarise(const SelectionReport& r, const EmulatorSet& set, Summary& summary) {
  summary.line("points read", r.candidates);
  for (const auto& place : r.places) summary.line("positions", place);
  if (r.valid != r.candidates) summary.line("masked out", r.candidates - r.valid);
  if (r.in_mode != r.valid)
    summary.line("outside the mode", r.valid - r.in_mode, "  (", set.mask_mode, ", aice threshold ", set.min_ice, ")");
  if (r.at_pole != r.in_mode) summary.line("not at the pole", r.in_mode - r.at_pole);
  const auto dropped = listed(r.dropped, ", ", [](const auto& of) { return join(of.first, " ", of.second); });
  summary.line("dropped", r.at_pole - r.complete,
               dropped.empty() ? "" : "  (missing, NaN or infinite: " + dropped + ")");
  if (r.subsampled != r.complete) summary.line("sub-sampled to", r.subsampled);
  if (r.thinned != r.subsampled) summary.line("thinned to", r.thinned);
  std::vector<std::string> unknown;
  for (const auto* columns : {&set.inputs, &set.outputs}) {
    for (std::size_t i = 0; i < columns->names.size(); ++i)
      if (columns->units[i].empty()) unknown.push_back(columns->names[i]);
  }
  if (!unknown.empty()) summary.line("unknown units", listed(unknown), "  (--units names them)");
  if (!r.constant.inputs.empty()) summary.line("constant inputs", listed(r.constant.inputs));
  if (!r.constant.outputs.empty()) summary.line("constant outputs", listed(r.constant.outputs));
}

}  // namespace lockstep::prep
