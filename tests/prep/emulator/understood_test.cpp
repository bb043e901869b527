/// What the sources of NetCDF files understood: pairs, times, fill values, units. As users run them.
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "prep/program.hpp"
#include "prep/raw_file.hpp"
#include "support/test.hpp"

namespace {
prep::EmulatorSet read(const fs::path& path) { return prep::read_emulator_set(H5File::open(path)); }

using Texts = std::vector<RawAttribute>;

constexpr std::size_t kLats = 6, kLons = 8;

/// A grid of 6 x 8 places on some days of 2020, and how a file writes it.
struct Layout {
  std::vector<double> lats = {-75, -45, -15, 15, 45, 75}, lons = {0, 45, 90, 135, 180, 225, 270, 315}, days = {0, 1};
  bool transposed = false;   ///< (lon, lat, time)
  bool curvilinear = false;  ///< TLAT(y, x) and TLON(y, x)
  bool placed = true;        ///< has latitude and longitude
  nc_type type = NC_DOUBLE;
  std::string units = "days since 2020-01-01", calendar = "standard";
};
/// A field that tells every place and day apart.
double field(double lat, double lon, double day) { return 250 + lat / 3 + std::fmod(lon + 720, 360) / 100 + day; }

/// Writes `variables` with the field times a factor of their own, to which `offset` is added.
void write_field(const std::string& name, const Layout& l,
                 const std::vector<std::tuple<std::string, double, double>>& variables) {
  const std::string y = l.curvilinear ? "y" : "lat", x = l.curvilinear ? "x" : "lon";
  std::vector<RawVariable> written;
  std::vector<double> lat2, lon2;
  for (const double lat : l.lats)
    for (const double lon : l.lons) {
      lat2.push_back(lat);
      lon2.push_back(lon);
    }
  if (l.curvilinear)
    written = {{"TLAT", l.type, {y, x}, lat2}, {"TLON", l.type, {y, x}, lon2}};
  else if (l.placed)
    written = {{"lat", l.type, {y}, l.lats, {{"units", "degrees_north"}}},
               {"lon", l.type, {x}, l.lons, {{"units", "degrees_east"}}}};
  if (!l.units.empty())
    written.push_back({"time", NC_DOUBLE, {"time"}, l.days, {{"units", l.units}, {"calendar", l.calendar}}});
  for (const auto& [variable, factor, offset] : variables) {
    std::vector<double> values;
    const auto add = [&, f = factor, o = offset](double lat, double lon, double day) {
      values.push_back(field(std::round(lat), std::round(lon), day) * f + o);
    };
    if (l.transposed) {
      for (const double lon : l.lons)
        for (const double lat : l.lats)
          for (const double day : l.days) add(lat, lon, day);
    } else {
      for (const double day : l.days)
        for (const double lat : l.lats)
          for (const double lon : l.lons) add(lat, lon, day);
    }
    const std::vector<std::string> axes = {"time", y, x};
    written.push_back(
        {variable, NC_DOUBLE, l.transposed ? std::vector{x, y, axes[0]} : axes, values, {{"units", "1"}}});
  }
  write_netcdf(name, NC_NETCDF4, {{"time", l.days.size()}, {y, l.lats.size()}, {x, l.lons.size()}}, written);
}

void write_ocean(const Layout& layout) {
  write_field("ocean.nc", layout,
              {{"sea_water_potential_temperature", 1, -273},
               {"sea_water_cell_thickness", 0, 5},
               {"sea_ice_area_fraction", 0.001, 0}});
}
const std::string kPair = "cf-pair --atmosphere air.nc --ocean ocean.nc --inputs sst,tair --outputs aice ";

std::vector<double> reversed(std::vector<double> values) {
  std::ranges::reverse(values);
  return values;
}
}  // namespace

TEST_SUITE("prep.understood") {
  TEST_CASE("the points of two files are paired by latitude, longitude and time, however they are written") {
    const Layout ocean;
    const std::pair<const char*, Layout> cases[] = {
        {"in the same order", {}},
        {"in the same order",
         {.lats = {-75, -44.996, -15, 15, 45, 75},
          .lons = {359.999, 45, 90, 135, 180, 225, 270, 315},
          .type = NC_FLOAT}},
        {"reordered", {.lats = reversed(ocean.lats)}},
        {"reordered", {.lons = {-180, -135, -90, -45, 0, 45, 90, 135}}},
        {"reordered", {.lons = {-180, -135, -90, -45, -1e-6, 45, 90, 135}, .type = NC_FLOAT}},
        {"reordered", {.transposed = true}},
        {"reordered", {.days = {1, 0}}},
        {"in the same order, 48 points of the second left aside", {.days = {-1, 0, 1}}},
        {"in the same order", {.days = {0, 24}, .units = "hours since 2019-12-31 23:00 -1:00"}},
        {"in the same order", {.calendar = "proleptic_gregorian"}},
        {"in the same order", {.curvilinear = true}},
        {"reordered", {.lats = reversed(ocean.lats), .lons = reversed(ocean.lons), .curvilinear = true}}};
    write_ocean(ocean);
    for (const auto& [order, air] : cases) {
      const bool hours = air.units.starts_with("hours");  // the field counts days
      write_field("air.nc", air, {{"air_temperature", 1, 0}});
      check_mentions(prepare(kPair + "-o p.h5"),
                     std::string("with air.nc by latitude, longitude and time, ") + order + "\n");
      const auto set = read("p.h5");
      REQUIRE(set.rows() == 96);
      for (std::size_t i = 0; i < 96 && !hours; ++i) CHECK(set.x[2 * i + 1] == Approx(set.x[2 * i] + 273));
    }
  }

  TEST_CASE("points without a partner are refused with the coordinates of both files") {
    const Layout ocean;
    write_ocean(ocean);
    const std::pair<Layout, std::pair<const char*, const char*>> cases[] = {
        {{.days = {9, 10}},
         {"time 2020-01-01 00:00 of the first has no partner", "time 2020-01-10 00:00 to 2020-01-11 00:00"}},
        {{.days = {0.5, 1.5}}, {"no partner", "2020-01-01 12:00"}},
        {{.lons = {22.5, 67.5, 112.5, 157.5, 202.5, 247.5, 292.5, 337.5}},
         {"longitude 0, time", "longitude 22.5 to 337.5"}},
        {{.lats = {-74, -44, -14, 16, 46, 76}}, {"latitude -75", "latitude -74 to 76"}},
        {{.days = {0}},
         {"time 2020-01-02 00:00 of the first",
          "(96 points) and latitude -75 to 75, longitude 0 to 315, time 2020-01-01 00:00 to 2020-01-01 00:00 (48 "
          "points)"}},
        {{.lons = {0, 45, 90, 180, 180, 225, 270, 315}}, {"longitude 135", "longitude 135"}},
        {{.calendar = "noleap"}, {"count in the calendar standard", "noleap"}}};
    for (const auto& [air, words] : cases) {
      write_field("air.nc", air, {{"air_temperature", 1, 0}});
      check_refused(kPair + "-o p.h5", 3, "pairing 'ocean.nc' with 'air.nc'", words.first, words.second);
    }
    // Without dates, steps follow each other in both files.
    Layout air = ocean;
    air.units = "";
    air.lats = reversed(air.lats);
    write_field("air.nc", air, {{"air_temperature", 1, 0}});
    check_mentions(prepare(kPair + "-o p.h5"),
                   "latitude and longitude and, as times cannot be compared (no variable counts time from a date), the "
                   "order of time steps, reordered");
    CHECK(read("p.h5").x[1] == Approx(read("p.h5").x[0] + 273));
  }

  TEST_CASE("positions from another file are paired by the axes that both have, or by the positions of both") {
    Layout layout;
    write_field("a.nc", layout, {{"a", 1, 0}, {"b", 2, 0}});
    for (const bool by_position : {false, true}) {
      Layout place = layout;
      place.lats = reversed(place.lats);
      std::vector<double> lat, lon, mask;
      for (const double v : place.lats)
        for (const double w : place.lons) {
          lat.push_back(v);
          lon.push_back(w - 360);
          mask.push_back(v > 0 ? 1 : 0);
        }
      const std::string y = by_position ? "j" : "lat", x = by_position ? "i" : "lon";
      std::vector<RawVariable> written = {
          {"geolat", NC_DOUBLE, {y, x}, lat}, {"geolon", NC_DOUBLE, {y, x}, lon}, {"wet", NC_DOUBLE, {y, x}, mask}};
      if (!by_position) {
        written.push_back({"lat", NC_DOUBLE, {y}, place.lats, {{"units", "degrees_north"}}});
        written.push_back({"lon", NC_DOUBLE, {x}, place.lons, {{"units", "degrees_east"}}});
      }
      write_netcdf("place.nc", NC_NETCDF4, {{y, kLats}, {x, kLons}}, written);
      if (by_position) {
        layout.curvilinear = true;
        write_field("a.nc", layout, {{"a", 1, 0}, {"b", 2, 0}});
      }
      check_mentions(
          prepare("netcdf --input a.nc --geolocation place.nc --inputs a --outputs b --mask 'wet == 1' -o p.h5"),
          by_position ? "a.nc with place.nc by latitude, longitude, reordered"
                      : "a.nc with place.nc by lat, lon, reordered");
      const auto set = read("p.h5");
      REQUIRE(set.rows() == 48);
      for (std::size_t i = 0; i < 48; ++i) {
        CHECK(set.lat[i] > 0);
        const double day = i < 24 ? 0 : 1;
        CHECK(set.x[i] == Approx(field(set.lat[i], set.lon[i], day)));
      }
    }
  }

  TEST_CASE("points that nothing but their order pairs are a warning; grids of two sizes are refused") {
    Layout sea, air;
    air.placed = false;
    const auto write = [&] {
      write_ocean(sea);
      write_field("air.nc", air, {{"air_temperature", 1, 0}});
    };
    write();
    const std::string grid = "(time = 2, lat = 6, lon = 8)";
    const std::string warning = "pairing ocean.nc with air.nc, " + grid + " and " + grid + ": by index, as neither";
    check_mentions(prepare(kPair + "-o p.h5"), " ocean.nc with air.nc by index\n", warning,
                   "add latitude and longitude to both");
    check_mentions(prepare("check p.h5"), warning);
    check_refused(kPair + "--strict -o q.h5", 3, warning);
    air.lats.pop_back();
    write();
    check_refused(kPair + "-o q.h5", 3, "their grids " + grid + " and (time = 2, lat = 5, lon = 8) differ");
    air.placed = true;
    write();
    check_refused(
        "netcdf --input ocean.nc --geolocation air.nc --inputs sea_water_cell_thickness "
        "--outputs sea_ice_area_fraction -o q.h5",
        3, "'air.nc': no latitude on the grid " + grid + " of 'ocean.nc'");
  }

  TEST_CASE("a split by time needs the order of the axis only; days are those of the calendar") {
    const std::string words = "netcdf --input a.nc --inputs a --outputs b --val-fraction 0.3 ";
    Layout layout{.days = {740, 741, 742}, .units = "days since 0001-01-01"};
    const auto write = [&](const std::string& units, const std::string& calendar) {
      layout.units = units;
      layout.calendar = calendar;
      write_field("a.nc", layout, {{"a", 1, 0}, {"b", 2, 0}});
    };
    const auto last = [&] {
      const auto set = read("o.h5");
      for (std::size_t i = 0; i < 144; ++i) CHECK(set.split[i] == (i >= 96 ? 1 : 0));
      return set.time[100];
    };
    write("days since 0001-01-01", "noleap");
    check_mentions(prepare(words + "--split-by time -o o.h5"), "time, days since 0001-01-01, calendar noleap",
                   "0003-01-11 00:00 to 0003-01-13 00:00, 3 steps");
    CHECK(last() == -(1967LL * 365 - 12) * 86400);
    CHECK(H5File::open("o.h5").text_attribute("/", "calendar") == "noleap");
    prepare(words + "--test-days 0003-01-12 -o o.h5");
    CHECK(read("o.h5").rows_in(2) == 48);
    check_refused(words + "--test-days 0003-02-29 -o o.h5", 2, "expected a date of the noleap calendar");
    check_refused(words + "--test-days 0004-01-01 -o o.h5", 3, "no row is of 0004-01-01; the rows are of 0003-01-11");
    write("days since 2000-01-01", "none");
    check_mentions(prepare(words + "--split-by time -o o.h5"), "the calendar 'none' of time is not read");
    CHECK(last() == 0);
    check_refused(words + "--test-days 2002-01-12 -o o.h5", 3, "the calendar 'none' of time is not read");
    write("fortnights since 2000-01-01", "standard");
    check_mentions(prepare(words + "--split-by time -o o.h5"), "the unit 'fortnights since 2000-01-01' of time");
    CHECK(last() == 0);
    write("", "");
    prepare(words + "--split-by time -o o.h5");
    CHECK(last() == 0);
    layout.days = {0, 0, 1};
    write("days since 2000-01-01", "standard");
    check_mentions(prepare(words + "-o o.h5"),
                   "warning: times of time in 'a.nc' do not rise: entry 1 is 2000-01-01 00:00 after 2000-01-01");
    fs::copy("a.nc", "b.nc");
    check_mentions(prepare("netcdf --input a.nc,b.nc --inputs a --outputs b -o o.h5"),
                   "2000-01-01 00:00 is in a.nc and in b.nc for the same places");
  }

  TEST_CASE("thresholds compare as single precision stores numbers, and a column that it cannot hold is named") {
    const auto single = [](double v) { return static_cast<double>(static_cast<float>(v)); };
    write_netcdf("s.nc", NC_NETCDF4, {{"n", 4}},
                 {{"part", NC_FLOAT, {"n"}, {single(0.1), single(0.2), single(0.1), single(0.05)}, {}},
                  {"aice", NC_FLOAT, {"n"}, {single(0.15), single(0.15), single(0.3), single(0.7)}, {}},
                  {"day", NC_DOUBLE, {"n"}, {2459000.51, 2459000.52, 2459000.53, 2459000.54}, {}},
                  {"q", NC_FLOAT, {"n"}, {1, 2, 3, 4}, {}}});
    const auto cells = [](const std::string& words) {
      prepare(
          "netcdf --input s.nc --inputs part --outputs q --variables.constant_outputs keep --val-fraction 0 -o o.h5 " +
          words);
      return read("o.h5").cell;
    };
    CHECK(cells("--mask 'part > 0.1'") == std::vector<std::int64_t>{1});
    CHECK(cells("--mask 'part == 0.1'") == std::vector<std::int64_t>{0, 2});
    CHECK(cells("--mask 'part <= 0.1'") == std::vector<std::int64_t>{0, 2, 3});
    CHECK(cells("--mask-mode sea_ice --min-ice 0.15") == std::vector<std::int64_t>{2, 3});
    CHECK(cells("--mask 'day >= 2459000.53'") == std::vector<std::int64_t>{2, 3});
    check_mentions(prepare("netcdf --input s.nc --inputs day --outputs q --val-fraction 0 -o o.h5"),
                   "warning: column day: single precision, in which rows are stored, changes values by up to 0.0",
                   "subtract an offset, as in day=day*1-2459000");
    CHECK_FALSE(contains(prepare("netcdf --input s.nc --inputs day=day*1-2459000 --outputs q --val-fraction 0 -o o.h5"),
                         "warning"));
  }

  TEST_CASE("thresholds of ice are fractions, also of a column in percent; units that differ or mislead are named") {
    const auto write = [](const char* name, const std::string& units, double factor, const std::string& of_sst = "K") {
      const auto unit = [](const std::string& text) { return text.empty() ? Texts{} : Texts{{"units", text}}; };
      write_netcdf(name, NC_NETCDF4, {{"n", 20}},
                   {{"aice", NC_DOUBLE, {"n"}, counting(20, 0.05 * factor), unit(units)},
                    {"sst", NC_DOUBLE, {"n"}, counting(20), unit(of_sst)},
                    {"b", NC_DOUBLE, {"n"}, counting(20, 3), unit("1")}});
    };
    const std::string words =
        " --inputs b,aice --outputs sst=sst*1 --mask-mode sea_ice --min-ice 0.175 -o o.h5 --input ";
    write("percent.nc", "%", 100);
    check_mentions(prepare("netcdf --units sst=degC" + words + "percent.nc"),
                   "aice is in %: the threshold 0.175 is 17.5 %");
    CHECK(read("o.h5").rows() == 16);
    write("fraction.nc", "1", 1);
    prepare("netcdf" + words + "fraction.nc");
    CHECK(read("o.h5").rows() == 16);
    CHECK(read("o.h5").min_ice == 0.175);
    write("hidden.nc", "", 100);
    check_mentions(prepare("netcdf" + words + "hidden.nc"),
                   "warning: column aice: values of 5 to 95 are unlikely in the unit 1", "--units aice=%");
    prepare("netcdf --units aice=%" + words + "hidden.nc");
    CHECK(read("o.h5").rows() == 16);
    check_mentions(prepare("netcdf --inputs b --outputs sst --min-ice 0.175 --lat-min 60 -o o.h5 --input fraction.nc"),
                   "warning: domain.min_ice_concentration = 0.175 chooses no points, because domain.mask_mode = both",
                   "warning: domain.lat_min = 60 chooses no points, because domain.pole = all");
    write("small.nc", "Percent", 1);
    check_refused("netcdf" + words + "small.nc", 3, "aice > 17.5 %", "--units aice=1");
    check_mentions(prepare("netcdf --input small.nc --inputs b,aice --outputs sst -o o.h5"),
                   "values of 0 to 0.95 are unlikely in 'Percent'", "values of 0 to 19 are unlikely in 'K'");
    write("none.nc", "1", 1, "");
    check_mentions(prepare("netcdf --input fraction.nc,none.nc --inputs b --outputs sst -o o.h5"),
                   "column sst: 1 of 2 files state no unit (the first is none.nc), the others K");
    const auto strict = prepare("netcdf --strict --input fraction.nc,none.nc --inputs b --outputs sst -o s.h5", 3);
    CHECK_FALSE(fs::exists("s.h5"));
  }

  TEST_CASE("positions are found by their meaning, in radians too, and impossible ones are warned of") {
    const auto write = [](const std::string& lat, const Texts& of_lat, const std::string& lon, const Texts& of_lon,
                          double factor) {
      write_netcdf("a.nc", NC_NETCDF4, {{"j", 3}, {"i", 4}},
                   {{lat, NC_DOUBLE, {"j"}, {60 * factor, 70 * factor, 80 * factor}, of_lat},
                    {lon, NC_DOUBLE, {"i"}, {100 * factor, 110 * factor, 120 * factor, 130 * factor}, of_lon},
                    {"a", NC_DOUBLE, {"j", "i"}, counting(12)},
                    {"b", NC_DOUBLE, {"j", "i"}, counting(12)}});
    };
    const auto text = [&](const std::string& more = "") {
      return prepare("netcdf --input a.nc --inputs a --outputs b -o o.h5 " + more);
    };
    write("Y", {{"standard_name", "latitude"}}, "X", {{"standard_name", "longitude"}}, 1);
    check_mentions(text(), "positions          Y, X\n", "latitude 60 to 80, longitude 100 to 130 degrees");
    write("yc", {{"units", "degreesN"}}, "xc", {{"units", "degree_E"}}, 1);
    check_mentions(text(), "positions          yc, xc\n");
    write("yc", {{"units", "degrees"}, {"axis", "Y"}}, "xc", {{"units", "degrees"}, {"axis", "X"}}, 1);
    check_mentions(text(), "positions          yc, xc\n");
    write("clat", {{"standard_name", "latitude"}, {"units", "radian"}}, "clon",
          {{"standard_name", "longitude"}, {"units", "radian"}}, std::numbers::pi / 180);
    check_mentions(text(), "latitude 60 to 80, longitude 100 to 130 degrees");
    write("rlat", {{"standard_name", "grid_latitude"}, {"units", "degrees"}, {"axis", "Y"}}, "x",
          {{"standard_name", "projection_x_coordinate"}, {"units", "m"}, {"axis", "X"}}, 1);
    check_mentions(text(), "positions          unknown");
    write("lon", {}, "lat", {}, 1);
    check_mentions(text(), "as if they were exchanged; name them with --lat and --lon");
    check_mentions(text("--lat lon --lon lat"), "latitude 60 to 80");
    write("lat", {}, "lon", {}, 1e30);
    check_mentions(text(), "12 of 12 latitudes lie beyond -90 to 90 and 12 longitudes");
  }

  TEST_CASE("variables in groups, and CICE's own names with and without the period of their means") {
    write_netcdf("g.nc", NC_NETCDF4, {{"n", 2}}, {{"PRODUCT/sst", NC_FLOAT, {"n"}, {}}});
    check_refused("netcdf --input g.nc --inputs sst --outputs b -o o.h5", 2, "did you mean 'PRODUCT/sst'?");
    for (const std::string period : {"", "_h", "_d", "_m", "_1"}) {
      write_netcdf("h.nc", NC_NETCDF4, {{"nj", 3}, {"ni", 4}},
                   {{"TLAT", NC_DOUBLE, {"nj", "ni"}, counting(12, 7)},
                    {"TLON", NC_DOUBLE, {"nj", "ni"}, counting(12, 30)},
                    {"tmask", NC_DOUBLE, {"nj", "ni"}, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
                    {"aice" + period, NC_DOUBLE, {"nj", "ni"}, counting(12, 0.05)},
                    {"Tair" + period, NC_DOUBLE, {"nj", "ni"}, counting(12)}});
      const std::string text = prepare("cice-history --input h.nc --inputs tair --outputs aice -o o.h5");
      check_mentions(text, "tair=Tair" + period + " ", "masked out         1  (not: tmask == 1)");
      CHECK(read("o.h5").x[0] == 1);
    }
  }
}
