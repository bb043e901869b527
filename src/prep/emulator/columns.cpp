#include "lockstep/prep/emulator/columns.hpp"

#include <algorithm>

#include "lockstep/base/text.hpp"

namespace lockstep::prep {

namespace {
const std::vector<KnownColumn> kColumns = {
    {"aice", "sea_ice_area_fraction", {"aice_h", "aicen", "aice", "ice_concentration"}, "ocean", ""},
    {"tsfc",
     "surface_temperature",
     {"Tsfc_h", "tsfc", "surface_temperature"},
     "atmosphere",
     "skin_temperature_at_surface"},
    {"sst",
     "sea_surface_temperature",
     {"sst_h", "sst", "sea_surface_temperature"},
     "ocean",
     "sea_water_potential_temperature"},
    {"sss", "sea_surface_salinity", {"sss_h", "sss", "sea_surface_salinity"}, "ocean", "sea_water_salinity"},
    {"sice", "sea_ice_salinity", {"sice_h", "sice", "ice_salinity"}, "ocean", ""},
    {"hi", "sea_ice_thickness", {"hi_h", "hicen", "hi", "ice_thickness"}, "ocean", ""},
    {"hs", "surface_snow_thickness", {"hs_h", "hsnon", "hs", "snow_thickness"}, "ocean", "sea_ice_snow_thickness"},
    {"tair", "air_temperature", {"Tair_h", "tair", "air_temperature"}, "atmosphere", ""},
    {"frzmlt", "freeze_melt_potential", {"frzmlt_h", "frzmlt", "freeze_melt_potential"}, "", ""},
    {"strocnx", "downward_x_stress_at_sea_ice_base", {"strocnx_h", "strocnx"}, "", ""},
    {"strocny", "downward_y_stress_at_sea_ice_base", {"strocny_h", "strocny"}, "", ""},
    {"strairx", "surface_downward_x_stress", {"strairx_h", "strairx"}, "", ""},
    {"strairy", "surface_downward_y_stress", {"strairy_h", "strairy"}, "", ""},
    {"qref", "specific_humidity", {"Qref_h", "qref"}, "atmosphere", "water_vapor_mixing_ratio_wrt_moist_air"},
    {"flwdn", "surface_downwelling_longwave_flux_in_air", {"flwdn_h", "flwdn"}, "", ""},
    {"fswdn", "surface_downwelling_shortwave_flux_in_air", {"fswdn_h", "fswdn"}, "", ""},
    {"uocn", "eastward_sea_water_velocity", {"uocn_h", "uocn"}, "ocean", ""},
    {"vocn", "northward_sea_water_velocity", {"vocn_h", "vocn"}, "ocean", ""},
    {"uatm", "eastward_wind", {"uatm_h", "uatm"}, "atmosphere", ""},
    {"vatm", "northward_wind", {"vatm_h", "vatm"}, "atmosphere", ""},
    {"wind", "wind_speed", {"wind_h", "wind"}, "", ""},
    {"fcond", "downward_conductive_heat_flux_in_sea_ice", {"fcond_h", "fcondtop_h", "fcond"}, "", ""},
    {"thick", "sea_water_cell_thickness", {"thick_h", "thick"}, "ocean", ""},
};
}  // namespace

const KnownColumn* find_column(const std::string& short_name) {
  for (const auto& column : kColumns)
    if (short_name == column.short_name) return &column;
  return nullptr;
}

void require_known(const std::vector<std::string>& names, const std::map<std::string, std::string>& also,
                   const std::string& source) {
  std::vector<std::string> all;
  for (const auto& column : kColumns) all.emplace_back(column.short_name);
  for (const auto& [name, _] : also) all.push_back(name);
  for (const auto& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    const std::string near = nearest(name, all);
    throw Error(Fault::usage,
                join("unknown variable '", name, "'", near.empty() ? "" : "; did you mean '" + near + "'?",
                     near.empty() ? "; define it with --names " + name + "=VARIABLE" : "", " (see lockstep-prep ",
                     source, " --help)"));
  }
}

std::map<std::string, std::string> parse_names(const std::vector<std::string>& pairs, const std::string& option) {
  std::map<std::string, std::string> names;
  for (const auto& pair : pairs) {
    const auto equals = pair.find('=');
    const std::string name = trim(pair.substr(0, equals)),
                      variable = equals == std::string::npos ? "" : trim(pair.substr(equals + 1));
    require_usage(!name.empty() && !variable.empty(), "option ", option, ": '", pair,
                  "' is not of the form short=variable");
    require_usage(names.emplace(name, variable).second, "option ", option, ": '", name, "' is given twice");
  }
  return names;
}

std::optional<std::string> first_present(const NcFile& file, const std::vector<std::string>& names) {
  for (const auto& name : names)
    if (file.has(name)) return name;
  return {};
}

}  // namespace lockstep::prep
