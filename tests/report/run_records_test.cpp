#include "lockstep/report/run_records.hpp"

#include "support/test.hpp"

namespace {

EvalRecord evaluation(std::int64_t step, const std::string& split) {
  return {.step = step,
          .epoch = 2.5,
          .split = split,
          .loss = 1.25,
          .metrics = {{"ndcg@10", 0.25}, {"loss", 1.25}, {"broken", std::nan("")}},
          .samples_per_s = 7,
          .seconds = 0.5,
          .best = true,
          .tables = {{"confusion", {"a", "b"}, {"a", "b"}, {3, 1, 0, 2}}},
          .protocol = split + ", 10 users, full ranking of 20 items",
          .data_file = "a.h5",
          .data_hash = "00ff",
          .weights = "best",
          .time = 99};
}
StepRecord training(std::int64_t step) {
  return {.step = step,
          .epoch = 2.5,
          .loss = {},
          .lr = 0.5,
          .seconds = 3,
          .phases = {{"update", 1}},
          .ranks = 4,
          .gpus = {{0, {{"utilization_percent", 97}, {"power_w", 400.5}}}, {3, {{"power_w", 90}}}},
          .metrics = {}};
}

}  // namespace

TEST_SUITE("report.run_records") {
  TEST_CASE("the slowest rank is compared with the median of the others") {
    StepRecord record;
    const auto slowest = [&](const std::vector<double>& seconds) {
      name_slowest(record, seconds);
      return std::pair(record.slowest_rank, record.slowest_by);
    };
    CHECK(slowest({1, 5}) == std::pair(1, 4.0));
    CHECK(slowest({2, 1, 9, 4}) == std::pair(2, 3.5));
    CHECK(slowest({3, 1, 2}) == std::pair(0, 1.0));
    CHECK(slowest({1, 1}) == std::pair(0, 0.0));
    CHECK(slowest({0, 1}) == std::pair(1, 0.0));
  }

  TEST_CASE("a record reads back as it was written, in order, up to a line that is cut off") {
    const std::string text = record_line(training(5)) + record_line(evaluation(6, "validation")), cut = "{\"step\":7,";
    std::vector<RunRecord> read;
    const std::size_t size = read_records(text + cut, [&](RunRecord r) { return read.push_back(std::move(r)), true; });
    CHECK(size == text.size());
    REQUIRE(read.size() == 2);
    std::string again;
    for (const RunRecord& r : read) again += record_line(r);
    CHECK(again == text);
    const auto& s = std::get<StepRecord>(read[0]);
    CHECK(s.ranks == 4);
    REQUIRE(s.gpus.size() == 2);
    CHECK(s.gpus[1].rank == 3);
    CHECK(s.gpus[0].values[1].value == 400.5);
    const auto& e = std::get<EvalRecord>(read[1]);
    CHECK(e.metrics[0].name == "ndcg@10");
    CHECK(std::isnan(e.metrics[2].value));
    CHECK(e.data_hash == "00ff");
    REQUIRE(e.tables.size() == 1);
    CHECK(e.tables[0].columns == std::vector<std::string>{"a", "b"});
    CHECK(read_records(text, [](const RunRecord&) { return false; }) == 0);
    const std::string short_table =
        R"({"step":1,"split":"test","tables":{"a":{"rows":["x"],"columns":["y"],"values":[]},"b":5}})"
        "\n";
    CHECK(read_records(short_table, [](const RunRecord& r) { return std::get<EvalRecord>(r).tables.empty(); }) > 0);
    const std::string odd = "{\"step\":1,\"split\":\"test\",\"best\":null}\n";
    CHECK(read_records(odd, [](const RunRecord& r) { return !std::get<EvalRecord>(r).best; }) == odd.size());
  }

  TEST_CASE("a run has finished once it has evaluated its test samples after its last step") {
    std::string text = record_line(training(5)) + record_line(evaluation(5, "validation"));
    write_text(kMetricsFile, text);
    CHECK_FALSE(read_run_records(".").evaluated);
    write_text(kMetricsFile, text += record_line(evaluation(5, "test")));
    CHECK(read_run_records(".").evaluated);
    write_text(kMetricsFile, text += record_line(training(9)));  // it continued
    add_evaluation(".", evaluation(5, "test"));
    const RunRecords run = read_run_records(".");
    CHECK_FALSE(run.evaluated);
    CHECK(run.step == 9);
    CHECK(run.seconds == 6);
    REQUIRE(run.evaluations.size() == 3);
    CHECK(run.evaluations[2].time > 1.7e9);
  }
}
