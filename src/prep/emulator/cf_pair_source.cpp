#include <algorithm>

#include "prep/emulator/candidates.hpp"
#include "prep/emulator/emulator_output.hpp"

namespace lockstep::prep {

namespace {
constexpr double kThickest_m = 500, kColdest_K = 183.15, kWarmest_K = 333.15;

struct PairColumn {
  bool atmosphere;
  std::string variable;
};

/// The file and variable of a short name: the user's `atmosphere:VARIABLE` or `ocean:VARIABLE`, or the usual ones.
std::optional<PairColumn> pair_column(const std::string& name, const PairOptions& options) {
  if (const auto chosen = options.names.find(name); chosen != options.names.end()) {
    const auto colon = chosen->second.find(':');
    const std::string side = chosen->second.substr(0, colon);
    require_usage(colon != std::string::npos && (side == "atmosphere" || side == "ocean"), "option input.names: '",
                  name, "=", chosen->second, "': say which file, ", name, "=ocean:VARIABLE or ", name,
                  "=atmosphere:VARIABLE");
    return PairColumn{side == "atmosphere", chosen->second.substr(colon + 1)};
  }
  const KnownColumn* known = find_column(name);
  if (known == nullptr || *known->pair_file == '\0') return {};
  return PairColumn{std::string(known->pair_file) == "atmosphere",
                    *known->pair_name != '\0' ? known->pair_name : known->cf};
}

/// Reads the last level of an atmosphere variable or level 0 of an ocean variable, if it has levels.
ColumnSpec with_level(const NcFile& file, const std::string& name, const PairColumn& column) {
  ColumnSpec spec{name, column.variable};
  if (level_axis(file, file.describe(column.variable))) spec.level = column.atmosphere ? -1 : 0;
  return spec;
}

std::int32_t recorded_level(const NcFile& file, const ColumnSpec& spec, bool atmosphere, std::int64_t without_axis) {
  const NcVariable variable = file.describe(spec.variable);
  if (const auto axis = level_axis(file, variable))
    return atmosphere ? static_cast<std::int32_t>(variable.shape[*axis] - 1) : 0;
  return atmosphere ? static_cast<std::int32_t>(without_axis) : 0;
}
/// An ocean file's points, and for each its point in the atmosphere file.
struct Pair {
  FilePoints points;
  Grid air_grid;
  std::vector<std::int64_t> partner;
};

Pair pair_up(const NcFile& ocean, const ColumnSpec& thickness, const NcFile& atmosphere, const ColumnSpec& air,
             Candidates& candidates) {
  const auto placed = [](const NcFile& file, const ColumnSpec& spec) {
    FilePoints points;
    points.grid = common_grid(file, {spec});
    const auto names = coordinates_of(file, spec.variable);
    read_place(file, points.grid, "", "", names, points);
    points.times = read_times(file, points.grid, names);
    return points;
  };
  Pair out{placed(ocean, thickness), {}, {}};
  FilePoints& points = out.points;
  const FilePoints over = placed(atmosphere, air);
  out.air_grid = over.grid;
  const std::string what = "pairing '" + ocean.path().string() + "' with '" + atmosphere.path().string() + "'";
  const auto steps = [](const FilePoints& of) { return std::ranges::max(of.times.step) + 1; };
  const bool dated = points.times.trouble.empty() && over.times.trouble.empty();
  require_data(!dated || comparable(points.times.calendar, over.times.calendar), what,
               ": the times of the first count in the calendar ", name(points.times.calendar),
               ", those of the second in ", name(over.times.calendar), "; give files of one calendar");
  auto own = coordinates_of(points), other = coordinates_of(over);
  std::string steps_text;
  const bool one_dated = points.times.trouble.empty() != over.times.trouble.empty();
  if (!dated && (one_dated || steps(points) > 1 || steps(over) > 1)) {
    own.push_back(step_coordinate(points.times));
    other.push_back(step_coordinate(over.times));
    steps_text = " and, as times cannot be compared (" +
                 (points.times.trouble.empty() ? over.times.trouble : points.times.trouble) +
                 "), the order of time steps";
  }
  const std::string with = ocean.path().filename().string() + " with " + atmosphere.path().filename().string();
  const auto on_map = [](const FilePoints& of) { return !of.lon.empty() && !of.place_grid.dims.empty(); };
  if (on_map(points) && on_map(over)) {
    out.partner = pair_points(own, other, points.times.calendar, what);
    const std::string by = dated ? "latitude, longitude and time" : "latitude and longitude" + steps_text;
    candidates.pairs.push_back(with + " by " + by + ", " + describe_pairs(out.partner, over.times.step.size()));
    return out;
  }
  require_data(points.grid.shape == over.grid.shape, what, ": their grids ",
               dims_text(points.grid.dims, points.grid.shape), " and ", dims_text(over.grid.dims, over.grid.shape),
               " differ, and their positions are not known in both; add latitude and longitude to both");
  if (dated) {
    out.partner = pair_points(own, other, points.times.calendar, what);
  } else {
    for (std::int64_t i = 0; i < points.grid.size(); ++i) out.partner.push_back(i);
  }
  pair_by_index(candidates, with, points.grid, over.grid);
  out.air_grid = points.grid;
  if (points.lat.empty()) {
    points.lat = over.lat;
    points.lon = over.lon;
    points.place = over.place;
  }
  return out;
}
}  // namespace

Candidates read_pair(const PairOptions& options, const Selection& selection) {
  require_usage(options.atmosphere.size() == options.ocean.size(), "reading pairs: ", options.atmosphere.size(),
                " atmosphere files and ", options.ocean.size(), " ocean files");
  Candidates out = start_candidates(selection.columns_needed());
  out.mask = join("cells up to ", kThickest_m, " m thick, air of ", kColdest_K, " to ", kWarmest_K, " K");
  for (std::size_t pair = 0; pair < options.ocean.size(); ++pair) {
    const NcFile atmosphere = NcFile::open(options.atmosphere[pair]), ocean = NcFile::open(options.ocean[pair]);
    const auto file_of = [&](bool is_atmosphere) -> const NcFile& { return is_atmosphere ? atmosphere : ocean; };
    const auto demand = [&](const std::string& name) {
      const PairColumn column = *pair_column(name, options);
      return with_level(file_of(column.atmosphere), name, column);
    };
    const ColumnSpec thickness = demand("thick"), air = demand("tair");
    const Pair files = pair_up(ocean, thickness, atmosphere, air, out);
    const auto read = [&](bool is_atmosphere, const ColumnSpec& spec) {
      if (!is_atmosphere) return read_on_grid(ocean, spec, files.points.grid);
      return of_partners(read_on_grid(atmosphere, spec, files.air_grid), files.partner);
    };
    FilePoints points = files.points;
    const auto thick = read(false, thickness), tair = read(true, air);
    for (std::size_t i = 0; i < thick.size(); ++i)
      points.valid.push_back(thick[i] > 0 && thick[i] <= kThickest_m && tair[i] >= kColdest_K && tair[i] <= kWarmest_K);
    for (const auto& wanted : out.columns) {
      const auto column = pair_column(wanted.name, options);
      if (!column || !file_of(column->atmosphere).has(column->variable)) {
        require_data(selection.missing == "zero", "reading '", file_of(column && column->atmosphere).path().string(),
                     "': no variable ", column ? "'" + column->variable + "' " : "", "for '", wanted.name,
                     "'; name it with --names ", wanted.name, "=ocean:VARIABLE, or fill it with --missing zero");
        continue;
      }
      const NcFile& file = file_of(column->atmosphere);
      const ColumnSpec spec = with_level(file, wanted.name, *column);
      CandidateColumn& taken = take_variable(out, spec, file, read(column->atmosphere, spec));
      taken.level = recorded_level(file, spec, column->atmosphere, options.atm_level_index);
      taken.side = column->atmosphere ? "atmosphere" : "ocean";
      taken.cf = spec.variable;
    }
    append_points(out, std::move(points), options.ocean[pair]);
  }
  // /source numbers the ocean files; the atmosphere files follow them in the list of sources.
  out.files.insert(out.files.end(), options.atmosphere.begin(), options.atmosphere.end());
  return out;
}

bool run_cf_pair(const Args& args) {
  Options options("lockstep-prep cf-pair",
                  "Columns of an atmosphere file and an ocean file with CF names on one latitude-longitude grid.",
                  "Reads the last level of the atmosphere and the first of the ocean. A point is valid where the ocean "
                  "cell is thicker than 0 and at most 500 m, and the air temperature is 183.15 to 333.15 K.");
  options.section("data", "Files");
  options.section("input", "What to read from the files");
  SourceOptions common(options, SourceOptions::Input::none);
  Selection selection;
  std::vector<std::string> atmosphere, ocean, names;
  PairOptions pair;
  options.add("data.atm_file,atmosphere=FILE,...", &atmosphere, {}, "atmosphere files").required();
  options.add("data.ocean_file,ocean=FILE,...", &ocean, {}, "ocean and sea-ice files, one per atmosphere file")
      .required();
  options.add("input.names,names=SHORT=FILE:VARIABLE,...", &names, {},
              "variables by short name: sice=ocean:bulk_salinity");
  options.add("domain.atm_level_index", &pair.atm_level_index, std::int64_t{127}, non_negative,
              "level to record for atmosphere variables without a level axis");
  add_selection_options(options, selection, {"sst", "sss", "tair", "hi", "hs", "qref", "uatm", "vatm", "tsfc"},
                        kDefaultOutputs);
  options.example("lockstep-prep cf-pair --atmosphere atm.nc --ocean ocn.nc --output pair.h5",
                  "nine default inputs and aice");
  options.example(
      "lockstep-prep cf-pair --atmosphere atm.nc --ocean ocn.nc --mask-mode sea_ice --min-ice 0.1 --output ice.h5",
      "only where more than a tenth is ice");
  if (!options.parse(args)) return false;
  check_selection(selection);
  pair.atmosphere = expand_files(atmosphere);
  pair.ocean = expand_files(ocean);
  pair.names = parse_names(names, "input.names");
  require_known(selection.columns_needed(), pair.names, "cf-pair");
  require_writable(common.output, pair.atmosphere);
  require_writable(common.output, pair.ocean);
  write_selected(common, read_pair(pair, selection), selection);
  return true;
}

}  // namespace lockstep::prep
