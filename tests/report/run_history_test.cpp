#include "report/run_history.hpp"

#include "support/test.hpp"

TEST_SUITE("report.run_history") {
  TEST_CASE("a long run keeps sums, extremes and order in bounded memory") {
    RunHistory history;
    constexpr int kSteps = 100000;
    for (int s = 1; s <= kSteps; ++s)
      history.add(StepRecord{.step = s,
                             .epoch = s / 100.0,
                             .loss = s == 54321 ? 1e6 : 1.0,
                             .lr = 1.0 / s,
                             .grad_norm = s % 2 == 0 ? 3.0 : -1,
                             .samples_per_s = 10,
                             .seconds = 0.5,
                             .phases = {{"a", 0.2}, {"b", 0.3}},
                             .metrics = {}});
    const auto& points = history.training();
    CHECK(points.size() > 500);
    CHECK(points.size() <= 1200);
    double seconds = 0, a = 0, loss = 0, most = 0, norm = 0;
    std::int64_t records = 0, last = 0;
    for (const auto& p : points) {
      CHECK(p.step > last);
      last = p.step;
      seconds += p.seconds, a += p.phases.at(0), records += p.records;
      loss += p.loss * static_cast<double>(p.records);
      most = std::max(most, p.loss_max);
      norm = p.grad_norm;
      CHECK(p.samples_per_s == Approx(10));
    }
    CHECK(last == kSteps);
    CHECK(records == kSteps);
    CHECK(seconds == Approx(kSteps * 0.5));
    CHECK(a == Approx(kSteps * 0.2));
    CHECK(loss == Approx(kSteps - 1 + 1e6));
    CHECK(most == 1e6);
    CHECK(norm == Approx(3));
    CHECK(points.back().lr == 1.0 / kSteps);
    const auto few = history.condensed(100);
    CHECK(few.size() <= 100);
    CHECK(few.size() > 50);
    CHECK(few.back().step == kSteps);
    double few_seconds = 0;
    for (const auto& p : few) few_seconds += p.seconds;
    CHECK(few_seconds == Approx(kSteps * 0.5));
    CHECK(RunHistory().condensed(10).empty());
  }

  TEST_CASE("evaluations keep last, best and extremes exactly") {
    RunHistory history;
    for (int s = 1; s <= 5000; ++s)
      history.add(EvalRecord{.step = s,
                             .epoch = static_cast<double>(s),
                             .split = "validation",
                             .loss = std::abs(s - 3000.0),
                             .metrics = {{"r2", s == 17 ? std::nan("") : s / 5000.0}},
                             .samples_per_s = 1,
                             .seconds = 0,
                             .best = s <= 3000});
    const auto& e = history.evaluations().at("validation");
    CHECK(e.lowest.at("loss").step == 3000);
    CHECK(e.highest.at("loss").value == 2999);
    CHECK(e.best.at("loss").step == 3000);
    CHECK(e.last.at("r2").value == 1.0);
    CHECK(e.names == std::vector<std::string>{"loss", "r2"});
    const auto& series = e.series.at("loss");
    CHECK(series.size() <= 1200);
    CHECK(series.size() > 500);
    for (std::size_t i = 1; i < series.size(); ++i) CHECK(series[i].step > series[i - 1].step);
    CHECK(series.back().step == 5000);
  }
}
