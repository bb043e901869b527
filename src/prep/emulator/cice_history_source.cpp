#include <span>

#include "prep/emulator/candidates.hpp"
#include "prep/emulator/emulator_output.hpp"

namespace lockstep::prep {

namespace {
const std::vector<std::string> kMaskNames = {"umask", "tmask", "mask", "land_mask", "ocean_mask"};

/// The usual names, then CICE's own: aice_h is aice averaged over hours, aice_d over days, aice_1 one step's.
std::vector<std::string> history_names(const KnownColumn& column) {
  std::vector<std::string> names(column.history_names.begin(), column.history_names.end());
  for (const std::string name : column.history_names) {
    if (!name.ends_with("_h")) continue;
    for (const char* period : {"", "_1", "_d", "_m", "_y"}) names.push_back(name.substr(0, name.size() - 2) + period);
  }
  return names;
}

/// The variable of a short name: the user's choice, or the first usual name that the file has.
std::optional<std::string> history_variable(const NcFile& file, const std::string& name,
                                            const HistoryOptions& options) {
  if (const auto chosen = options.names.find(name); chosen != options.names.end()) return chosen->second;
  if (name == "lat") return first_present(file, {"ULAT", "lat", "latitude", "TLAT"});
  if (name == "lon") return first_present(file, {"ULON", "lon", "longitude", "TLON"});
  if (name == "mask") return first_present(file, kMaskNames);
  const KnownColumn* known = find_column(name);
  if (known == nullptr) return {};
  return first_present(file, history_names(*known));
}

[[noreturn]] void fail_missing(const NcFile& file, const std::string& name) {
  std::string tried;
  if (const KnownColumn* known = find_column(name)) {
    tried = listed(history_names(*known));
  } else {
    tried = name == "mask"  ? listed(kMaskNames)
            : name == "lat" ? "ULAT, lat, latitude, TLAT"
                            : "ULON, lon, longitude, TLON";
  }
  throw Error(Fault::data, join("reading '", file.path().string(), "': no variable for '", name, "' (tried ", tried,
                                "); name it with --names ", name, "=VARIABLE",
                                find_column(name) != nullptr ? ", or fill it with --missing zero" : ""));
}
}  // namespace

Candidates read_history(const HistoryOptions& options, const Selection& selection) {
  Candidates out = start_candidates(selection.columns_needed());
  for (const auto& path : options.files) {
    const NcFile file = NcFile::open(path);
    const auto place = [&](const std::string& name) {
      const auto variable = history_variable(file, name, options);
      if (!variable) fail_missing(file, name);
      return ColumnSpec{name, *variable};
    };
    std::vector<ColumnSpec> specs = {place("lat"), place("lon"), place("mask")};
    for (const auto& column : out.columns) {
      const auto variable = history_variable(file, column.name, options);
      if (variable) specs.push_back({column.name, *variable});
      if (!variable && selection.missing != "zero") fail_missing(file, column.name);
    }
    const Grid grid = common_grid(file, specs);
    FilePoints points;
    points.place = specs[0].variable + ", " + specs[1].variable;
    points.lat = read_on_grid(file, specs[0], grid);
    points.lon = read_on_grid(file, specs[1], grid);
    for (const double mask : read_on_grid(file, specs[2], grid)) points.valid.push_back(mask == 1);
    out.mask = specs[2].variable + " == 1";
    points.times = read_times(file, grid, coordinates_of(file, specs.back().variable));
    for (const ColumnSpec& spec : std::span(specs).subspan(3))
      take_variable(out, spec, file, read_on_grid(file, spec, grid));
    points.grid = grid;
    append_points(out, std::move(points), path);
  }
  return out;
}

bool run_cice_history(const Args& args) {
  Options options(
      "lockstep-prep cice-history", "Columns of sea-ice history files, one row per water point.",
      "Keeps the points with mask 1 in file order. Variables are found by the names that CICE and related models "
      "use (aice_h, aicen, aice, aice_d, ...); --names overrides them.");
  options.section("input", "What to read from the files");
  SourceOptions common(options);
  Selection selection;
  std::vector<std::string> names;
  options.add("input.names,names=SHORT=VARIABLE,...", &names, {},
              "variables by short name, including lat, lon and mask");
  add_selection_options(options, selection, kDefaultInputs, kDefaultOutputs);
  options.example("lockstep-prep cice-history --input gdas.ice.t00z.inst.f006.nc --output seaice.h5",
                  "the fourteen default inputs and aice, all points");
  options.example(
      "lockstep-prep cice-history --input 'hist/*.nc' --inputs sst,sss,tair,hi,hs --mask-mode sea_ice --pole north "
      "--output arctic.h5",
      "five inputs, northern ice, all files of a folder");
  if (!options.parse(args)) return false;
  check_selection(selection);
  HistoryOptions history{expand_files(common.input), parse_names(names, "input.names")};
  require_known(selection.columns_needed(), history.names, "cice-history");
  require_writable(common.output, history.files);
  write_selected(common, read_history(history, selection), selection);
  return true;
}

}  // namespace lockstep::prep
