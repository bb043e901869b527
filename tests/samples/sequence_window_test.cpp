#include "lockstep/samples/sequence_window.hpp"

#include "support/test.hpp"

namespace {
struct Window {
  std::vector<std::int32_t> seq, pos;
  std::vector<std::int64_t> time;
  std::int64_t targets = 0;
};
Window window(std::size_t slots, const std::vector<std::int32_t>& items, const std::vector<std::int64_t>& times) {
  Window w{std::vector<std::int32_t>(slots, -1), std::vector<std::int32_t>(slots, -1),
           std::vector<std::int64_t>(times.empty() ? 0 : slots, -1)};
  w.targets = training_window(items, times, w.seq, w.pos, w.time);
  return w;
}
}  // namespace

TEST_SUITE("samples.sequence_window") {
  TEST_CASE("a short history is right-aligned: inputs without the last item, targets without the first") {
    const auto w = window(5, {7, 8, 9}, {1, 4, 6});
    CHECK(w.seq == std::vector<std::int32_t>{0, 0, 0, 7, 8});
    CHECK(w.pos == std::vector<std::int32_t>{0, 0, 0, 8, 9});
    CHECK(w.time == std::vector<std::int64_t>{0, 0, 0, 1, 4});
    CHECK(w.targets == 2);
  }

  TEST_CASE("a long history keeps its last T+1 items") {
    const auto w = window(2, {5, 6, 7, 8, 9}, {1, 2, 3, 4, 5});
    CHECK(w.seq == std::vector<std::int32_t>{7, 8});
    CHECK(w.pos == std::vector<std::int32_t>{8, 9});
    CHECK(w.time == std::vector<std::int64_t>{3, 4});
    CHECK(window(4, {5, 6, 7, 8, 9}, {}).seq == std::vector<std::int32_t>{5, 6, 7, 8});
  }

  TEST_CASE("fewer than two items give no target") {
    for (const std::vector<std::int32_t>& items : {std::vector<std::int32_t>{}, std::vector<std::int32_t>{3}}) {
      const auto w = window(2, items, std::vector<std::int64_t>(items.size(), 1));
      CHECK(w.targets == 0);
      CHECK(w.seq == std::vector<std::int32_t>{0, 0});
      CHECK(w.pos == std::vector<std::int32_t>{0, 0});
    }
  }

  TEST_CASE("buckets are distances clipped to the span") {
    CHECK(relation_bucket(5, 5, 10) == 0);
    CHECK(relation_bucket(5, 9, 10) == 4);
    CHECK(relation_bucket(9, 5, 10) == 4);
    CHECK(relation_bucket(1, 11, 10) == 10);
    CHECK(relation_bucket(1, std::int64_t{1} << 62, 10) == 10);
  }
}
