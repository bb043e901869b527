#include "lockstep/report/statistics.hpp"

#include "support/test.hpp"

namespace {

/// b_i is a sample's common part, a_i the same plus 0.1, each with noise of its own.
struct Systems {
  std::vector<double> a, b;
  explicit Systems(std::int64_t n, std::uint64_t seed = 1, double common = 10, double noise = 0.5) {
    const Philox draw(seed, 0, "systems");
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
      const double easy = common * draw.normal(3 * i);
      a.push_back(easy + 0.1 + noise * draw.normal(3 * i + 1));
      b.push_back(easy + noise * draw.normal(3 * i + 2));
    }
  }
};

}  // namespace

TEST_SUITE("report.statistics") {
  TEST_CASE("Student's sleep data give t 4.0621, 9 degrees of freedom, p 0.002833, interval 0.70011 to 2.45989") {
    const std::vector<double> hours = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};  // gain of the second drug
    const MeanInterval m = mean_interval(hours);
    CHECK(m.value == Approx(1.58).epsilon(1e-12));
    CHECK(m.low == Approx(0.7001142).epsilon(1e-6));
    CHECK(m.high == Approx(2.4598858).epsilon(1e-6));
    CHECK(m.p == Approx(0.002832890).epsilon(1e-6));
    CHECK(mean_interval(hours, 0.99).half_width() == Approx(1.264052).epsilon(1e-6));
  }

  TEST_CASE("three values have two degrees of freedom: quantile 4.302653") {
    const MeanInterval m = mean_interval(std::vector<double>{1, 2, 3});
    CHECK(m.half_width() == Approx(4.3026527 / std::sqrt(3.0)).epsilon(1e-7));
  }

  TEST_CASE("one value has no interval, equal values a width of 0") {
    CHECK(mean_interval(std::vector<double>{0.5}).value == 0.5);
    CHECK(std::isnan(mean_interval(std::vector<double>{0.5}).half_width()));
    CHECK(std::isnan(mean_interval(std::vector<double>{0.5}).p));
    CHECK(mean_interval(std::vector<double>{0.5, 0.5}).half_width() == 0);
    CHECK(mean_interval(std::vector<double>{0.1, 0.1, 0.1}).half_width() == 0);  // the sum of three rounds
    CHECK(std::isnan(mean_interval(std::vector<double>{0.5, 0.5}).p));  // no test: two equal seeds prove nothing
    CHECK(std::isnan(mean_interval(std::vector<double>{0, 0}).p));
    CHECK(std::isnan(mean_interval(std::vector<double>{1, std::nan("")}).half_width()));
  }

  TEST_CASE("the paired interval is that of the normal approximation; what both systems share cancels") {
    const Systems s(2001);
    const Interval found = paired_bootstrap(s.a, s.b, 7, 4000, 0.95);
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < s.a.size(); ++i) mean += (s.a[i] - s.b[i]) / 2001;
    for (std::size_t i = 0; i < s.a.size(); ++i) square += std::pow(s.a[i] - s.b[i] - mean, 2);
    const double error = std::sqrt(square) / 2001;
    CHECK(found.value == Approx(mean));
    // The quantile at 2.5 % of 4000 resamples has a standard error of 0.042 standard errors of the mean.
    CHECK(std::abs(found.low - (mean - 1.96 * error)) < 0.15 * error);
    CHECK(std::abs(found.high - (mean + 1.96 * error)) < 0.15 * error);
    const Interval half = paired_bootstrap(s.a, s.b, 7, 4000, 0.5);
    CHECK(found.low < half.low);
    CHECK(half.high < found.high);
  }

  TEST_CASE("about 95 of 100 intervals hold the true difference") {
    int held = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const Systems s(150, seed);
      const Interval found = paired_bootstrap(s.a, s.b, seed, 400, 0.95);
      held += found.low <= 0.1 && 0.1 <= found.high;
    }
    CHECK(held >= 180);  // 190 expected, standard deviation 3.1
    CHECK(held <= 199);
  }

  TEST_CASE("equal systems differ by exactly 0; the seed alone decides the draws") {
    const Systems s(50);
    const Interval none = paired_bootstrap(s.a, s.a, 1, 100, 0.95);
    CHECK(none.low == 0);
    CHECK(none.high == 0);
    const Interval once = paired_bootstrap(s.a, s.b, 1, 100, 0.95), again = paired_bootstrap(s.a, s.b, 1, 100, 0.95),
                   other = paired_bootstrap(s.a, s.b, 2, 100, 0.95);
    CHECK(once.low == again.low);
    CHECK(once.high == again.high);
    CHECK(once.low != other.low);
    const Interval one = paired_bootstrap(std::vector{3.0}, std::vector{1.0}, 1, 1, 0.95);
    CHECK(one.value == 2);
    CHECK(std::isnan(one.low));
    CHECK(std::isnan(one.high));
  }

  TEST_CASE("values that cannot be paired are refused") {
    const std::vector<double> two = {1, 2}, three = {1, 2, 3}, broken = {1, std::nan("")}, none;
    const auto message = [](auto& a, auto& b, std::int64_t resamples, double level) {
      return error_of(Fault::internal, [&] { paired_bootstrap(a, b, 1, resamples, level); });
    };
    check_mentions(message(two, three, 10, 0.95), "2 values", "3 of the other");
    check_mentions(message(none, none, 10, 0.95), "0 values");
    check_mentions(message(two, broken, 10, 0.95), "sample 1", "finite");
    check_mentions(message(two, two, 0, 0.95), "0 resamples");
    check_mentions(message(two, two, 10, 1.0), "level 1");
  }
}
