#include "lockstep/prep/emulator/grid.hpp"

#include "prep/raw_file.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
ColumnSpec parse_one(const char* text) {
  const auto columns = parse_columns(text);
  CHECK(columns.size() == 1);
  return columns.front();
}
}  // namespace

TEST_SUITE("prep.grid") {
  TEST_CASE("columns are read as written") {
    const auto full = parse_one("tk=temperature@-1*2.5+273.15");
    CHECK(full.short_name == "tk");
    CHECK(full.variable == "temperature");
    CHECK(full.level.value() == -1);
    CHECK(full.scale == 2.5);
    CHECK(full.offset == 273.15);
    CHECK(parse_one("sst").variable == "sst");
    CHECK(parse_one("sst").short_name == "sst");
    CHECK(parse_one("a=MetaData/x*1e-3-2").offset == -2);
    CHECK(parse_one("a=b@3").level.value() == 3);
    for (const char* bad : {"", "=x", "a=", "a=b@", "a=b@x", "a=b*", "a=b*2+", "a=b*2+3x", "a=b@1.5", "a=b*inf",
                            "a=b@2:1", "a=b@-1:2", "a=b@0:", "a=b@0:20000"}) {
      CAPTURE(bad);
      check_mentions(error_of(Fault::usage, [&] { parse_one(bad); }), "expected short=name");
    }
  }

  TEST_CASE("a range of levels stands for one column each") {
    const auto names = [](const char* text) {
      std::vector<std::string> out;
      for (const auto& column : parse_columns(text))
        out.push_back(join(column.short_name, "=", column.variable, "@", *column.level, "*", column.scale));
      return out;
    };
    CHECK(names("t=temp@3:5*2") == std::vector<std::string>{"t_3=temp@3*2", "t_4=temp@4*2", "t_5=temp@5*2"});
    CHECK(names("temp@-2:-1") == std::vector<std::string>{"temp_-2=temp@-2*1", "temp_-1=temp@-1*1"});
  }

  TEST_CASE("masks are conjunctions of comparisons, and missing values pass none") {
    const auto terms = parse_mask("mask == 1 and depth >= -10.5 and slmsk!=2");
    REQUIRE(terms.size() == 3);
    CHECK(terms[1].variable == "depth");
    CHECK(terms[1].value == -10.5);
    CHECK(terms[2].op == "!=");
    CHECK(parse_mask("").empty());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::pair<const char*, std::vector<bool>> table[] = {
        {"==", {false, true, false}}, {"!=", {true, false, true}}, {"<", {true, false, false}},
        {"<=", {true, true, false}},  {">", {false, false, true}}, {">=", {false, true, true}}};
    for (const auto& [op, expected] : table) {
      CAPTURE(op);
      for (int i = 0; i < 3; ++i) CHECK(satisfies(i, {"v", op, 1}) == expected[to_size(i)]);
      CHECK_FALSE(satisfies(nan, {"v", op, 1}));
    }
    for (const char* bad :
         {"mask", "mask == ", "== 1", "mask = 1", "mask == 1 and", "mask == 1 or x == 2", "mask =! 1"}) {
      CAPTURE(bad);
      CHECK(error_of(Fault::usage, [&] { parse_mask(bad); }) != "no error");
    }
  }

  TEST_CASE("days are those of the calendar") {
    CHECK(parse_day("2016-02-05") == 16836);
    CHECK(parse_day("1970-02-30", Calendar::days_360) == 59);
    for (const char* bad : {"2016-02-30", "5 Feb", "2016-02", "2016-02-05x", "2016-257-05", "70000000-01-01"})
      CHECK(error_of(Fault::usage, [&] { parse_day(bad); }) != "no error");
  }

  TEST_CASE("levels are chosen, and smaller variables are repeated over the grid") {
    write_netcdf("a.nc", NC_64BIT_OFFSET, {{"time", 2}, {"depth", 3}, {"Y", 2}, {"X", 2}, {"odd", 2}, {"step", 2}},
                 {{"temperature", NC_DOUBLE, {"time", "depth", "Y", "X"}, counting(24)},
                  {"last", NC_DOUBLE, {"Y", "X", "depth"}, counting(12)},
                  {"ice", NC_DOUBLE, {"time", "Y", "X"}, counting(8)},
                  {"mask", NC_DOUBLE, {"Y", "X"}, {1, 0, 1, 1}},
                  {"layered", NC_DOUBLE, {"odd", "Y", "X"}, counting(8)},
                  {"stepped", NC_DOUBLE, {"step", "Y", "X"}, counting(8)},
                  {"step", NC_DOUBLE, {"step"}, {0, 6}, {{"units", "hours since 2016-02-01"}}},
                  {"Y", NC_DOUBLE, {"Y"}, {60, 61}},
                  {"time", NC_DOUBLE, {"time"}, {0, 1.5}, {{"units", "days since 2016-02-01"}}}});
    write_netcdf("place.nc", 0, {{"lat", 2}, {"lon", 2}, {"odd", 5}},
                 {{"geolat", NC_DOUBLE, {"lat", "lon"}, {1, 2, 3, 4}}, {"odd", NC_DOUBLE, {"odd"}, counting(5)}});
    const auto file = NcFile::open("a.nc");
    const std::vector<ColumnSpec> columns = {parse_one("ice"), parse_one("t=temperature@1"), parse_one("mask")};
    const Grid grid = common_grid(file, columns);
    CHECK(grid.shape == std::vector<std::int64_t>{2, 2, 2});
    CHECK(read_on_grid(file, columns[1], grid) == std::vector<double>{4, 5, 6, 7, 16, 17, 18, 19});
    CHECK(read_on_grid(file, parse_one("t=temperature@-1*2+1"), grid) ==
          std::vector<double>{17, 19, 21, 23, 41, 43, 45, 47});
    CHECK(read_on_grid(file, parse_one("l=last@2"), grid) == std::vector<double>{2, 5, 8, 11, 2, 5, 8, 11});
    CHECK(read_on_grid(file, columns[2], grid) == std::vector<double>{1, 0, 1, 1, 1, 0, 1, 1});
    CHECK(read_on_grid(file, parse_one("Y"), grid) == std::vector<double>{60, 60, 61, 61, 60, 60, 61, 61});
    CHECK(read_times(file, grid).seconds[3] == 1454284800);
    CHECK(read_times(file, grid).seconds[4] == 1454284800 + 129600);
    check_mentions(error_of(Fault::usage, [&] { common_grid(file, {parse_one("temperature")}); }), "depth = 3",
                   "choose a level");
    check_mentions(error_of(Fault::usage, [&] { common_grid(file, {parse_one("m=mask@0")}); }), "no levels");
    check_mentions(error_of(Fault::usage, [&] { read_on_grid(file, parse_one("t=temperature@3"), grid); }),
                   "depth has 3");
    // The first of three axes is a level only if it is not the time.
    check_mentions(error_of(Fault::usage, [&] { common_grid(file, {parse_one("i=ice@0")}); }), "time = 2", "no levels");
    check_mentions(error_of(Fault::usage, [&] { common_grid(file, {parse_one("s=stepped@0")}); }), "no levels");
    const Grid of_layers = common_grid(file, {parse_one("l=layered@1")});
    CHECK(read_on_grid(file, parse_one("l=layered@1"), of_layers) == std::vector<double>{4, 5, 6, 7});

    const auto place = NcFile::open("place.nc");
    CHECK(read_on_grid(place, parse_one("geolat"), grid) == std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4});
    check_mentions(error_of(Fault::data, [&] { read_on_grid(place, parse_one("odd"), grid); }), "do not fit");
  }

  TEST_CASE("dimensions of equal length but different names are not one axis") {
    write_netcdf("a.nc", NC_64BIT_OFFSET, {{"yh", 2}, {"xh", 2}, {"xq", 2}, {"one", 1}},
                 {{"t", NC_DOUBLE, {"yh", "xh"}, counting(4)},
                  {"u", NC_DOUBLE, {"yh", "xq"}, counting(4)},
                  {"deep", NC_DOUBLE, {"one", "yh", "xh"}, counting(4)}});
    write_netcdf("place.nc", NC_64BIT_OFFSET, {{"lat", 2}, {"lon", 2}},
                 {{"lat", NC_DOUBLE, {"lat"}, {60, 70}}, {"geolat", NC_DOUBLE, {"lat", "lon"}, {1, 2, 3, 4}}});
    const auto file = NcFile::open("a.nc"), place = NcFile::open("place.nc");
    const Grid grid = common_grid(file, {parse_one("t")});
    check_mentions(error_of(Fault::data, [&] { read_on_grid(file, parse_one("u"), grid); }), "reading 'u'", "xq = 2",
                   "do not fit", "xh = 2", "interpolate");
    CHECK_FALSE(fits_grid(file, "u", grid));
    CHECK(read_on_grid(file, parse_one("deep"), grid) == counting(4));
    CHECK(fits_grid(place, "geolat", grid));
    CHECK_FALSE(fits_grid(place, "lat", grid));  // by length it would go along x
  }
}
