#include "lockstep/tasks/sequences/sequence_sampler.hpp"

#include "lockstep/base/permutation.hpp"
#include "lockstep/samples/sequence_window.hpp"
#include "support/elements.hpp"
#include "support/sequence_file.hpp"
#include "support/test.hpp"

namespace {

std::int64_t begin_of(const SequenceBatch& batch, std::int64_t b) { return batch.begin.data<std::int64_t>()[b]; }

}  // namespace

TEST_SUITE("tasks.sequence_sampler") {
  TEST_CASE("a packed batch holds the training windows without their padding") {
    const SequenceData data = read_set(gap_sessions(20));
    const WindowShape shape{.slots = 9, .timed = true};
    const Shard shard{.seed = 3, .epoch = 2, .step = 11, .first = 4, .count = 7};
    Arena arena;
    const SequenceBatch batch = training_batch(arena, data, shape, shard);
    REQUIRE(batch.samples() == 7);
    const Permutation order(data.size(Split::train), 3, 2);
    for (std::int64_t b = 0; b < batch.samples(); ++b) {
      const std::int64_t user = batch.user.data<std::int64_t>()[b];
      CHECK(user == data.user(Split::train, order(4 + b)));
      std::vector<std::int32_t> seq(9), pos(9);
      std::vector<std::int64_t> time(9);
      const std::int64_t count =
          training_window(data.items(user, Seen::training), data.times(user, Seen::training), seq, pos, time);
      REQUIRE(begin_of(batch, b + 1) - begin_of(batch, b) == count);
      for (std::int64_t k = 0; k < count; ++k) {
        const auto slot = to_size(9 - count + k);
        const std::int64_t at = begin_of(batch, b) + k;
        CHECK(batch.slot.data<std::int32_t>()[at] == static_cast<std::int32_t>(slot));
        CHECK(batch.item.data<std::int32_t>()[at] == seq[slot]);
        CHECK(batch.pos.data<std::int32_t>()[at] == pos[slot]);
        CHECK(batch.time.data<std::int64_t>()[at] == time[slot]);
        CHECK_FALSE(has_had(data, user, batch.neg.data<std::int32_t>()[at], Seen::training));
      }
    }
    CHECK(batch.targets == batch.tokens());
  }

  TEST_CASE("with padding every slot is a token") {
    const SequenceData data = read_set(sequence_set({{1, 2, 3, 4, 5, 6}, {4, 5, 6, 1}}, 8));
    Arena arena;
    const Shard shard{.count = 2};
    const SequenceBatch batch = training_batch(arena, data, {.slots = 5, .padded = true}, shard);
    CHECK(batch.tokens() == 10);
    CHECK(batch.targets == 3 + 1);
    CHECK_FALSE(batch.time);
    for (std::int64_t m = 0; m < 10; ++m) {
      CHECK(batch.slot.data<std::int32_t>()[m] == m % 5);
      CHECK((batch.neg.data<std::int32_t>()[m] == 0) == (batch.pos.data<std::int32_t>()[m] == 0));
    }
  }

  TEST_CASE("a sample is the same in any shard") {
    const SequenceData data = read_set(gap_sessions(30));
    const WindowShape shape{.slots = 12, .timed = true};
    Arena arena, other;
    const SequenceBatch all = training_batch(arena, data, shape, {.seed = 5, .step = 3, .first = 0, .count = 20});
    const SequenceBatch part = training_batch(other, data, shape, {.seed = 5, .step = 3, .first = 13, .count = 4});
    for (std::int64_t m = 0; m < part.tokens(); ++m) {
      const std::int64_t at = begin_of(all, 13) + m;
      CHECK(part.item.data<std::int32_t>()[m] == all.item.data<std::int32_t>()[at]);
      CHECK(part.neg.data<std::int32_t>()[m] == all.neg.data<std::int32_t>()[at]);
      CHECK(part.time.data<std::int64_t>()[m] == all.time.data<std::int64_t>()[at]);
    }
    const SequenceBatch later = training_batch(other, data, shape, {.seed = 5, .step = 4, .first = 13, .count = 4});
    CHECK(elements<std::int32_t>(part.neg) != elements<std::int32_t>(later.neg));
  }

  TEST_CASE("several negatives per target are unknown items, and differ") {
    const SequenceData data = read_set(gap_sessions(20));
    Arena arena;
    const Shard shard{.seed = 3, .step = 1, .count = 20};
    const SequenceBatch batch = training_batch(arena, data, {.slots = 9}, shard, 5);
    CHECK(batch.neg.shape() == Shape{batch.tokens(), 5});
    bool differ = false;
    for (std::int64_t b = 0; b < batch.samples(); ++b)
      for (std::int64_t m = begin_of(batch, b); m < begin_of(batch, b + 1); ++m) {
        const auto* drawn = batch.neg.data<std::int32_t>() + 5 * m;
        for (int k = 0; k < 5; ++k)
          CHECK_FALSE(has_had(data, batch.user.data<std::int64_t>()[b], drawn[k], Seen::training));
        differ = differ || drawn[0] != drawn[1];
      }
    CHECK(differ);
  }

  TEST_CASE("popular items are drawn in proportion to a power of their events, with the logarithm as bias") {
    // Training items: 1 four times, 2 twice, 3, 4 and 5 never (counted as once).
    const SequenceData data = read_set(sequence_set({{1, 2, 3, 4}, {1, 2, 4, 5}, {1, 1, 3, 5}}, 5));
    for (const double power : {0.0, 0.5, 1.0}) {
      std::vector<double> weight = {std::pow(4, power), std::pow(2, power), 1, 1, 1}, seen(5);
      double all = 0;
      for (const double w : weight) all += w;
      constexpr std::int64_t kDraws = 20000;
      const PopularItems popular(data.training_counts(), power, kDraws);
      Arena arena;
      SequenceBatch batch, again;
      popular.draw(arena, 1, 7, DType::f64, batch);
      popular.draw(arena, 1, 7, DType::f64, again);
      CHECK(elements<std::int32_t>(batch.candidates) == elements<std::int32_t>(again.candidates));
      for (std::int64_t k = 0; k < kDraws; ++k) {
        const auto item = to_size(batch.candidates.data<std::int32_t>()[k] - 1);
        seen.at(item) += 1;
        REQUIRE(batch.bias.data<double>()[k] == Approx(-std::log(kDraws * weight[item] / all)));
      }
      for (std::size_t i = 0; i < 5; ++i) CHECK(seen[i] / kDraws == Approx(weight[i] / all).epsilon(0.05));
    }
  }

  TEST_CASE("a window ends with the newest item that the split may see") {
    const SequenceData data = read_set(sequence_set({{1, 2, 3, 4, 5, 6}, {2}, {4, 5, 6}}, 8));
    Arena arena;
    const std::vector<UserHistory> histories = {data.history(0, Seen::training), data.history(2, Seen::training)};
    const SequenceBatch valid = newest_batch(arena, {.slots = 3}, histories);
    CHECK(elements<std::int32_t>(valid.item) == std::vector<std::int32_t>{2, 3, 4, 4});
    CHECK(elements<std::int32_t>(valid.slot) == std::vector<std::int32_t>{0, 1, 2, 2});
    const std::vector<UserHistory> later = {data.history(2, Seen::validation)};
    const SequenceBatch test = newest_batch(arena, {.slots = 3}, later);
    CHECK(elements<std::int32_t>(test.item) == std::vector<std::int32_t>{4, 5});
    CHECK_FALSE(test.pos);
  }

  TEST_CASE("negatives cover exactly the items outside the training part of the history") {
    const SequenceData data = read_set(sequence_set({{1, 2, 3, 1, 5, 6}, {1, 2, 3, 4}}, 8));
    std::set<std::int32_t> trained;
    Arena arena;
    for (std::int64_t step = 0; step < 40; ++step) {
      arena.reset();
      const SequenceBatch batch = training_batch(arena, data, {.slots = 4}, {.step = step, .count = 2});
      for (std::int64_t b = 0; b < 2; ++b) {
        if (batch.user.data<std::int64_t>()[b] != 0) continue;
        for (std::int64_t m = begin_of(batch, b); m < begin_of(batch, b + 1); ++m)
          trained.insert(batch.neg.data<std::int32_t>()[m]);
      }
    }
    CHECK(trained == std::set<std::int32_t>{4, 5, 6, 7, 8});
  }

  TEST_CASE("few rivals are drawn once each, with zeros after the last; many with replacement") {
    const auto drawn = [](const Rivals& rivals, std::int64_t user, std::int32_t target, std::size_t count,
                          std::uint64_t seed = 9) {
      std::vector<std::int32_t> items(count);
      rivals.draw(user, target, seed, items);
      return items;
    };
    const std::vector<std::vector<std::int32_t>> histories = {
        {1, 2, 3, 1, 5, 6}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
    const SequenceData data = read_set(sequence_set(histories, 8));
    const Rivals unknown{data}, others{data, Repeats::keep};
    CHECK(unknown.count(0) == 3);
    CHECK(unknown.count(1) == 4);
    CHECK(unknown.count(2) == 0);
    CHECK(others.count(2) == 7);
    CHECK(drawn(unknown, 2, 8, 2) == std::vector<std::int32_t>{0, 0});
    std::vector<std::int32_t> all = drawn(unknown, 0, 6, 5);
    CHECK(std::set<std::int32_t>(all.begin(), all.begin() + 3) == std::set<std::int32_t>{4, 7, 8});
    CHECK(all[3] + all[4] == 0);
    std::map<std::int32_t, int> times;
    for (std::uint64_t seed = 0; seed < 600; ++seed) {
      const std::vector<std::int32_t> two = drawn(unknown, 0, 6, 2, seed);
      REQUIRE(two[0] != two[1]);
      for (const std::int32_t item : two) ++times[item];
    }
    for (const std::int32_t item : {4, 7, 8}) CHECK(times[item] == Approx(400).epsilon(0.1));
    all = drawn(others, 0, 6, 7);
    CHECK(std::set<std::int32_t>(all.begin(), all.end()) == std::set<std::int32_t>{1, 2, 3, 4, 5, 7, 8});

    const SequenceData large = read_set(sequence_set(histories, 36));  // user 0 lacks 31 items: 10 times 3
    const Philox draws(9, 0, "candidates", 0);
    std::vector<std::int32_t> wanted;
    for (std::uint64_t index = 0; wanted.size() < 3; ++index)
      if (const auto item = 1 + static_cast<std::int32_t>(draws.below(36, index));
          !has_had(large, 0, item, Seen::everything))
        wanted.push_back(item);
    CHECK(drawn({large}, 0, 6, 3) == wanted);
  }
}
