#include "lockstep/train/profiler.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

TEST_SUITE("train.profiler") {
  TEST_CASE("clocks that differ are compared within the stated error") {
    World& world = test_world();
    const std::int64_t ahead = 5'000'000'000LL * world.rank();
    std::vector<int> ranks(to_size(world.size() - 1));
    std::iota(ranks.begin(), ranks.end(), 1);
    const std::vector<ClockOffset> found =
        compare_clocks(world.communicator(), ranks, [&] { return profile::now_ns() + ahead; });
    REQUIRE(found.size() == (world.rank() == 0 ? ranks.size() : 0));
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(found[i].error_ns);
      CHECK(std::abs(found[i].offset_ns + 5'000'000'000LL * ranks[i]) <= found[i].error_ns);
    }
  }

  TEST_CASE("rank 0 collects the spans of all ranks and threads") {
    World& world = test_world();
    Profiler profiler(world, 2, Device{}, DType::f32);
#pragma omp parallel num_threads(2)
    const profile::Span span("work", profile::Kind::phase, world.rank() == 0 ? "first" : nullptr);
    world.communicator().barrier("meeting");
    const Timeline t = profiler.finish({1, 1});
    if (world.rank() != 0) return;
    REQUIRE(t.lanes.size() == 2 * to_size(world.size()));
    CHECK(t.lost == 0);
    CHECK(t.flops_per_thread > 0);
    for (const Timeline::Lane& lane : t.lanes) {
      REQUIRE(!lane.spans.empty());
      CHECK(t.words[lane.spans[0].name] == "work");
      CHECK(t.label(lane.spans[0]) == (lane.rank == 0 ? "first" : "work"));
      if (lane.number == 0 && world.size() > 1) CHECK(t.label(lane.spans[1]) == "meeting");
    }
    CHECK(slowest_rank(t).empty() == (world.size() == 1));
  }

  TEST_CASE("a range of steps is read, or its error says what is wrong") {
    CHECK(read_step_range("profile", "").empty());
    const StepRange range = read_step_range("profile", "100..110");
    CHECK(range.first == 100);
    CHECK(range.last == 110);
    for (const char* bad : {"100", "..", "5..", "..5", "0..4", "9..4", "1..x", "-1..3", "1..2..3", "1, 2"})
      CHECK_THROWS_AS(read_step_range("profile", bad), Error);
  }
}
