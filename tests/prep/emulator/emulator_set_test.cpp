#include "lockstep/prep/emulator/emulator_set.hpp"

#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
EmulatorSet sample(std::size_t n = 50) {
  EmulatorSet set;
  set.inputs = {{"sst", "hi"}, {"sea_surface_temperature", ""}, {"degC", "m"}, {0, 3}};
  set.outputs = {{"aice"}, {"sea_ice_area_fraction"}, {"1"}, {0}};
  const Philox random(1, 2, "sample");
  for (std::size_t i = 0; i < n; ++i) {
    set.x.push_back(static_cast<float>(random.normal(3 * i)));
    set.x.push_back(static_cast<float>(random.uniform(1000 + i)));
    set.y.push_back(static_cast<float>(random.uniform(2000 + i)));
    set.lat.push_back(60);
    set.lon.push_back(-10);
    set.time.push_back(1454284800);
    set.cell.push_back(static_cast<std::int64_t>(i));
    set.source.push_back(0);
    set.split.push_back(static_cast<std::uint8_t>(i % 5 == 0 ? 1 : i % 5 == 1 ? 2 : 0));
  }
  set.sources = {"a.nc"};
  set.sha256 = {std::string(64, 'a')};
  take_moments(set);
  return set;
}
}  // namespace

TEST_SUITE("prep.emulator_set") {
  TEST_CASE("moments lose no digits when the mean is large") {
    std::vector<double> rows;
    for (int i = 0; i < 1000; ++i) rows.push_back(1e6 + Philox(1, 0, "m").normal(static_cast<std::uint64_t>(i)));
    double mean = 0, var = 0;
    for (const double v : rows) mean += (v - 1e6) / 1000;
    for (const double v : rows) var += (v - 1e6 - mean) * (v - 1e6 - mean) / 1000;
    RunningMoments all(1);
    for (const double& row : rows) all.add<double>(std::span(&row, 1));
    CHECK(all.mean()[0] == Approx(1e6 + mean).epsilon(1e-15));
    CHECK(all.deviation()[0] == Approx(std::sqrt(var)).epsilon(1e-9));
  }

  TEST_CASE("a constant column has standard deviation 1") {
    RunningMoments m(2);
    for (const double wobble : {-1e-7, 1e-7}) {
      const double row[] = {5.0, 3 + wobble};
      m.add<double>(row);
    }
    CHECK(m.deviation() == std::vector<double>{1, 1});
    CHECK(m.constant(0));
    CHECK(m.constant(1));
    CHECK(RunningMoments(1).deviation() == std::vector<double>{1});
  }

  TEST_CASE("whether a column is constant does not depend on its unit") {
    for (const double unit : {1e-20, 1e-9, 1.0, 1e9}) {
      CAPTURE(unit);
      RunningMoments m(2);
      for (const double wobble : {-1e-3, 1e-3}) {
        const double row[] = {wobble * unit, (300 + wobble) * unit};
        m.add<double>(row);
      }
      CHECK(m.deviation()[0] == Approx(1e-3 * unit).epsilon(1e-9));
      CHECK(m.deviation()[1] == Approx(1e-3 * unit).epsilon(1e-6));
    }
  }

  TEST_CASE("moments are those of the training rows, or of all on demand") {
    EmulatorSet set = sample();
    double train = 0, all = 0;
    for (std::size_t i = 0; i < 50; ++i) {
      all += static_cast<double>(set.y[i]) / 50;
      if (set.split[i] == 0) train += static_cast<double>(set.y[i]) / 30;
    }
    CHECK(set.output_mean[0] == Approx(train).epsilon(1e-13));
    set.moment_rows = MomentRows::all;
    take_moments(set);
    CHECK(set.output_mean[0] == Approx(all).epsilon(1e-13));
    CHECK(std::abs(all - train) > 1e-4);
  }

  TEST_CASE("a set reads back as written, with the documented shapes and types") {
    EmulatorSet set = sample();
    set.jac.assign(100, 0.5f);
    set.notes = {{"generator", std::string("test")}};
    write_emulator_set("a.h5", set);
    const auto file = H5File::open("a.h5");
    const EmulatorSet back = read_emulator_set(file);
    CHECK(back.x == set.x);
    CHECK(back.y == set.y);
    CHECK(back.jac == set.jac);
    CHECK(back.split == set.split);
    CHECK(back.time == set.time);
    CHECK(back.inputs.names == set.inputs.names);
    CHECK(back.inputs.level == set.inputs.level);
    CHECK(back.outputs.cf == set.outputs.cf);
    CHECK(back.input_std == set.input_std);
    CHECK(back.sources == set.sources);
    CHECK(file.info("/x").shape == std::vector<std::int64_t>{50, 2});
    CHECK(file.info("/x").type == H5Type::f32);
    CHECK(file.info("/split").type == H5Type::u8);
    CHECK(file.info("/jac").shape == std::vector<std::int64_t>{50, 1, 2});
    CHECK(file.info("/moments/input_std").type == H5Type::f64);
    CHECK(file.text_attribute("/", "format") == "lockstep-emulator-data");
    CHECK(file.int_attribute("/", "version") == 1);
    CHECK(file.text_attribute("/", "generator") == "test");
    std::vector<std::string> remarks;
    CHECK(check_emulator_set(file, remarks).empty());
    std::ostringstream page;
    describe_emulator_set(file, page);
    check_mentions(page.str(), "30 train + 10 validation + 10 test", "sst", "a.nc");
  }

  TEST_CASE("the check names each thing that is wrong") {
    const std::pair<std::function<void(EmulatorSet&)>, const char*> cases[] = {
        {[](EmulatorSet& s) { s.x[7] = NAN; }, "/x column 1 (hi): 1 values are NaN or infinite, the first in row 3"},
        {[](EmulatorSet& s) { s.y[9] = INFINITY; }, "/y column 0 (aice)"},
        {[](EmulatorSet& s) { s.lat[2] = 91; }, "/lat"},
        {[](EmulatorSet& s) { s.lon[2] = -400; }, "/lon"},
        {[](EmulatorSet& s) { s.split[0] = 3; }, "/split"},
        {[](EmulatorSet& s) { s.source[0] = 1; }, "/source"},
        {[](EmulatorSet& s) { s.cell[0] = -1; }, "/cell"},
        {[](EmulatorSet& s) { s.input_mean[0] += 1e-6; }, "moments of sst"},
        {[](EmulatorSet& s) { s.output_std[0] *= 2; }, "moments of aice"},
        {[](EmulatorSet& s) { s.input_mean[1] = NAN; }, "moments of hi"},
        {[](EmulatorSet& s) { s.inputs.names[1] = "sst"; }, "names"},
        {[](EmulatorSet& s) { std::fill(s.split.begin(), s.split.end(), std::uint8_t{0}); }, "no validation rows"},
        {[](EmulatorSet& s) { s.sha256.clear(); }, "sums"},
    };
    for (const auto& [damage, expected] : cases) {
      CAPTURE(expected);
      EmulatorSet set = sample();
      damage(set);
      write_emulator_set("a.h5", set);
      std::vector<std::string> remarks;
      const auto problems = check_emulator_set(H5File::open("a.h5"), remarks);
      REQUIRE(problems.size() == 1);
      check_mentions(problems[0], expected);
    }
  }

  TEST_CASE("files of another format, version or shape are refused") {
    const auto error_for = [&](const std::function<void(H5File&)>& change) {
      auto file = H5File::create("a.h5");
      file.set_attribute("/", "format", std::string("lockstep-emulator-data"));
      file.set_attribute("/", "version", std::int64_t{1});
      for (const char* number : {"min_ice", "n", "n_in", "n_out", "seed"})
        file.set_attribute("/", number, std::int64_t{1});
      file.set_attribute("/", "mask_mode", std::string("both"));
      for (const char* list : {"sources", "sha256"}) file.set_attribute("/", list, std::vector<std::string>{"x"});
      change(file);
      file.close();
      return error_of(Fault::data, [&] { read_emulator_set(H5File::open("a.h5")); });
    };
    check_mentions(error_for([](H5File& f) { f.set_attribute("/", "format", std::string("other")); }),
                   "its format is 'other', expected 'lockstep-emulator-data'");
    check_mentions(error_for([](H5File& f) { f.set_attribute("/", "version", std::int64_t{2}); }), "version 2");
    check_mentions(error_for([](H5File& f) { f.set_attribute("/", "n_in", std::int64_t{-1}); }), "n_in = -1");
    check_mentions(error_for([](H5File&) {}), "'/x'");
    check_mentions(error_for([](H5File& f) {
                     const std::vector<double> x = {1};
                     f.write<double>("/x", x, {1, 1});
                   }),
                   "elements are f64, expected f32");
  }
}
