#include "lockstep/base/permutation.hpp"

#include "support/test.hpp"

namespace {

std::vector<std::int64_t> all(const Permutation& p) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < p.size(); ++i) values.push_back(p(i));
  return values;
}
bool is_permutation(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

}  // namespace

TEST_SUITE("base.permutation") {
  TEST_CASE("every number occurs once") {
    for (std::int64_t n = 1; n <= 300; ++n) {
      CAPTURE(n);
      CHECK(is_permutation(all(Permutation(n, 7, 3))));
    }
    for (const std::int64_t n : {4095, 4096, 4097, 65537, 360001, 1000000}) {
      CAPTURE(n);
      CHECK(is_permutation(all(Permutation(n, 1, 0))));
    }
  }

  TEST_CASE("for an n far beyond memory, values are in range and distinct") {
    const std::int64_t n = (std::int64_t{1} << 41) + 12345;
    const Permutation p(n, 5, 5);
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < 20000; ++i) values.push_back(p(n - 1 - i));
    for (const std::int64_t value : values) CHECK((value >= 0 && value < n));
    std::sort(values.begin(), values.end());
    CHECK(std::adjacent_find(values.begin(), values.end()) == values.end());
    CHECK(values[10000] > n / 2 - n / 50);
    CHECK(values[10000] < n / 2 + n / 50);
  }

  TEST_CASE("the order depends on seed and epoch, and on nothing else") {
    const std::vector<std::int64_t> first = all(Permutation(1000, 1, 0));
    CHECK(first == all(Permutation(1000, 1, 0)));
    for (const Permutation& other :
         {Permutation(1000, 1, 1), Permutation(1000, 2, 0), Permutation(1000, 1, std::uint64_t{1} << 32)}) {
      const std::vector<std::int64_t> values = all(other);
      int equal = 0;
      for (std::size_t i = 0; i < values.size(); ++i) equal += values[i] == first[i];
      CHECK(equal < 8);  // 1 is expected
    }
  }

  TEST_CASE("neighbouring positions have unrelated values: no trend, no serial correlation, no fixed distance") {
    for (const std::int64_t n : {257, 4096, 100003}) {
      CAPTURE(n);
      const std::vector<std::int64_t> v = all(Permutation(n, 11, 2));
      const double mean = static_cast<double>(n - 1) / 2,
                   variance = (static_cast<double>(n) * static_cast<double>(n) - 1) / 12;
      const auto correlation = [&](const auto& other) {
        double sum = 0;
        for (std::size_t i = 0; i + 1 < v.size(); ++i) sum += (static_cast<double>(v[i]) - mean) * (other(i) - mean);
        return sum / (variance * static_cast<double>(n));
      };
      const double five_sigma = 5 / std::sqrt(static_cast<double>(n));
      CHECK(std::abs(correlation([](std::size_t i) { return static_cast<double>(i); })) < five_sigma);
      CHECK(std::abs(correlation([&](std::size_t i) { return static_cast<double>(v[i + 1]); })) < five_sigma);
      std::vector<std::int64_t> steps;
      for (std::size_t i = 0; i + 1 < v.size(); ++i) steps.push_back(v[i + 1] - v[i]);
      std::sort(steps.begin(), steps.end());
      std::int64_t most = 0, run = 0;
      for (std::size_t i = 0; i < steps.size(); ++i)
        most = std::max(most, run = i > 0 && steps[i] == steps[i - 1] ? run + 1 : 1);
      CHECK(most <= 12);
    }
  }

  TEST_CASE("each number is equally likely at each position") {  // chi-squared over 2000 epochs, 99 degrees of freedom
    std::vector<double> counts(100, 0);
    for (std::uint64_t epoch = 0; epoch < 2000; ++epoch)
      counts[to_size(Permutation(10, 3, epoch)(0) * 10 + Permutation(10, 3, epoch)(7))] += 1;
    double chi2 = 0;
    for (std::size_t cell = 0; cell < 100; ++cell)
      if (cell / 10 == cell % 10)
        CHECK(counts[cell] == 0);
      else
        chi2 += std::pow(counts[cell] - 2000.0 / 90, 2) / (2000.0 / 90);
    CHECK(chi2 < 150);
  }

  TEST_CASE("a permutation of 0 items is an error") { CHECK_THROWS_AS(Permutation(0, 1, 1), Error); }
}
