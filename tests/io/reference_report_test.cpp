#include "lockstep/io/reference_report.hpp"

#include "support/test.hpp"

namespace {
using Doubles = std::vector<double>;
using Integers = std::vector<std::int64_t>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_SUITE("io.reference_report") {
  TEST_CASE("a difference is relative to the largest reference value, or absolute") {
    ReferenceReport report;
    const auto& relative = report.compare("a", Doubles{1, 3.5, 4}, Doubles{1, 3, -5}, 1.8);
    CHECK(relative.error == 9.0 / 5);
    CHECK(relative.worst == 2);
    CHECK(relative.value == 4);
    CHECK(relative.expected == -5);
    CHECK(relative.passed());
    CHECK_FALSE(report.compare("b", Doubles{1.25}, Doubles{1}, 0.2, lockstep::Difference::absolute).passed());
    CHECK(report.compare("c", Doubles{1.25}, Doubles{1}, 0.25, lockstep::Difference::absolute).passed());
    CHECK(report.failed() == 1);
    CHECK_FALSE(report.passed());
  }

  TEST_CASE("a reference of zeros asks for zeros; NaN and other sizes never pass") {
    ReferenceReport report;
    CHECK(report.compare("zeros", Doubles{0, 0}, Doubles{0, 0}, 0).passed());
    CHECK_FALSE(report.compare("not zero", Doubles{0, 1e-300}, Doubles{0, 0}, 1).passed());
    CHECK_FALSE(report.compare("first", Doubles{kNan, 1}, Doubles{1, 1}, 1e9).passed());
    const auto& later = report.compare("later", Doubles{1, kNan, 9}, Doubles{1, 1, 1}, 1e9);
    CHECK_FALSE(later.passed());
    CHECK(later.worst == 1);
    CHECK_FALSE(report.compare("expected", Doubles{1, 1}, Doubles{1, kNan}, 1e9).passed());
    CHECK(report.compare("size", Doubles{1}, Doubles{1, 1}, 1e9).note == "1 values, the reference has 2");
    CHECK_FALSE(report.rows().back().passed());
  }

  TEST_CASE("integers that round to the same double are different") {
    constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;
    ReferenceReport report;
    CHECK(report.compare("same", Integers{kLarge}, Integers{kLarge}, 0).passed());
    CHECK_FALSE(report.compare("other", Integers{kLarge}, Integers{kLarge - 1}, 0).passed());
  }

  TEST_CASE("integer datasets are compared as integers, others as floats") {
    H5File made = H5File::create("reference.h5");
    made.write<std::int32_t>("/group/ids", std::vector<std::int32_t>{1, 2}, {2});
    made.write<float>("/values", std::vector<float>{0.1f}, {1});
    made.close();
    const H5File file = H5File::open("reference.h5");
    ReferenceReport report;
    CHECK(report.compare(file, "/group/ids", std::vector<std::uint8_t>{1, 2}, 0).name == "group/ids");
    report.compare(file, "/values", std::vector<float>{0.1f}, 0);
    CHECK(report.passed());
    CHECK_FALSE(report.compare(file, "/values", Doubles{0.1}, 0).passed());
  }

  TEST_CASE("the text has a line per row with its worst element, and counts those that agree") {
    ReferenceReport report;
    CHECK(report.text().empty());
    CHECK_FALSE(report.passed());
    report.compare("outputs/loss", Doubles{1, 2.5}, Doubles{1, 2}, 1e-5);
    report.compare("x", Doubles{1}, Doubles{1}, 0);
    report.state("metadata", "ours 1, the reference has 2");
    CHECK(report.text() ==
          "tensor         max error   tolerance         worst\n"
          "outputs/loss    2.50e-01     1.0e-05  FAIL  [1] 2.5, expected 2\n"
          "x               0.00e+00     0.0e+00  ok    [0] 1, expected 1\n"
          "metadata        0.00e+00     0.0e+00  FAIL  ours 1, the reference has 2\n"
          "1 of 3 arrays agree\n");
    report.compare("y", Doubles{1}, Doubles{1}, 0.5, lockstep::Difference::absolute);
    check_mentions(report.text(), "5.0e-01a ok",
                   "2 of 4 arrays agree (a: absolute error, the others relative to the largest reference value)\n");
  }
}
