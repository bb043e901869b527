#include "lockstep/report/timeline.hpp"

#include <nlohmann/json.hpp>

#include "support/test.hpp"

using profile::Kind;

namespace {

/// Rank 1 arrives 40 us after rank 0 in collective 5, after a longer product.
Timeline two_ranks() {
  Timeline t;
  t.first = 3;
  t.last = 3;
  t.words = {"", "step", "linear", "collective", "gradient \"0\"", "thread 0"};
  t.flops_per_thread = 2e9;
  t.ranks = {{"node<0>", 0}, {"node1", 2e-6}};
  for (int rank = 0; rank < 2; ++rank) {
    const std::int64_t late = 40000 * rank;
    t.lanes.push_back(
        {.rank = rank,
         .number = 0,
         .name = "thread 0",
         .spans = {{.name = 3,
                    .detail = 4,
                    .kind = Kind::collective,
                    .number = 5,
                    .begin_ns = 151000 + late,
                    .end_ns = 201000},
                   {.name = 2, .kind = Kind::forward, .flops = 1e5F, .begin_ns = 101000, .end_ns = 151000 + late},
                   {.name = 1, .kind = Kind::phase, .number = 3, .begin_ns = 100000, .end_ns = 202500}}});
  }
  t.arrange();
  return t;
}

}  // namespace

TEST_SUITE("report.timeline") {
  TEST_CASE("spans are nested, and a collective knows how long it waited") {
    const Timeline t = two_ranks();
    const std::vector<Timeline::Span>& spans = t.lanes[0].spans;
    CHECK(t.words[spans[0].name] == "step");
    CHECK(spans[0].self_ns == 2500);
    CHECK(spans[0].depth == 0);
    CHECK(spans[1].depth == 1);
    CHECK(spans[1].self_ns == 50000);
    CHECK(spans[2].waited_ns == 40000);
    CHECK(t.lanes[1].spans[2].waited_ns == 0);
  }

  TEST_CASE("the file is JSON in the format of Chrome's traces") {
    const nlohmann::json trace = nlohmann::json::parse(chrome_trace(two_ranks()));
    CHECK(trace["otherData"]["first_step"] == 3);
    int spans = 0;
    for (const nlohmann::json& e : trace["traceEvents"]) {
      if (e["ph"] == "M") {
        if (e["name"] == "process_name" && e["pid"] == 0) CHECK(e["args"]["name"] == "rank 0, node<0>");
        if (e["name"] == "process_name" && e["pid"] == 1) CHECK(e["args"]["clock_error_us"] == 2.0);
        continue;
      }
      ++spans;
      if (e["cat"] != "collective" || e["pid"] != 0) continue;
      CHECK(e["name"] == "gradient \"0\"");
      CHECK(e["ts"] == 51.0);
      CHECK(e["dur"] == 50.0);
      CHECK(e["args"]["waited_us"] == 40.0);
      CHECK(e["args"]["last_rank"] == 1);
    }
    CHECK(spans == 6);
  }

  TEST_CASE("tables name the slowest operations and the slowest rank") {
    const Timeline t = two_ranks();
    const ReportTable operations = slowest_operations(t, 2);
    REQUIRE(operations.rows.size() == 2);
    CHECK(operations.rows[0] ==
          std::vector<std::string>{"linear", "forward", "2", "140.0us", "68.3 %", "1.4", "71.4 %"});
    CHECK(operations.rows[1][0] == "gradient \"0\"");
    CHECK(rank_times(t).rows[1] == std::vector<std::string>{"1", "102.5us", "10.0us", "0.0us", "40.0us"});
    CHECK(slowest_rank(t) == "the slowest is rank 1: the others waited 40.0us for it in all; it waited for no rank");
    CHECK(table_text(operations).starts_with("\n  operation"));
  }

  TEST_CASE("the picture shows each thread in one step") {
    const Timeline t = two_ranks();
    const ReportPicture picture = timeline_picture(t);
    CHECK(picture.title == "Timeline of step 3");
    for (const char* part : {"rank 0, thread 0", "rank 1, thread 0", "gradient &quot;0&quot;, 50.0us"})
      CHECK(picture.svg.find(part) != std::string::npos);
    CHECK(timeline_picture(Timeline{}).svg.empty());
  }
}
