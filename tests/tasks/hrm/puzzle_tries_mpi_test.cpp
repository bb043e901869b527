#include "lockstep/base/hash.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/tasks/hrm/hrm_task.hpp"
#include "lockstep/tasks/hrm/puzzle_tries.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/mpi_main.hpp"
#include "support/random_puzzles.hpp"
#include "support/test.hpp"

namespace {

PuzzleAnswer answer(std::int32_t token, double q_halt) { return {.answer = {token}, .segments = 2, .q_halt = q_halt}; }

/// Random puzzles of 4 x 4 cells, and a network whose weights are large enough for answers to differ between tries.
struct Fixture {
  explicit Fixture(const Tries& tries, const std::string& task = "sudoku", DType dtype = DType::f32) {
    HrmTask::Options o;
    o.arch = {.hidden = 12, .heads = 2, .expansion = 1, .h_layers = 1, .l_layers = 1};
    o.loss = {.halt_max_steps = 5};
    o.dtype = dtype;
    o.tries = tries;
    o.eval_halt = true;
    PuzzleData data = random_puzzles(3 * kPuzzles, 16, 6, 1);
    data.task = task;
    model = std::make_unique<HrmTask>(o, std::move(data));
    for (Param& p : model->params().all()) spread(p);
    for (std::int64_t i = 0; i < kPuzzles; ++i) {
      std::vector<std::int32_t> in(16), out(16);
      model->data().read(model->sample_of(Split::test, i), in, out);
      inputs.insert(inputs.end(), in.begin(), in.end());
    }
    identifiers.resize(kPuzzles);
  }
  /// The Q-head starts at zero, so all halting values would be equal.
  static void spread(Param& p) {
    if (!p.name.starts_with("q_head")) return;
    const Philox draw(5, 0, "spread", static_cast<std::uint64_t>(p.value.size()));
    visit_float(p.value.dtype(), [&]<class T>() {
      for (std::int64_t i = 0; i < p.value.size(); ++i)
        p.value.data<T>()[i] = static_cast<T>(draw.normal(static_cast<std::uint64_t>(i)));
    });
  }
  std::vector<PuzzleVote> solve(int threads, std::int64_t first = 0, const Thinking& thinking = {.halt = true},
                                const TriesObserver& see = {}) {
    return try_puzzles(test_world().communicator(), *model, first, inputs, identifiers, model->options().tries,
                       thinking, threads, see);
  }
  static constexpr std::int64_t kPuzzles = 70;  // more than one block
  std::unique_ptr<HrmTask> model;
  std::vector<std::int32_t> inputs, identifiers;
};

std::uint64_t hash_of(std::span<const PuzzleVote> votes) {
  std::uint64_t hash = 0;
  for (const PuzzleVote& v : votes) {
    hash = hash64(v.best().answer.data(), v.best().answer.size() * sizeof(std::int32_t), hash);
    const double values[] = {v.best().q_halt, v.best().q_continue, static_cast<double>(v.segments()),
                             static_cast<double>(v.agreeing()), static_cast<double>(v.tries())};
    hash = hash64(values, sizeof(values), hash);
  }
  return hash;
}

}  // namespace

TEST_SUITE("tasks.puzzle_tries") {
  TEST_CASE("votes count tries, halting adds probabilities, rules come first") {
    struct Case {
      const char* combine;
      std::int32_t wins;
    };
    for (const auto& [combine, wins] : {Case{"votes", 7}, {"halting", 8}, {"rules", 9}}) {
      CAPTURE(combine);
      PuzzleVote vote(combine);
      for (const double q : {-3.0, -3.0}) vote.add(answer(7, q), false);
      vote.add(answer(8, 2), false);
      vote.add(answer(9, -5), true);
      CHECK(vote.best().answer[0] == wins);
      CHECK(vote.agreeing() == (wins == 7 ? 2 : 1));
      CHECK(vote.tries() == 4);
      CHECK(vote.segments() == 8);
    }
  }

  TEST_CASE("ties go to the more confident answer, then to the first; a NaN halting value counts nothing") {
    PuzzleVote votes("votes"), equal("halting"), broken("halting");
    for (const auto& [token, q] : {std::pair{1, 0.0}, {2, 1.0}}) votes.add(answer(token, q), false);
    CHECK(votes.best().answer[0] == 2);
    for (const std::int32_t token : {4, 3}) equal.add(answer(token, 1), false);
    CHECK(equal.best().answer[0] == 4);
    broken.add(answer(1, std::numeric_limits<double>::quiet_NaN()), false);
    broken.add(answer(2, -9), false);
    CHECK(broken.best().answer[0] == 2);
  }

  TEST_CASE("a vote is decided when no further tries can change it") {
    PuzzleVote votes("votes"), halting("halting"), rules("rules");
    for (int i = 0; i < 3; ++i)
      for (PuzzleVote* vote : {&votes, &halting, &rules}) vote->add(answer(1, 40), false);
    CHECK(votes.decided(2));
    CHECK_FALSE(votes.decided(3));
    CHECK(halting.decided(2));
    CHECK_FALSE(halting.decided(3));
    CHECK_FALSE(rules.decided(1));
    CHECK(rules.decided(0));
    rules.add(answer(2, -40), true);
    CHECK(rules.decided(100));
    votes.add(answer(2, 0), false);
    CHECK_FALSE(votes.decided(2));
    CHECK(votes.decided(1));
  }

  TEST_CASE("a puzzle's answers have the same bits on any ranks and threads, and do not depend on other puzzles") {
    for (const double noise : {0.0, 0.5}) {
      CAPTURE(noise);
      Fixture f({.count = 6, .combine = "votes", .noise = noise, .seed = 3});
      const std::uint64_t hash = hash_of(f.solve(1));
      CHECK(hash_of(f.solve(3)) == hash);
      CHECK(test_world().communicator().all_reduced(hash, ReduceOp::min, "test") == hash);
      CHECK(test_world().communicator().all_reduced(hash, ReduceOp::max, "test") == hash);

      Fixture exact({.count = 6, .combine = "votes", .noise = noise, .seed = 3}, "sudoku", DType::f64);
      const std::vector<PuzzleVote> all = exact.solve(2);
      exact.inputs.erase(exact.inputs.begin(), exact.inputs.begin() + 5 * 16);
      exact.identifiers.resize(Fixture::kPuzzles - 5);
      const std::vector<PuzzleVote> some = exact.solve(2, 5);
      for (std::size_t i = 0; i < some.size(); ++i) CHECK(some[i].best().answer == all[i + 5].best().answer);
    }
  }

  TEST_CASE("tries differ, and a single one is the puzzle itself") {
    for (const double noise : {0.0, 0.5}) {
      CAPTURE(noise);
      Fixture one({.combine = "votes", .noise = noise}), many({.count = 8, .combine = "votes", .noise = noise});
      std::vector<PuzzleVote> first;
      many.solve(1, 0, {.halt = true}, [&](std::int64_t k, std::span<const PuzzleVote> votes) {
        if (k == 1) first.assign(votes.begin(), votes.end());
      });
      CHECK(hash_of(first) == hash_of(one.solve(1)));
      std::int64_t disagreeing = 0;
      for (const PuzzleVote& vote : many.solve(1)) disagreeing += vote.agreeing() < vote.tries();
      CHECK(disagreeing > 0);
    }
  }

  TEST_CASE("a puzzle that leaves the batch changes no other's answers") {
    const Fixture f({}, "sudoku", DType::f64);
    constexpr std::int64_t kRows = 7;
    // The logits after each segment of the rows from `first` on; row r of all leaves after 1 + (3 r) % 5 segments.
    const auto solve = [&](std::int64_t first, std::int64_t count) {
      std::vector<std::vector<double>> logits(to_size(count));
      OwnTape tape(DType::f64);
      const auto at = to_size(first), rows = to_size(count);
      f.model->solve(
          tape, std::span(f.inputs).subspan(16 * at, 16 * rows), std::span(f.identifiers).first(rows), 5,
          [&](std::int64_t row, std::int64_t segment, std::span<const std::int32_t>, double q, double other) {
            logits[to_size(row)].insert(logits[to_size(row)].end(), {q, other});
            return segment < 1 + 3 * (first + row) % 5;
          });
      return logits;
    };
    const auto together = solve(0, kRows);
    for (std::int64_t row = 0; row < kRows; ++row) {
      CAPTURE(row);
      const auto& mine = together[to_size(row)];
      const std::vector<double> alone = solve(row, 1)[0];
      REQUIRE(std::ssize(mine) == 2 * (1 + 3 * row % 5));
      REQUIRE(alone.size() == mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) CHECK(mine[i] == Approx(alone[i]).epsilon(1e-9));
    }
  }

  TEST_CASE("a puzzle whose tries agree takes no more of them than decide") {
    Fixture f({.count = 32, .combine = "votes", .noise = 1e-9});
    for (const PuzzleVote& vote : f.solve(2)) {
      CHECK(vote.agreeing() == vote.tries());
      CHECK(vote.tries() == 20);  // in waves of a quarter: 16, 20, 24, ...
    }
  }

  TEST_CASE("an evaluation reports the curve, the same on all ranks") {
    Fixture f({.count = 6, .combine = "votes", .noise = 0.5});
    const std::vector<Metric> metrics = evaluate(test_world().communicator(), *f.model, Split::test, 2);
    std::vector<std::string> names = f.model->collective_metric_names();
    CHECK(names.front() == "exact.noise.votes@1");
    CHECK(names.back() == "segments@6");
    CHECK(names.size() == 8);
    for (const auto& [name, larger] : {std::pair{"exact.noise.votes@6", true}, {"segments@6", false}}) {
      RunConfig config;
      config.eval.best = name;
      CHECK(deciding_metric(config, *f.model).larger_is_better == larger);  // by which a sweep chooses
    }
    double before = 0;
    for (const std::string& name : names) {
      const auto found = std::ranges::find_if(metrics, [&](const Metric& m) { return m.name == name; });
      REQUIRE(found != metrics.end());
      CHECK(test_world().communicator().all_reduced(found->value, ReduceOp::max, "test") == found->value);
      if (!name.starts_with("segments")) continue;
      CHECK(found->value > before);
      before = found->value;
    }
    CHECK(before <= 30);
  }

  TEST_CASE("tries of puzzles without symmetries are refused") {
    const auto refused = [](const Tries& tries, const char* task, const char* message) {
      CHECK_THROWS_WITH_AS(tries.check(task), doctest::Contains(message), Error);
    };
    refused({.count = 2}, "arc", "option tries = 2: puzzles of task arc have no common symmetries");
    refused({.count = 2, .noise = 1}, "arc", "leave tries at 1");
    refused({.count = 9}, "maze", "option tries = 9: a maze has 8 symmetries");
    CHECK_NOTHROW(Tries{.count = 8, .combine = "rules"}.check("maze"));
    CHECK_NOTHROW(Tries{.count = 9, .noise = 1}.check("maze"));
    Fixture maze({.count = 8}, "maze");
    CHECK(maze.solve(1)[0].tries() > 4);  // four confidences below 1 cannot outweigh the four tries left
  }
}
