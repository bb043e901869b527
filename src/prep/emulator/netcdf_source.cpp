#include <algorithm>
#include <iterator>

#include "prep/emulator/candidates.hpp"
#include "prep/emulator/emulator_output.hpp"

namespace lockstep::prep {

namespace {
struct NetcdfOptions {
  std::vector<std::filesystem::path> files;
  std::vector<ColumnSpec> columns;  ///< every requested short name
  std::vector<MaskTerm> mask;
  std::vector<std::filesystem::path> geolocation;  ///< none, one for all, or one per file
  std::string lat, lon;                            ///< variable names; "" tries the usual ones
};

/// errors  usage: the user named a variable that the file lacks
void require_variable(const NcFile& file, const std::string& variable) {
  if (file.has(variable)) return;
  throw Error(Fault::usage,
              join("'", file.path().string(), "' has no variable '", variable, "'", file.suggestion(variable)));
}

/// For each point of the grid its point in a file of positions: by the axes that both files have, else by the positions
/// of both. Empty where neither is known: the points are then paired by index.
std::vector<std::int64_t> find_places(const NcFile& file, const Grid& grid, const Times& times,
                                      const std::vector<std::string>& coordinates, const NcFile& place,
                                      const FilePoints& placed, Candidates& out) {
  using Kind = Coordinate::Kind;
  std::vector<Coordinate> own, other;
  std::size_t axes = 0;
  for (std::size_t d = 0; d < grid.dims.size(); ++d) {
    const std::string& dim = grid.dims[d];
    if (grid.shape[d] == 1 || dim == times.variable) continue;
    ++axes;
    if (!file.has(dim) || !place.has(dim)) continue;
    const NcVariable axis = file.describe(dim);
    if (!axis.numeric || !place.describe(dim).numeric || !fits_grid(place, dim, grid)) continue;
    const Kind kind = axis.units.starts_with("degree") && axis.units.find("_e") != std::string::npos ? Kind::longitude
                      : axis.units.starts_with("degree")                                             ? Kind::latitude
                                                                                                     : Kind::plain;
    own.push_back({dim, kind, read_on_grid(file, {dim, dim}, grid)});
    other.push_back({dim, kind, read_on_grid(place, {dim, dim}, grid)});
  }
  const std::string with = file.path().filename().string() + " with " + place.path().filename().string();
  if (own.empty() || own.size() < axes) {
    FilePoints here;
    read_place(file, grid, "", "", coordinates, here);
    own = coordinates_of(here);
    other = coordinates_of(placed);
    // A file may have the axes of an idealised grid, lat(y), beside which the positions are geolat(y, x).
    const bool coarser = here.place_grid.dims.size() < placed.place_grid.dims.size();
    if (own.empty() || placed.lat.empty() || placed.lon.empty() || coarser) {
      pair_by_index(out, with, grid, placed.place_grid);
      return {};
    }
  }
  const auto by = listed(own, ", ", [](const auto& c) { return c.name; });
  own.push_back(step_coordinate(times));
  other.push_back(own.back());
  auto partner = pair_points(own, other, times.calendar,
                             "pairing '" + file.path().string() + "' with '" + place.path().string() + "'");
  out.pairs.push_back(with + " by " + by + ", " + describe_pairs(partner, partner.size()));
  return partner;
}

/// Reads the named columns of any NetCDF files.
Candidates read_netcdf(const NetcdfOptions& options, const Selection& selection) {
  const std::size_t places = options.geolocation.size();
  require_usage(places <= 1 || places == options.files.size(), "option input.geolocation: ", places, " files for ",
                options.files.size(), " input files; give none, one, or one each");
  Candidates out = start_candidates(selection.columns_needed());
  out.mask = listed(options.mask, " and ",
                    [](const auto& term) { return join(term.variable, " ", term.op, " ", term.value); });
  const auto spec_of = [&](const std::string& name) {
    for (const auto& column : options.columns)
      if (column.short_name == name) return column;
    return ColumnSpec{name, name};
  };
  for (std::size_t f = 0; f < options.files.size(); ++f) {
    const NcFile file = NcFile::open(options.files[f]);
    std::vector<ColumnSpec> present;
    for (const auto& column : out.columns) {
      const ColumnSpec spec = spec_of(column.name);
      if (!file.has(spec.variable) && selection.missing == "zero") continue;
      require_variable(file, spec.variable);
      present.push_back(spec);
    }
    require_data(!present.empty(), "reading '", file.path().string(), "': it has none of the columns");
    const Grid grid = common_grid(file, present);
    FilePoints points;
    points.valid.assign(grid.size(), 1);
    std::optional<NcFile> place_file;
    if (places > 0) place_file.emplace(NcFile::open(options.geolocation[places == 1 ? 0 : f]));
    const NcFile& place = place_file ? *place_file : file;
    if (!options.lat.empty()) require_variable(place, options.lat);
    if (!options.lon.empty()) require_variable(place, options.lon);
    std::vector<std::string> coordinates;
    for (const auto& spec : present) {
      const auto names = coordinates_of(file, spec.variable);
      coordinates.insert(coordinates.end(), names.begin(), names.end());
    }
    points.times = read_times(file, grid, coordinates);
    read_place(place, grid, options.lat, options.lon, coordinates, points);
    const bool needs_lat = place_file || selection.pole != "all" || selection.split_by == "lat-block";
    require_data(!needs_lat || !points.lat.empty(), "reading '", place.path().string(), "': no latitude on the grid ",
                 dims_text(grid.dims, grid.shape), " of '", file.path().string(),
                 "'; name it with --lat, or give a file of this grid");
    std::vector<std::int64_t> partner;
    if (place_file) partner = find_places(file, grid, points.times, coordinates, place, points, out);
    if (!partner.empty())
      for (auto* values : {&points.lat, &points.lon})
        if (!values->empty()) *values = of_partners(*values, partner);
    for (const auto& term : options.mask) {
      ColumnSpec spec = spec_of(term.variable);
      const bool in_place = !file.has(spec.variable) && place.has(spec.variable);
      const NcFile& holder = in_place ? place : file;
      require_variable(holder, spec.variable);
      auto values = read_on_grid(holder, spec, grid);
      if (in_place && !partner.empty()) values = of_partners(values, partner);
      for (std::size_t i = 0; i < values.size(); ++i) points.valid[i] = points.valid[i] && satisfies(values[i], term);
    }
    for (const ColumnSpec& spec : present) {
      CandidateColumn& column = take_variable(out, spec, file, read_on_grid(file, spec, grid));
      const std::string standard_name = file.describe(spec.variable).standard_name;
      if (!standard_name.empty()) column.cf = standard_name;
    }
    points.grid = grid;
    append_points(out, std::move(points), options.files[f]);
  }
  return out;
}
}  // namespace

bool run_netcdf(const Args& args) {
  Options options("lockstep-prep netcdf",
                  "Columns of any NetCDF files: tiles and times are concatenated, one row per grid point.",
                  "A column is short=name[@level[:level]][*scale[+offset]]: tk=temperature@0*1+273.15 reads level 0 of "
                  "temperature, adds 273.15 and calls the column tk; t=temperature@0:34 are the columns t_0 to t_34; a "
                  "bare name is the variable itself. A mask is 'variable op number [and ...]'.");
  options.section("input", "What to read from the files");
  SourceOptions common(options);
  Selection selection;
  NetcdfOptions netcdf;
  std::vector<std::string> columns, geolocation;
  std::string mask;
  options.add("input.columns,columns=COLUMN,...", &columns, {},
              "definitions of columns whose short name is not the variable's, or that need a level or a scale");
  options.add("input.mask,mask=EXPRESSION", &mask, "",
              "condition on valid points, for example 'mask == 1 and depth > 10'");
  options.add("input.geolocation,geolocation=FILE,...", &geolocation, {},
              "files with latitude and longitude: one for all, or one per input file");
  options.add("input.lat,lat", &netcdf.lat, "",
              "latitude variable; default: from the columns' CF attribute coordinates, otherwise the variable with the "
              "most dimensions among ULAT, TLAT, lat, latitude, geolat, nav_lat, yt, MetaData/latitude");
  options.add("input.lon,lon", &netcdf.lon, "",
              "longitude variable; default: as --lat, with ULON, TLON, lon, longitude, geolon, nav_lon, xt, "
              "MetaData/longitude");
  add_selection_options(options, selection, {}, {});
  options.example(
      "lockstep-prep netcdf --input 'sfc_data.tile?.nc' --mask 'slmsk != 1' --inputs tsea,fice,hice --outputs t2m,q2m "
      "--test-fraction 0.2 --output ufs.h5",
      "six tiles of a cubed sphere, sea points, a fifth of the rows for the test");
  options.example(
      "lockstep-prep netcdf --input roms.nc --columns sst=temperature@0,sss=salinity@0 --inputs sst,sss --outputs aice "
      "--mask 'mask == 1' --test-days 2016-02-05 --output arctic.h5",
      "the surface of an ocean model, the last day for the test");
  if (!options.parse(args)) return false;
  netcdf.files = expand_files(common.input);
  netcdf.geolocation = expand_files(geolocation);
  for (const auto& column : columns) std::ranges::copy(parse_columns(column), std::back_inserter(netcdf.columns));
  // Inputs and outputs may define columns: --inputs sst=temperature@0,hice
  for (auto* names : {&selection.inputs, &selection.outputs}) {
    std::vector<std::string> all;
    for (const auto& name : *names) {
      if (name.find_first_of("=@*") == std::string::npos) {
        all.push_back(name);
        continue;
      }
      for (const auto& column : parse_columns(name)) {
        netcdf.columns.push_back(column);
        all.push_back(column.short_name);
      }
    }
    *names = std::move(all);
  }
  check_selection(selection);
  const auto needed = selection.columns_needed();
  for (auto at = netcdf.columns.begin(); at != netcdf.columns.end(); ++at) {
    require_usage(
        std::none_of(netcdf.columns.begin(), at, [&](const auto& other) { return other.short_name == at->short_name; }),
        "option input.columns: '", at->short_name, "' is defined twice");
  }
  netcdf.mask = parse_mask(mask);
  require_writable(common.output, netcdf.files);
  require_writable(common.output, netcdf.geolocation);
  write_selected(common, read_netcdf(netcdf, selection), selection);
  return true;
}

}  // namespace lockstep::prep
