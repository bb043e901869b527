#include "tasks/emulator/emulator_metrics.hpp"

#include "support/test.hpp"

using namespace lockstep::emulator_metrics;

TEST_SUITE("tasks.emulator_metrics") {
  TEST_CASE("the intervals of a calibrated ensemble hold 50, 90 and 95 % of the targets, also with few members") {
    constexpr std::int64_t kRows = 20000;
    for (const std::int64_t members : {2, 3, 10}) {
      CAPTURE(members);
      const Layout layout{.n_out = 1, .aice = false, .jacobian = false, .members = members};
      std::vector<double> values(to_size(Sums::count(layout)), 0.0);
      const Sums sums(values.data(), layout);
      Arena arena{Device{}};
      const auto column = [&] { return allocate(arena, DType::f64, {kRows, 1}); };
      const Tensor target = column(), mean = column();
      std::vector<Tensor> predictions;
      for (std::int64_t k = 0; k < members; ++k) predictions.push_back(column());
      for (std::int64_t r = 0; r < kRows; ++r) {  // targets and members from one distribution, another in each row
        const Philox draw(1, static_cast<std::uint64_t>(r), "calibrated");
        const double centre = 5 * draw.normal(0), width = 1 + std::abs(draw.normal(1));
        target.data<double>()[r] = centre + width * draw.normal(2);
        for (std::int64_t k = 0; k < members; ++k)
          predictions[to_size(k)].data<double>()[r] = centre + width * draw.normal(static_cast<std::uint64_t>(3 + k));
      }
      add_ensemble(sums, predictions, target, mean);
      sums.rows[0] = kRows;
      std::map<std::string, double> got;
      for (const Metric& m : metrics(sums, {"y"}, {1.0})) got[m.name] = m.value;
      for (const int percent : kPercents) {
        const double share = percent / 100.0, deviation = std::sqrt(share * (1 - share) / kRows);
        CHECK(std::abs(got.at("coverage" + std::to_string(percent)) - share) < 4 * deviation);  // sampling error
      }
    }
  }

  TEST_CASE("the best weights are those with the largest R2 or correlation, and with the smallest of other metrics") {
    const Layout layout{.n_out = 1, .aice = false, .jacobian = false, .members = 1};
    std::vector<double> values(to_size(Sums::count(layout)), 1.0);
    for (const Metric& m : metrics({values.data(), layout}, {"y"}, {1.0})) {
      CAPTURE(m.name);
      CHECK(m.larger_is_better == (m.name == "r2.y" || m.name == "corr.y"));
    }
  }
}
