#include "report/html_report.hpp"

#include "support/test.hpp"

namespace {

std::string page_of(const RunHistory& history) {
  return report_html({RunFacts{.title = "har", .config = "", .facts = {}}, history, {}, {}, {}, "finished", "today"});
}

}  // namespace

TEST_SUITE("report.html_report") {
  TEST_CASE("a metric of all classes has one chart, unless it is constant") {
    RunHistory history;
    for (int step = 1; step <= 3; ++step) {
      EvalRecord r{.step = step, .split = "validation", .loss = 4.0 - step, .metrics = {{"accuracy", 0.1 * step}}};
      for (int c = 0; c < 9; ++c) {
        r.metrics.push_back({join("f1.class", c), 0.1 * step + 0.01 * c});
        r.metrics.push_back({join("support.class", c), 10.0 + c});
      }
      r.best = step == 2;
      history.add(r);
    }
    const std::string page = page_of(history);
    CHECK(contains(page, "<figcaption>accuracy (validation)</figcaption>"));
    const auto chart = page.find("<figcaption>f1 (validation)");
    REQUIRE(chart != std::string::npos);
    const std::string caption = page.substr(chart, page.find("</figcaption>", chart) - chart);
    for (int c = 0; c < 9; ++c) CHECK(contains(caption, join(">class", c, "<")));
    CHECK_FALSE(contains(page, "support (validation)"));
    // The loss of the evaluation whose weights are kept need not be the lowest.
    CHECK(contains(page, "validation loss at the best evaluation (step 2)"));
  }

  TEST_CASE("each measurement of the GPUs has one chart; a run without GPUs has none") {
    RunHistory history;
    for (int step = 1; step <= 4; ++step) {
      StepRecord record{.step = step, .loss = 1, .lr = 0.1, .seconds = 1, .phases = {}, .metrics = {}};
      if (step < 4)  // then they are lost
        record.gpus = {{0, {{"power_w", 100.0 * step}, {"memory_bytes", 1 << 30}}}, {2, {{"power_w", 500}}}};
      history.add(record);
    }
    const std::string page = page_of(history);
    check_mentions(page, "<figcaption>GPU power</figcaption>", "<figcaption>GPU memory in use</figcaption>");
    CHECK_FALSE(contains(page, "SM clock"));
    const RunHistory::GpuRange power = history.condensed(1).front().gpus.at("power_w");
    CHECK(power.low == 100);
    CHECK(power.high == 500);
    CHECK(power.count == 6);
    CHECK(power.mean == Approx((100 + 200 + 300 + 3 * 500) / 6.0));
    RunHistory without;
    without.add(StepRecord{.step = 1, .loss = 1, .lr = 0.1, .seconds = 1, .phases = {}, .metrics = {}});
    CHECK_FALSE(contains(page_of(without), "GPU"));
  }

  TEST_CASE("records without a loss leave the loss of the others as it is") {
    RunHistory history;
    history.add(StepRecord{.step = 1, .loss = 0.5, .lr = 0.1, .seconds = 1, .phases = {}, .metrics = {}});
    history.add(StepRecord{.step = 2, .loss = std::nullopt, .lr = 0.1, .seconds = 1, .phases = {}, .metrics = {}});
    CHECK(history.condensed(1).front().loss == 0.5);
    const std::string page = page_of(history);
    CHECK(contains(page, "<b>0.5</b><span>training loss, last</span>"));
    CHECK_FALSE(contains(page, "nan"));
  }
}
