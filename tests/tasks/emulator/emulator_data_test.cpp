#include "lockstep/tasks/emulator/emulator_data.hpp"

#include "support/emulator_file.hpp"
#include "support/test.hpp"

namespace {

/// The message of the data error that reading the file throws, or "no error".
std::string refusal(const fs::path& path) {
  LocalDataMemory data_memory;
  return error_of(Fault::data, [&] { EmulatorData::read(path, data_memory); });
}

std::string refusal_of(const std::function<void(EmulatorContents&)>& spoil) {
  EmulatorContents contents = emulator_contents(40, 3, 2);
  spoil(contents);
  write_emulator_data("data.h5", contents);
  std::string message = refusal("data.h5");
  check_mentions(message, "data.h5");
  return message;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_SUITE("tasks.emulator_data") {
  TEST_CASE("written data are read back, with rows sorted by split") {
    const EmulatorContents c = emulator_contents(40, 3, 2);
    const EmulatorData data = read_data(c);
    CHECK(data.rows() == 40);
    CHECK(data.n_in() == 3);
    CHECK(data.n_out() == 2);
    CHECK(std::equal(c.x.begin(), c.x.end(), data.x.row<float>(0)));
    CHECK(std::equal(c.y.begin(), c.y.end(), data.y.row<float>(0)));
    CHECK(data.moments == c.moments);
    CHECK(data.variables == c.variables);
    CHECK(data.mask_mode == "both");
    CHECK(data.count == std::array<std::int64_t, 3>{32, 4, 4});
    const auto validation = data.rows_of(Split::validation), test = data.rows_of(Split::test);
    CHECK(std::vector<std::int32_t>(validation.begin(), validation.end()) == std::vector<std::int32_t>{4, 14, 24, 34});
    CHECK(std::vector<std::int32_t>(test.begin(), test.end()) == std::vector<std::int32_t>{9, 19, 29, 39});
    CHECK(data.rows_of(Split::train).size() == 32);
    REQUIRE(data.has_jacobian());
    CHECK(data.jacobian.shape() == Shape{40, 2, 3});
    CHECK(data.jacobian.row<float>(0)[7] == static_cast<float>(c.jacobian[7]));
  }

  TEST_CASE("the hash differs between data sets and is equal for equal ones") {
    const auto hash = [&](const std::function<void(EmulatorContents&)>& change) {
      EmulatorContents c = emulator_contents(40, 3, 2);
      change(c);
      return read_data(c).hash;
    };
    const std::uint64_t plain = hash([](auto&) {});
    CHECK(plain == hash([](auto&) {}));
    CHECK(plain != hash([](auto& c) { c.x[5] += 1; }));
    CHECK(plain != hash([](auto& c) { c.y[5] += 1; }));
    CHECK(plain != hash([](auto& c) { std::swap(c.split[3], c.split[4]); }));
    CHECK(plain != hash([](auto& c) { c.moments.output_std[1] = 3; }));
    CHECK(plain != hash([](auto& c) { c.jacobian.clear(); }));
  }

  TEST_CASE("a data set with more rows than one read is complete") {
    EmulatorContents c = emulator_contents(70001, 2, 1);
    c.jacobian.clear();
    const EmulatorData data = read_data(c);
    CHECK(std::equal(c.x.begin(), c.x.end(), data.x.row<float>(0)));
    CHECK(data.rows_of(Split::test).back() == 69999);
    CHECK_FALSE(data.has_jacobian());
    c.x[70000 * 2 + 1] = kNaN;
    write_emulator_data("data.h5", c);
    check_mentions(refusal("data.h5"), "row 70000, column 1 ('in1') is nan");
  }

  TEST_CASE("invalid contents are an error with dataset, position, expected and found value") {
    check_mentions(refusal_of([](auto& c) { c.x[3 * 7 + 2] = kNaN; }), "'/x'");
    check_mentions(refusal_of([](auto& c) { c.x[3 * 7 + 2] = kNaN; }), "row 7, column 2 ('in2') is nan");
    check_mentions(refusal_of([](auto& c) { c.y[2 * 11] = std::numeric_limits<float>::infinity(); }),
                   "row 11, column 0 ('aice') is inf");
    check_mentions(refusal_of([](auto& c) { c.jacobian[6 * 5 + 4] = kNaN; }),
                   "row 5, column d 1 ('out1') / d 1 ('in1') is nan");
    check_mentions(refusal_of([](auto& c) { c.split[12] = 3; }), "row 12 is 3: must be 0 (train)");
    check_mentions(refusal_of([](auto& c) { c.split.assign(40, 0); }), "none of the 40 rows is a validation row");
    check_mentions(refusal_of([](auto& c) { c.split.assign(40, 1); }), "none of the 40 rows is a train row");
    check_mentions(refusal_of([](auto& c) { c.moments.input_std[1] = 0; }), "input_std[1] = 0: must be > 0");
    check_mentions(refusal_of([](auto& c) { c.moments.output_std[0] = -1; }), "output_std[0] = -1");
    check_mentions(refusal_of([](auto& c) { c.moments.input_mean[2] = std::numeric_limits<double>::quiet_NaN(); }),
                   "input_mean[2] is not finite");
    check_mentions(refusal_of([](auto& c) { c.moments.input_mean.pop_back(); }),
                   "input_mean has 2 entries: expected 3");
    check_mentions(refusal_of([](auto& c) { c.variables.output_names.push_back("more"); }), "'/vars/output_names'");
    check_mentions(refusal_of([](auto& c) { c.variables.input_level.pop_back(); }), "input_level");
    check_mentions(refusal_of([](auto& c) { c.variables.input_names[2] = c.variables.input_names[0]; }), "'/vars'",
                   "two inputs are named 'in0'");
    check_mentions(refusal_of([](auto& c) { c.variables.output_names[1] = ""; }), "an output has no name");
  }

  TEST_CASE("a foreign, incomplete or wrongly shaped file is an error that says so") {
    const fs::path path = "data.h5";
    const auto with = [&](const std::function<void(H5File&)>& write) {
      H5File file = H5File::create(path);
      write(file);
      file.close();
      return refusal(path);
    };
    const auto head = [](H5File& f, std::int64_t n = 4, std::int64_t version = 1) {
      f.set_attribute("/", "format", std::string("lockstep-emulator-data"));
      f.set_attribute("/", "version", version);
      f.set_attribute("/", "n", n);
      f.set_attribute("/", "n_in", std::int64_t{2});
      f.set_attribute("/", "n_out", std::int64_t{1});
    };
    const std::vector<float> values(8, 1.0f);
    const std::vector<double> wide(8, 1.0);
    check_mentions(with([](H5File&) {}), "no attribute 'format'");
    check_mentions(with([](H5File& f) { f.set_attribute("/", "format", std::string("something-else")); }),
                   "its format is 'something-else'");
    check_mentions(with([](H5File& f) { f.set_attribute("/", "format", std::string("lockstep-emulator-data")); }),
                   "no attribute 'version'");
    check_mentions(with([&](H5File& f) { head(f, 4, 2); }), "version 2, this program reads version 1");
    check_mentions(with([&](H5File& f) { head(f, 0); }), "n = 0");
    check_mentions(with([&](H5File& f) { head(f); }), "'/x'");
    check_mentions(with([&](H5File& f) {
                     head(f);
                     f.write<float>("/x", values, {2, 4});
                   }),
                   "the shape is (2, 4), expected (4, 2)");
    check_mentions(with([&](H5File& f) {
                     head(f);
                     f.write<double>("/x", wide, {4, 2});
                   }),
                   "elements are f64, expected f32");
    CHECK_THROWS_AS(H5File::open("missing.h5"), Error);
    write_text(path, "no HDF5 at all");
    CHECK(refusal(path) != "no error");
  }
}
