#include "lockstep/tasks/hrm/puzzle_sampler.hpp"

#include "support/random_puzzles.hpp"
#include "support/test.hpp"

TEST_SUITE("tasks.puzzle_sampler") {
  TEST_CASE("an iteration visits every group equally often, in a different order each time") {
    const PuzzleData data = random_puzzles(20);
    PuzzleSampler sampler(data, 5, 3, 8);
    CHECK(sampler.nominal_batches() == 7);  // 60 visits, the last 4 are dropped
    sampler.begin(0);
    CHECK(sampler.batches() == 7);
    std::map<std::int64_t, int> seen;
    std::vector<std::int64_t> order;
    for (std::int64_t b = 0; b < 7; ++b) {
      std::vector<PuzzleExample> rows(8);
      sampler.rows(b, 0, rows);
      for (const PuzzleExample& row : rows) ++seen[row.group], order.push_back(row.group);
    }
    CHECK(seen.size() == 20);
    for (const auto& [group, count] : seen) CHECK((count == 2 || count == 3));
    CHECK_FALSE(std::equal(order.begin(), order.begin() + 20, order.begin() + 20));
    CHECK(std::set<std::int64_t>(order.begin(), order.begin() + 20).size() == 20);
    sampler.begin(1);
    std::vector<PuzzleExample> next(8);
    sampler.rows(0, 0, next);
    CHECK_FALSE(std::equal(next.begin(), next.end(), order.begin(),
                           [](const PuzzleExample& row, std::int64_t group) { return row.group == group; }));
  }

  TEST_CASE("any range of a batch agrees with the whole batch, for puzzles with one and with several examples") {
    PuzzleData data = random_puzzles(20);
    data.train.push_back(uneven_part({1, 3, 2}, {4, 1, 7, 2, 1, 3}));
    PuzzleSampler sampler(data, 5, 9, 6);
    sampler.begin(2);
    REQUIRE(sampler.batches() > 30);
    for (std::int64_t b = 0; b < sampler.batches(); ++b) {
      std::vector<PuzzleExample> whole(6);
      sampler.rows(b, 0, whole);
      for (std::int64_t first = 0; first < 6; ++first)
        for (std::int64_t count = 1; first + count <= 6; ++count) {
          std::vector<PuzzleExample> range(to_size(count));
          sampler.rows(b, first, range);
          for (std::int64_t i = 0; i < count; ++i) {
            const PuzzleExample &a = range[to_size(i)], &e = whole[to_size(first + i)];
            CHECK((a.part == e.part && a.row == e.row && a.identifier == e.identifier && a.variant == e.variant));
          }
        }
    }
  }

  TEST_CASE("a puzzle's examples occur once, and all of them if they fit into the batch") {
    PuzzleData data;
    data.train.push_back(uneven_part({1, 1}, {5, 5}));
    PuzzleSampler sampler(data, 1, 4, 10);
    sampler.begin(0);
    for (std::int64_t b = 0; b < sampler.batches(); ++b) {
      std::vector<PuzzleExample> rows(10);
      sampler.rows(b, 0, rows);
      std::set<std::int64_t> first, second;
      for (std::size_t i = 0; i < 5; ++i) {
        first.insert(rows[i].row);
        second.insert(rows[i + 5].row);
      }
      CHECK(first.size() == 5);
      CHECK(second.size() == 5);
    }
  }

  TEST_CASE("every variant of an online file is drawn") {
    PuzzleData data = random_puzzles(4);
    data.variants = 3;
    PuzzleSampler sampler(data, 1, 50, 10);
    sampler.begin(0);
    std::set<std::int64_t> variants;
    for (std::int64_t b = 0; b < sampler.batches(); ++b) {
      std::vector<PuzzleExample> rows(10);
      sampler.rows(b, 0, rows);
      for (const PuzzleExample& row : rows) variants.insert(row.variant);
    }
    CHECK(variants == std::set<std::int64_t>{0, 1, 2});
  }

  TEST_CASE("a batch that no epoch fills is refused") {
    const PuzzleData data = random_puzzles(5);
    CHECK_THROWS_AS(PuzzleSampler(data, 1, 1, 6), Error);
  }
}
