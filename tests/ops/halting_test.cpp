#include "lockstep/ops/halting.hpp"

#include "ops/on_both.hpp"
#include "support/elements.hpp"
#include "support/test.hpp"

namespace {

/// The state of a sequence, the results of its segment, and whether it must halt.
struct Sequence {
  double q_halt, q_continue, next_halt, next_continue;
  std::int32_t steps, least;
  std::int64_t labelled, correct;
  bool halts;  ///< with at most 3 segments
};
const std::vector<Sequence> kSequences = {
    {1, 0.5, 0.1, 0.2, 0, 0, 4, 4, true},     // q votes for halting
    {0.5, 1, 0.1, 0.2, 0, 0, 4, 3, false},    // q votes against
    {0.5, 0.5, 0.3, 0.2, 1, 0, 4, 4, false},  // a tie
    {1, 0.5, 0.1, 0.2, 0, 2, 4, 4, false},    // exploration forbids it
    {1, 0.5, 0.1, 0.2, 1, 2, 4, 4, true},     // exploration now allows it
    {-2, 1, 0.1, 0.2, 2, 3, 4, 1, true},      // most segments reached
    {-1, -2, 3, 2, 0, 0, 0, 0, true},         // without labels
    {0, -1, -3, 2, 2, 0, 4, 4, true},
};

/// The arrays of these sequences.
struct Step {
  std::vector<double> q, next_q, dq;
  std::vector<std::int32_t> steps, least, halted;
  std::vector<ops::SequenceScore> scores;
  std::vector<ops::HaltingScore> metrics;
  double loss = -1;

  explicit Step(const std::vector<Sequence>& sequences)
      : dq(2 * sequences.size(), -1), halted(sequences.size(), -1), metrics(sequences.size()) {
    for (const Sequence& s : sequences) {
      q.insert(q.end(), {s.q_halt, s.q_continue});
      next_q.insert(next_q.end(), {s.next_halt, s.next_continue});
      steps.push_back(s.steps);
      least.push_back(s.least);
      scores.push_back({.loss = 0.25 * static_cast<double>(s.labelled), .labelled = s.labelled, .correct = s.correct});
    }
  }
  void run(const ops::HaltingRule& rule, bool looks_ahead = true) {
    const auto n = std::ssize(steps);
    Stream stream;
    ops::halting_loss(stream, Tensor::of(&loss, {}), Tensor::of(dq.data(), {n, 2}), Tensor::of(steps.data(), {n}),
                      Tensor::of(halted.data(), {n}), metrics,
                      {.q = Tensor::of(q.data(), {n, 2}),
                       .next_q = looks_ahead ? Tensor::of(next_q.data(), {n, 2}) : Tensor{},
                       .scores = scores,
                       .least = least},
                      rule);
  }
};

}  // namespace

TEST_SUITE("ops.halting") {
  TEST_CASE("a decay weights loss and gradient by the number of earlier segments, and no metric") {
    Step even(kSequences), decayed(kSequences);
    const auto n = std::ssize(kSequences);
    std::vector<double> dlogits(3 * kSequences.size(), 8);
    Stream stream;
    ops::decay_sequences(stream, Tensor::of(dlogits.data(), {n, 3}), Tensor::of(decayed.steps.data(), {n}), 0.5);
    even.run({.most_steps = 3});
    decayed.run({.most_steps = 3, .decay = 0.5});
    double loss = 0;
    for (std::size_t b = 0; b < kSequences.size(); ++b) {
      const double weight = std::pow(0.5, kSequences[b].steps);
      const ops::HaltingScore &f = even.metrics[b], &g = decayed.metrics[b];
      loss += weight * (f.lm_loss + 0.5 * (f.q_halt_loss + f.q_continue_loss));
      CHECK(g.lm_loss + g.q_halt_loss + g.q_continue_loss == f.lm_loss + f.q_halt_loss + f.q_continue_loss);
      for (const std::size_t i : {2 * b, 2 * b + 1}) CHECK(decayed.dq[i] == weight * even.dq[i]);
      CHECK(dlogits[3 * b + 2] == 8 * weight);
    }
    CHECK(decayed.loss == Approx(loss).epsilon(1e-14));
  }

  TEST_CASE("a sequence halts when q and exploration agree, or when it has had all its segments") {
    Step step(kSequences);
    step.run({.most_steps = 3});
    for (std::size_t b = 0; b < kSequences.size(); ++b) {
      CAPTURE(b);
      CHECK(step.halted[b] == kSequences[b].halts);
      CHECK(step.steps[b] == kSequences[b].steps + 1);
    }
    Step once(kSequences);  // with a single segment, exploration does not count
    once.run({.most_steps = 1}, false);
    for (const std::int32_t halted : once.halted) CHECK(halted == 1);
    Step tiny(kSequences);  // TRM uses q_halt alone
    tiny.run({.most_steps = 9, .q_continue = false}, false);
    for (std::size_t b = 0; b < kSequences.size(); ++b)
      CHECK(tiny.halted[b] == (kSequences[b].q_halt > 0 && kSequences[b].steps + 1 >= kSequences[b].least));
  }

  TEST_CASE("the loss is the cells' loss plus half the loss of each logit; the target passes no gradient") {
    for (const bool looks_ahead : {true, false}) {
      CAPTURE(looks_ahead);
      Step step(kSequences);
      step.run({.most_steps = 3}, looks_ahead);
      double expected = 0;
      for (std::size_t b = 0; b < kSequences.size(); ++b) {
        CAPTURE(b);
        const Sequence& s = kSequences[b];
        const auto cross_entropy = [](double z, double y) {
          const double p = 1 / (1 + std::exp(-z));
          return -y * std::log(p) - (1 - y) * std::log(1 - p);
        };
        const double exact = s.correct == s.labelled,
                     best = s.steps + 1 == 3 ? s.next_halt : std::max(s.next_halt, s.next_continue),
                     target = 1 / (1 + std::exp(-best));
        const double halt = cross_entropy(s.q_halt, exact),
                     go_on = looks_ahead ? cross_entropy(s.q_continue, target) : 0;
        expected += step.scores[b].loss + 0.5 * (halt + go_on);
        CHECK(step.dq[2 * b] == Approx(0.5 * (1 / (1 + std::exp(-s.q_halt)) - exact)));
        CHECK(step.dq[2 * b + 1] == Approx(looks_ahead ? 0.5 * (1 / (1 + std::exp(-s.q_continue)) - target) : 0));
        const ops::HaltingScore& f = step.metrics[b];
        CHECK(f.lm_loss == step.scores[b].loss);
        CHECK(f.q_halt_loss == Approx(halt));
        CHECK(f.q_continue_loss == Approx(go_on));
        const bool counts = s.halts && s.labelled > 0;
        CHECK(f.count == counts);
        CHECK(f.accuracy == (counts ? static_cast<double>(s.correct) / 4 : 0));
        CHECK(f.exact == (counts && exact != 0));
        CHECK(f.q_halt_accuracy == (counts && (s.q_halt >= 0) == (exact != 0)));
        CHECK(f.steps == (counts ? s.steps + 1 : 0));
      }
      CHECK(step.loss == Approx(expected).epsilon(1e-14));
    }
  }

  TEST_CASE("a NaN logit makes the loss NaN, and halts nothing early") {
    Step step({kSequences[0], kSequences[5]});
    step.q[0] = step.q[2] = std::nan("");
    step.run({.most_steps = 3});
    CHECK(std::isnan(step.loss));
    CHECK(step.halted == std::vector<std::int32_t>{0, 1});
  }

  TEST_CASE("only sequences that have halted are replaced, by variants of their puzzles without the ignored labels") {
    std::vector<std::int32_t> inputs = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, labels = inputs, ids = {1, 2, 3},
                              steps = {4, 5, 6};
    const std::vector<std::int32_t> halted = {1, 0, 1};
    const std::vector<std::uint8_t> questions = {21, 22, 23, 24}, answers = {31, 0, 33, 34};
    std::vector<ops::PuzzlePick> picks(3, {.inputs = questions.data(), .labels = answers.data()});
    picks[0].identifier = 51;
    picks[2].variant = 4;  // mirrored left-right
    Stream stream;
    ops::begin_sequences(
        stream, {Tensor::of(inputs.data(), {3, 4}), Tensor::of(labels.data(), {3, 4}), Tensor::of(ids.data(), {3})},
        Tensor::of(steps.data(), {3}), Tensor::of(halted.data(), {3}), picks,
        {.variants = {PuzzleTask::maze, 4, 0}, .ignored = 0});
    CHECK(inputs == std::vector<std::int32_t>{21, 22, 23, 24, 5, 6, 7, 8, 22, 21, 24, 23});
    CHECK(labels == std::vector<std::int32_t>{31, -1, 33, 34, 5, 6, 7, 8, -1, 31, 34, 33});
    CHECK(ids == std::vector<std::int32_t>{51, 2, 0});
    CHECK(steps == std::vector<std::int32_t>{0, 5, 0});
  }

  TEST_CASE("arrays that do not fit together are an error") {
    Step step(kSequences);
    step.scores.pop_back();
    CHECK_THROWS_WITH_AS(step.run({}), doctest::Contains("halting_loss: of 8 sequences"), Error);
    const std::vector<std::int32_t> ints(6);
    const Tensor three = Tensor::of(ints.data(), {3}), two = Tensor::of(ints.data(), {2}),
                 cells = Tensor::of(ints.data(), {3, 2});
    Stream stream;
    const std::vector<ops::PuzzlePick> picks(3);
    CHECK_THROWS_WITH_AS(ops::begin_sequences(stream, {cells, cells, two}, three, three, picks, {}),
                         doctest::Contains("begin_sequences: of 3 sequences"), Error);
    CHECK_THROWS_AS(ops::begin_sequences(stream, {cells, cells, three}, three, two, picks, {}), Error);
    CHECK_THROWS_AS(ops::begin_sequences(stream, {cells, cells, three}, three, three, std::span(picks).first(2), {}),
                    Error);
  }
}

TEST_SUITE("ops.halting.cuda") {
  TEST_CASE("halting agrees with the CPU, decisions and metrics included" * doctest::skip(gpu_count() == 0)) {
    for (const std::int64_t batch : {0, 1, 31, 33, 300})
      for (const ops::HaltingRule rule : {ops::HaltingRule{.most_steps = 3}, ops::HaltingRule{.most_steps = 1},
                                          ops::HaltingRule{.most_steps = 4, .q_continue = false, .decay = 0.7}}) {
        CAPTURE(batch);
        CAPTURE(rule.most_steps);
        const auto n = to_size(batch);
        std::vector<std::int32_t> steps(n), least(n), ones(n, 1);
        std::vector<ops::SequenceScore> scores(n);
        for (std::size_t b = 0; b < n; ++b) {
          steps[b] = static_cast<std::int32_t>(b % 3);
          least[b] = static_cast<std::int32_t>(b % 5 == 0 ? 2 : 0);
          scores[b] = {.loss = 0.1 * static_cast<double>(b % 11),
                       .labelled = static_cast<std::int64_t>(b % 4),
                       .correct = static_cast<std::int64_t>(b % 4 > 1 ? b % 2 : 0)};
        }
        struct Seen {
          std::vector<std::int32_t> steps, halted;
          std::vector<ops::HaltingScore> metrics;
        };
        std::vector<Seen> all;
        every_dtype_agrees([&](Place& p) {
          const Tensor counts = p.put(Tensor::of(steps.data(), {batch})),
                       halted = p.put(Tensor::of(ones.data(), {batch}));
          const auto metrics = p.host(std::vector<ops::HaltingScore>(n));
          ops::decay_sequences(p.stream, p.real_out("dlogits", {batch, 2, 3}), counts, rule.decay);
          ops::halting_loss(p.stream, p.real_out("loss", {}), p.real_out("dq", {batch, 2}), counts, halted,
                            {const_cast<ops::HaltingScore*>(metrics.data()), n},
                            {.q = p.in("q", {batch, 2}),
                             .next_q = rule.most_steps == 3 ? p.in("next", {batch, 2}) : Tensor{},
                             .scores = p.host(scores),
                             .least = p.host(least)},
                            rule);
          p.stream.synchronize();
          all.push_back(
              {elements<std::int32_t>(counts), elements<std::int32_t>(halted), {metrics.begin(), metrics.end()}});
        });
        for (std::size_t i = 0; i < all.size(); ++i) {
          const Seen &found = all[i], &expected = all[i / 3 * 3];
          CHECK(found.steps == expected.steps);
          CHECK(found.halted == expected.halted);
          for (std::size_t b = 0; b < n; ++b) {
            const ops::HaltingScore &f = found.metrics[b], &e = expected.metrics[b];
            for (const auto& [is, should] : {std::pair{f.count, e.count},
                                             {f.accuracy, e.accuracy},
                                             {f.exact, e.exact},
                                             {f.q_halt_accuracy, e.q_halt_accuracy},
                                             {f.steps, e.steps},
                                             {f.lm_loss, e.lm_loss}})
              CHECK(is == should);
            CHECK(f.q_halt_loss == Approx(e.q_halt_loss).epsilon(1e-12));
            CHECK(f.q_continue_loss == Approx(e.q_continue_loss).epsilon(1e-12));
          }
        }
      }
  }

  TEST_CASE("sequences start with the CPU's bits, from tokens in GPU memory and in pinned memory" *
            doctest::skip(gpu_count() == 0)) {
    struct Case {
      PuzzleTask task;
      std::int64_t batch, cells;
    };
    for (const Case c : {Case{PuzzleTask::arc, 3, 7},
                         {PuzzleTask::arc, 1, 1},
                         {PuzzleTask::arc, 0, 5},
                         {PuzzleTask::sudoku, 40, 16},
                         {PuzzleTask::sudoku, 7, 81},
                         {PuzzleTask::maze, 16, 289}}) {
      CAPTURE(c.batch);
      CAPTURE(c.cells);
      const bool drawn = c.task != PuzzleTask::arc;
      const auto numbers = [](std::int64_t count, std::int32_t from) {
        std::vector<std::int32_t> values;
        for (std::int64_t i = 0; i < count; ++i) values.push_back(from + static_cast<std::int32_t>(i));
        return values;
      };
      std::vector<std::int32_t> halted;
      for (std::int64_t b = 0; b < c.batch; ++b) halted.push_back(b % 3 != 1);
      std::vector<std::uint8_t> tokens;
      for (std::int64_t i = 0; i < 2 * c.batch * c.cells; ++i) tokens.push_back(static_cast<std::uint8_t>(i * i % 13));
      const Shape cells{c.batch, c.cells}, each{c.batch};
      std::vector<std::vector<std::int32_t>> seen;
      for (const Device device : devices())
        for (const bool staged : {false, true}) {
          Place p(DType::f32, device);
          const std::uint8_t* from = staged
                                         ? p.host(tokens).data()
                                         : p.put(Tensor::of(tokens.data(), {std::ssize(tokens)})).data<std::uint8_t>();
          std::vector<ops::PuzzlePick> picks;
          for (std::int64_t b = 0; b < c.batch; ++b)
            picks.push_back({.inputs = from + b * c.cells,
                             .labels = from + (c.batch + b) * c.cells,
                             .group = static_cast<std::uint64_t>(b / 3),
                             .variant = static_cast<std::uint64_t>(drawn ? b % 8 : 0),
                             .identifier = static_cast<std::int32_t>(90 + b)});
          const ops::SequenceData to = {p.put(Tensor::of(numbers(cells.size(), 20000).data(), cells)),
                                        p.put(Tensor::of(numbers(cells.size(), 40000).data(), cells)),
                                        p.put(Tensor::of(numbers(c.batch, 60000).data(), each))};
          const Tensor steps = p.put(Tensor::of(numbers(c.batch, 7).data(), each));
          ops::begin_sequences(
              p.stream, to, steps, p.put(Tensor::of(halted.data(), each)), p.host(picks),
              {.variants = drawn ? PuzzleVariants(c.task, c.cells, 3) : PuzzleVariants(), .ignored = 4});
          p.stream.synchronize();
          std::vector<std::int32_t>& values = seen.emplace_back();
          for (const Tensor& t : {to.inputs, to.labels, to.identifiers, steps}) {
            const auto some = elements<std::int32_t>(t);
            values.insert(values.end(), some.begin(), some.end());
          }
        }
      for (const std::vector<std::int32_t>& values : seen) CHECK(values == seen.front());
    }
  }
}
