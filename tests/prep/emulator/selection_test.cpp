#include "lockstep/prep/emulator/selection.hpp"

#include "lockstep/prep/files.hpp"
#include "prep/emulator/candidates.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// 100 points: aice = 0, .01, .. .99, latitude -99 .. 99 in steps of 2 (clipped to 89), sst 0.1 degrees apart from -2
/// on.
Candidates sample() {
  Candidates c = start_candidates({"sst", "aice", "hi"});
  for (int i = 0; i < 100; ++i) {
    c.columns[0].values.push_back(-2 + 0.1 * i);
    c.columns[1].values.push_back(i / 100.0);
    c.columns[2].values.push_back(1000 + i);
    c.lat.push_back(std::clamp(-99.0 + 2 * i, -89.0, 89.0));
    c.lon.push_back(i);
    c.time.push_back(1454284800 + 86400 * (i / 25) + 43200);  // four days from 2016-02-01
    c.cell.push_back(i);
    c.source.push_back(0);
    c.valid.push_back(1);
  }
  return c;
}

Selection defaults() {
  Selection s;
  s.inputs = {"sst", "hi"};
  s.outputs = {"aice"};
  s.mask_mode = "both";
  s.pole = "all";
  s.missing = "error";
  s.max_patterns = 1000;
  s.subsample = "random";
  s.split_by = "random";
  s.moments = "train";
  return s;
}

std::vector<std::int64_t> cells(const Candidates& c, const Selection& s) {
  SelectionReport report;
  return select_rows(c, s, report).cell;
}
std::vector<std::int64_t> range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> out(to_size(end - first));
  std::iota(out.begin(), out.end(), first);
  return out;
}
struct Sample {
  Candidates c = sample();
  Selection s = defaults();
  SelectionReport report;
};
}  // namespace

TEST_SUITE("prep.selection") {
  TEST_CASE_FIXTURE(Sample, "mask modes cut at the threshold, strictly unless told otherwise") {
    s.min_ice = 0.15;
    CHECK(cells(c, s) == range(0, 100));
    s.mask_mode = "sea_ice";
    CHECK(cells(c, s) == range(16, 100));
    s.ice_ge = true;
    CHECK(cells(c, s) == range(15, 100));
    s.mask_mode = "ocean";
    CHECK(cells(c, s) == range(0, 15));
    s.min_ice = 0;
    s.mask_mode = "sea_ice";
    CHECK(cells(c, s) == range(0, 100));  // the pitfall of >= with threshold 0
    s.ice_ge = false;
    CHECK(cells(c, s) == range(1, 100));
  }

  TEST_CASE_FIXTURE(Sample, "poles split by latitude, clean ones by ice too") {
    s.lat_min = 40;
    s.pole = "north";
    CHECK(cells(c, s) == range(70, 100));
    s.pole = "south";
    CHECK(cells(c, s) == range(0, 30));
    s.pole_clean = true;
    CHECK(cells(c, s) == range(1, 30));
    s.pole = "both";
    s.pole_clean = false;
    CHECK(cells(c, s).size() == 60);
    s.lat_min = 90;
    check_mentions(error_of(Fault::data, [&] { cells(c, s); }), "none of 100 points", "90 degrees");
  }

  TEST_CASE_FIXTURE(Sample, "rows with a missing, infinite or too large value are dropped and counted per column") {
    c.columns[0].values[3] = kNan;
    c.columns[0].values[4] = std::numeric_limits<double>::infinity();
    c.columns[2].values[4] = kNan;
    c.columns[2].values[5] = 1e39;  // an infinity in f32
    c.columns[1].values[6] = kNan;
    c.valid[7] = 0;
    const auto set = select_rows(c, defaults(), report);
    CHECK(set.rows() == 95);
    CHECK(report.valid == 99);
    CHECK(report.complete == 95);
    using Dropped = std::vector<std::pair<std::string, std::int64_t>>;
    CHECK(report.dropped == Dropped{{"sst", 2}, {"hi", 2}, {"aice", 1}});
    CHECK(std::all_of(set.x.begin(), set.x.end(), [](float v) { return std::isfinite(v); }));
    std::fill(c.columns[2].values.begin(), c.columns[2].values.end(), kNan);
    check_mentions(error_of(Fault::data, [&] { cells(c, defaults()); }), "hi missing in 99");
  }

  TEST_CASE_FIXTURE(Sample, "a missing aice is dropped even where only the mode looks at it") {
    c.columns[1].values[50] = kNan;
    s.outputs = {"hi"};
    s.inputs = {"sst"};
    CHECK(cells(c, s).size() == 100);
    s.mask_mode = "sea_ice";
    CHECK(cells(c, s).size() == 98);
  }

  TEST_CASE_FIXTURE(Sample, "sub-sampling keeps the first, evenly spaced, or random rows, in file order") {
    s.max_patterns = 10;
    s.subsample = "first";
    CHECK(cells(c, s) == range(0, 10));
    s.subsample = "stride";
    CHECK(cells(c, s) == std::vector<std::int64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90});
    s.subsample = "random";
    const auto drawn = cells(c, s);
    CHECK(drawn.size() == 10);
    CHECK(std::is_sorted(drawn.begin(), drawn.end()));
    CHECK(drawn == cells(c, s));
    CHECK(drawn.back() > 50);  // reaches the far end of the grid
    s.seed = 1;
    CHECK(drawn != cells(c, s));
    s.max_patterns = 100;
    s.thin_fraction = 0.255;
    CHECK(cells(c, s).size() == 25);
    s.thin_fraction = 0.001;
    check_mentions(error_of(Fault::data, [&] { cells(c, s); }), "thinning");
  }

  TEST_CASE_FIXTURE(Sample, "the synthetic label replaces aice before anything is selected") {
    s.synthetic_label = true;
    s.mask_mode = "sea_ice";
    s.min_ice = 0.5;
    const auto set = select_rows(sample(), s, report);
    CHECK(set.cell == range(0, 6));  // sst -2 .. -1.5
    CHECK(std::all_of(set.y.begin(), set.y.end(), [](float v) { return v == 0.9f; }));
  }

  TEST_CASE_FIXTURE(Sample, "random splits have the promised sizes, test rows first, and depend on the seed") {
    s.test_split = 0.25;
    s.validation_split = 0.1;
    const auto a = select_rows(sample(), s, report);
    CHECK(a.rows_in(2) == 25);
    CHECK(a.rows_in(1) == 7);  // a tenth of the other 75
    CHECK(a.rows_in(0) == 68);
    CHECK(select_rows(sample(), s, report).split == a.split);
    s.seed = 4;
    CHECK(select_rows(sample(), s, report).split != a.split);
  }

  TEST_CASE_FIXTURE(Sample, "days and files become the test rows") {
    s.validation_split = 0;
    s.test_days = {"2016-02-04"};
    auto set = select_rows(sample(), s, report);
    for (std::size_t i = 0; i < 100; ++i) CHECK(set.split[i] == (i >= 75 ? 2 : 0));
    s.test_days = {"2016-03-04"};
    check_mentions(error_of(Fault::data, [&] { select_rows(sample(), s, report); }), "2016-03-04");
    s.test_days.clear();

    Candidates two = sample();
    for (const char* name : {"a1.nc", "b2.nc"}) {
      write_text(name, name);
      two.files.push_back(name);
    }
    std::fill(two.source.begin() + 60, two.source.end(), 1);
    s.test_files = {"b?.nc"};
    set = select_rows(two, s, report);
    CHECK(set.rows_in(2) == 40);
    CHECK(set.split[60] == 2);
    CHECK(set.sources == std::vector<std::string>{"a1.nc", "b2.nc"});
    CHECK(set.sha256[0] == "b3c54fd185336e8142694cec56717e75737ee777cfa6c46fdb4f570e52e80714");
    s.test_files = {"c*.nc"};
    check_mentions(error_of(Fault::usage, [&] { select_rows(two, s, report); }), "c*.nc");
  }

  TEST_CASE_FIXTURE(Sample, "whole time steps or whole bands of latitude go to validation together") {
    s.validation_split = 0.3;
    s.split_by = "time";
    auto set = select_rows(sample(), s, report);
    CHECK(set.rows_in(1) == 50);  // the last two of four days
    for (std::size_t i = 0; i < 100; ++i) CHECK(set.split[i] == (i >= 50 ? 1 : 0));
    s.split_by = "lat-block";
    s.block_degrees = 10;
    set = select_rows(sample(), s, report);
    CHECK(set.rows_in(1) >= 30);
    CHECK(set.rows_in(1) < 45);
    std::set<std::pair<int, int>> bands;
    for (std::size_t i = 0; i < 100; ++i) bands.emplace(static_cast<int>(std::floor(set.lat[i] / 10)), set.split[i]);
    CHECK(bands.size() == 18);  // no band in two parts
    Candidates one_day = sample();
    std::fill(one_day.time.begin(), one_day.time.end(), 0);
    s.split_by = "time";
    check_mentions(error_of(Fault::data, [&] { select_rows(one_day, s, report); }),
                   "by time step: all rows that are left are in one");
  }

  TEST_CASE_FIXTURE(Sample,
                    "rows know the grid of their files, and none where files differ; check knows points beyond it") {
    Candidates c = start_candidates({"sst"});
    const auto add = [&](const std::vector<std::int64_t>& shape) {
      FilePoints points;
      points.grid = {.file = "f.nc", .dims = {"y", "x"}, .shape = shape};
      points.valid = {1, 1};
      append_points(c, points, "f.nc");
    };
    add({1, 2});
    add({1, 2});
    CHECK(c.grid.shape == std::vector<std::int64_t>{1, 2});
    add({2, 1});
    CHECK(c.grid.dims.empty());

    Candidates one = sample();
    one.grid = {.file = {}, .dims = {"y", "x"}, .shape = {10, 10}};
    s.validation_split = 0.1;
    EmulatorSet set = select_rows(one, s, report);
    CHECK(set.grid_dims == one.grid.dims);
    const auto problems = [&] {
      write_emulator_set("set.h5", set);
      std::vector<std::string> remarks;
      return check_emulator_set(H5File::open("set.h5"), remarks);
    };
    CHECK(problems().empty());
    CHECK(read_emulator_set(H5File::open("set.h5")).grid_shape == one.grid.shape);
    set.grid_shape = {10, 9};
    REQUIRE(problems().size() == 1);
    check_mentions(problems()[0], "/cell row 90: 90, must be 0 .. 89 (10 of 100");
  }

  TEST_CASE_FIXTURE(Sample, "moments are taken over training rows unless all are asked for") {
    s.validation_split = 0;
    s.test_days = {"2016-02-04"};
    CHECK(select_rows(sample(), s, report).input_mean[1] == Approx(1037).epsilon(1e-12));
    s.moments = "all";
    CHECK(select_rows(sample(), s, report).input_mean[1] == Approx(1049.5).epsilon(1e-12));
  }

  TEST_CASE("impossible combinations of options are usage errors") {
    const auto broken = [](auto change) {
      Selection s = defaults();
      change(s);
      return error_of(Fault::usage, [&] { check_selection(s); });
    };
    CHECK(broken([](Selection&) {}) == "no error");
    check_mentions(broken([](Selection& s) { s.inputs.clear(); }), "at least one input");
    check_mentions(broken([](Selection& s) { s.outputs.clear(); }), "at least one output");
    check_mentions(broken([](Selection& s) { s.inputs = {"sst", "sst"}; }), "'sst'");
    check_mentions(broken([](Selection& s) { s.outputs = {"sst"}; }), "both an input and an output");
    check_mentions(broken([](Selection& s) { s.test_split = 0.1, s.test_days = {"2016-02-04"}; }), "one of them");
  }

  TEST_CASE("patterns are expanded in order, and those without files are named") {
    for (const char* name : {"t2.nc", "t1.nc", "other"}) write_text(name, "");
    const auto files = expand_files({"other", "t?.nc"});
    REQUIRE(files.size() == 3);
    CHECK(files[0].filename() == "other");
    CHECK(files[1].filename() == "t1.nc");
    check_mentions(error_of(Fault::usage, [&] { expand_files({"x*.nc"}); }), "x*.nc", "no file matches");
    check_mentions(error_of(Fault::usage, [&] { expand_files({"x.nc"}); }), "no such file");
    write_text("a,b.nc", "");  // the list has two words
    CHECK(error_of(Fault::usage, [&] {
            expand_files({"a", "b.nc"});
          }) == "opening 'a': no such file; for the file 'a,b.nc' write each comma of its name as '\\,'");
  }
}
