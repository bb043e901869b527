#include "lockstep/prep/summary.hpp"

#include <sstream>

#include "prep/program.hpp"
#include "support/errors.hpp"
#include "support/temp_dir.hpp"
#include "support/test.hpp"

using namespace lockstep;
using prep::Summary;

TEST_SUITE_BEGIN("prep.summary");

namespace {
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

std::string printed_column(const std::vector<double>& values, const std::string& unit = "K") {
  Summary summary;
  summary.column("sst", unit, values);
  std::ostringstream out;
  summary.print(out);
  for (const auto& warning : summary.warnings()) out << "warning: " << warning << "\n";
  return out.str();
}
}  // namespace

TEST_CASE("a column's line has its range, unit, median and missing values") {
  CHECK(printed_column({3, 1, kMissing, 2}) == "  sst                1 to 3 K, median 2, 1 of 4 missing\n");
  CHECK(printed_column({-2, 4, 1}, "") == "  sst                -2 to 4, unit unknown, median 1\n");
  CHECK(printed_column({kMissing, kMissing}) == "  sst                no values, 2 of 2 missing\n");
  CHECK(printed_column({0, 0, 0}) == "  sst                0 to 0 K, median 0\n");
}

TEST_CASE("of many columns the first have lines, and all have warnings") {
  Summary summary;
  for (int i = 0; i < 42; ++i) summary.column("y" + std::to_string(i), "m", std::vector<double>{1, i == 41 ? 1e36 : 2});
  summary.line("rows", 2);
  std::ostringstream out;
  summary.print(out);
  CHECK(out.str().find("  y39                1 to 2 m, median 2\n                     and 2 more columns\n  rows ") !=
        std::string::npos);
  REQUIRE(summary.warnings().size() == 1);
  CHECK(summary.warnings()[0].find("column y41") != std::string::npos);
}

TEST_CASE("magnitudes that only a fill value has are counted") {
  const std::string filled = printed_column({271, 280, 9.97e36, 290, 9.97e36});
  CHECK(filled.find("column sst: 2 of 5 values have magnitudes of 9.97e+36 to 9.97e+36") != filled.npos);
  CHECK(printed_column({0.01, -0.02, 0.03, 1e5}).find("1 of 4 values have magnitudes of 100000") != std::string::npos);
  CHECK(printed_column({1e36, 1e36}).find("2 of 2 values") != std::string::npos);
  // Rates of precipitation fill all orders of magnitude.
  std::vector<double> rates;
  for (int e = -20; e <= -3; ++e) rates.insert(rates.end(), {std::pow(10, e), 3 * std::pow(10, e)});
  CHECK(printed_column(rates).find("warning") == std::string::npos);
  // Zeros, as of precipitation, do not count as the typical size.
  CHECK(printed_column({0, 0, 0, 0, 1e-3, 40}).find("warning") == std::string::npos);
  CHECK(printed_column({1e-8, 2e-8, 1e-2}).find("warning") == std::string::npos);
}

TEST_CASE("a number that stands for missing values lies apart from the others") {
  std::vector<double> sst;
  for (int i = 0; i < 40; ++i) sst.push_back(-1.8 + 0.8 * i);
  CHECK(printed_column(sst).find("warning") == std::string::npos);
  const auto with = [&](std::vector<double> codes, double factor = 1) {
    std::vector<double> values = sst;
    for (double& v : values) v *= factor;
    values.insert(values.end(), codes.begin(), codes.end());
    return printed_column(values);
  };
  for (const double code : {-9999.0, -999.0, 9999.0, -32767.0, 999.9, 65535.0}) {
    CAPTURE(code);
    CHECK(with({code}).find(join("1 of 41 values are ", code)) != std::string::npos);
  }
  CHECK(with({-9999, -9999, 1e20, 1e20}).find("2 of 44 values are 1e+20, and the others lie in -9999") !=
        std::string::npos);
  CHECK(with({-9999, -9999, 1e20, 1e20}).find("2 of 44 values are -9999, and the others lie in -1.8 to 29.4") !=
        std::string::npos);
  CHECK(with({-2000, -2000}).find("2 of 42 values are -2000") != std::string::npos);  // no usual number
  CHECK(with(std::vector<double>(60, 1e20)).find("60 of 100 values are 1e+20") != std::string::npos);
  // A number within the data, one outlier, zeros, and the values of categories are no codes.
  CHECK(with({999, 999}, 100).find("warning") == std::string::npos);
  CHECK(with({120}).find("warning") == std::string::npos);
  CHECK(with({300, 300}).find("warning") == std::string::npos);  // a roughness of ice beside those of water
  CHECK(printed_column({0, 0, 0, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38}).find("warning") == std::string::npos);
  CHECK(printed_column({0, 0, 1, 1, 10, 10}).find("warning") == std::string::npos);
}

TEST_CASE("warnings stay in the file, and are errors under --strict") {
  Summary summary;
  summary.note("one thing was assumed");
  DatasetNotes notes;
  summary.settle(true, notes);
  CHECK(notes.empty());
  summary.warning("half of the times lie before 1980");
  CHECK_THROWS_WITH_AS(summary.settle(true, notes),
                       doctest::Contains("preparing with --strict: half of the times lie before 1980"), Error);
  summary.settle(false, notes);
  const test::TempDir dir;
  write_dataset(dir / "a.h5", kHarFormat, notes, [](H5File& file) { file.set_attribute("/", "n", std::int64_t{1}); });
  CHECK(prep::stored_warnings(H5File::open(dir / "a.h5")) ==
        std::vector<std::string>{"half of the times lie before 1980"});
}

TEST_SUITE_END();
