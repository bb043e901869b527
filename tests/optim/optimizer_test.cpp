#include "lockstep/optim/optimizer.hpp"

#include "ops/every_isa.hpp"
#include "support/test.hpp"

namespace {

/// Parameters "a" (rows, 3) and "b" (rows), values and gradients from Philox.
struct Problem {
  explicit Problem(DType dtype = DType::f64, std::int64_t rows = 7) : params(dtype) {
    params.add("a", Shape{rows, 3}, init::normal(1));
    params.add("b", Shape{rows}, init::normal(1));
    params.allocate(5);
    gradient = OwnedTensor(dtype, Shape{params.flat_size()});
  }
  /// Draws the gradient of step t, with zero gaps.
  void draw(std::int64_t t) {
    visit_float(params.dtype(), [&]<class T>() {
      for (const Param& p : params.all()) {
        const Philox random(9, static_cast<std::uint64_t>(t), p.name.c_str());
        for (std::int64_t i = 0; i < p.shape.size(); ++i) {
          gradient->data<T>()[p.offset + i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i)));
        }
      }
    });
  }
  ParamStore params;
  OwnedTensor gradient;
};

/// The equations of the header for one element, in double.
struct Reference {
  double p, m = 0, v = 0, buffer = 0;
  int t = 0;
  void adam(double g, double lr, const OptimizerOptions& o) {
    ++t;
    if (o.name == "adam") g += o.weight_decay * p;
    if (o.name == "adamw") p -= lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    p -= lr / (1 - std::pow(o.beta1, t)) * m / (std::sqrt(v) / std::sqrt(1 - std::pow(o.beta2, t)) + o.eps);
  }
  void sgd(double g, double lr, const OptimizerOptions& o) {
    g += o.weight_decay * p;
    buffer = ++t == 1 ? g : o.momentum * buffer + g;
    p -= lr * (o.momentum == 0 ? g : buffer);
  }
};

double worst_error(const OptimizerOptions& options, DType dtype) {
  Problem problem(dtype);
  const auto optimizer = make_optimizer(options, problem.params, trainable_ranges(problem.params));
  const double lr = 0.05, scale = 0.7;
  double worst = 0;
  visit_float(dtype, [&]<class T>() {
    const T* values = problem.params.values().data<T>();
    std::vector<Reference> references;
    for (std::int64_t i = 0; i < problem.params.flat_size(); ++i)
      references.push_back({static_cast<double>(values[i])});
    for (int t = 0; t < 5; ++t) {
      problem.draw(t);
      optimizer->step(problem.gradient, lr, scale);
      for (std::size_t i = 0; i < references.size(); ++i) {
        const double g = scale * static_cast<double>(problem.gradient->data<T>()[i]);
        if (options.name == "sgd") {
          references[i].sgd(g, lr, options);
        } else {
          references[i].adam(g, lr, options);
        }
        const double error = std::abs(references[i].p - static_cast<double>(values[i]));
        worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
      }
    }
  });
  return worst;
}

}  // namespace

TEST_SUITE("optim.optimizer") {
  TEST_CASE("each rule follows its equations up to rounding in double and in float") {
    for (const char* name : {"adam", "adamw", "sgd"}) {
      for (const double momentum : {0.9, 0.0}) {
        const OptimizerOptions options{.name = name, .weight_decay = 0.01, .momentum = momentum};
        CAPTURE(name);
        CHECK(worst_error(options, DType::f64) < 1e-14);
        CHECK(worst_error(options, DType::f32) < 2e-6);
      }
    }
  }

  TEST_CASE("the first step of adam has the size of the learning rate for any gradient scale") {
    Problem problem;
    problem.draw(0);
    const auto optimizer =
        make_optimizer({.name = "adam", .eps = 1e-30}, problem.params, trainable_ranges(problem.params));
    const Param& a = problem.params.at("a");
    const double before = a.value.data<double>()[4];
    optimizer->step(problem.gradient, 0.125, 1e-6);
    CHECK(std::abs(a.value.data<double>()[4] - before) == Approx(0.125));
  }

  TEST_CASE("weight decay enters the moments of adam but not those of adamw") {
    for (const char* name : {"adam", "adamw"}) {
      Problem problem;
      const auto optimizer =
          make_optimizer({.name = name, .weight_decay = 0.1}, problem.params, trainable_ranges(problem.params));
      const double before = problem.params.at("b").value.data<double>()[0];
      optimizer->step(problem.gradient, 0.01);  // a gradient of zero
      const double m = optimizer->state().front().value.data<double>()[0];
      const double after = problem.params.at("b").value.data<double>()[0];
      if (std::string(name) == "adam") {
        CHECK(m != 0);
      } else {
        CHECK(m == 0);
        CHECK(after == Approx(before * (1 - 0.01 * 0.1)));
      }
    }
  }

  TEST_CASE("every instruction set and number of threads produces the same bits") {
    const auto run = [](const char* name, int threads) {
      const Threads limit(threads);
      Problem problem(DType::f32, 100001);  // long enough for several threads
      Ema ema(problem.params, 0.9);
      const auto optimizer =
          make_optimizer({.name = name, .weight_decay = 0.01}, problem.params, trainable_ranges(problem.params));
      double norms = 0;
      for (int t = 0; t < 2; ++t) {
        problem.draw(t);
        norms += gradient_norm(problem.gradient, trainable_ranges(problem.params));
        optimizer->step(problem.gradient, 0.05, 1.0 / 3, &ema);
      }
      return std::tuple(problem.params.hash(), ema.hash(), norms);
    };
    for (const char* name : {"adam", "adam_atan2"}) {
      CAPTURE(name);
      const auto expected = run(name, 1);
      for_every_isa([&] {
        CHECK(run(name, 1) == expected);
        CHECK(run(name, 3) == expected);
      });
    }
  }

  TEST_CASE("a frozen parameter has no state, does not move, and splits a range") {
    Problem problem;
    problem.params.at("a").trainable = false;
    const auto ranges = trainable_ranges(problem.params);
    REQUIRE(ranges.size() == 1);
    CHECK(ranges[0].begin == problem.params.at("b").offset);
    const auto optimizer = make_optimizer({.name = "adamw", .weight_decay = 0.1}, problem.params, ranges);
    REQUIRE(optimizer->state().size() == 2);
    CHECK(optimizer->state()[0].name == "exp_avg/b");
    CHECK(optimizer->state()[1].name == "exp_avg_sq/b");
    problem.draw(0);
    const double a = problem.params.at("a").value.data<double>()[0], b = problem.params.at("b").value.data<double>()[0];
    optimizer->step(problem.gradient, 0.1);
    CHECK(problem.params.at("a").value.data<double>()[0] == a);
    CHECK(problem.params.at("b").value.data<double>()[0] != b);
  }

  TEST_CASE("two optimizers may share a store, each with its own parameters and step count") {
    Problem problem;
    const auto first = make_optimizer({}, problem.params,
                                      trainable_ranges(problem.params, [](const Param& p) { return p.name == "a"; }));
    const auto second = make_optimizer({}, problem.params, trainable_ranges(problem.params));
    problem.draw(0);
    const double b = problem.params.at("b").value.data<double>()[2];
    first->step(problem.gradient, 0.1);
    CHECK(problem.params.at("b").value.data<double>()[2] == b);
    second->step(problem.gradient, 0.1);
    CHECK(problem.params.at("b").value.data<double>()[2] != b);
    CHECK(first->steps() == 1);
    CHECK(second->steps() == 1);
  }

  TEST_CASE("a new optimizer with copied state continues bit for bit") {
    for (const char* name : {"adam", "adamw", "sgd"}) {
      const OptimizerOptions options{.name = name, .weight_decay = 0.01};
      Problem straight, halted;
      const auto one = make_optimizer(options, straight.params, trainable_ranges(straight.params));
      const auto two = make_optimizer(options, halted.params, trainable_ranges(halted.params));
      const auto three = make_optimizer(options, halted.params, trainable_ranges(halted.params));
      for (int t = 0; t < 6; ++t) {
        straight.draw(t);
        halted.draw(t);
        one->step(straight.gradient, 0.05);
        (t < 3 ? two : three)->step(halted.gradient, 0.05);
        if (t != 2) continue;
        three->set_steps(two->steps());
        for (std::size_t i = 0; i < two->state().size(); ++i) {
          CHECK(two->state()[i].name == three->state()[i].name);
          const auto from = two->state()[i].value.span<double>();
          std::copy(from.begin(), from.end(), three->state()[i].value.data<double>());
        }
      }
      CHECK(straight.params.hash() == halted.params.hash());
    }
  }

  TEST_CASE("the average follows its equation, and two exchanges change nothing") {
    Problem problem;
    Ema ema(problem.params, 0.75);
    const Param& a = problem.params.at("a");
    const auto optimizer =
        make_optimizer({.name = "sgd", .momentum = 0}, problem.params, trainable_ranges(problem.params));
    double expected = a.value.data<double>()[5];
    for (int t = 0; t < 3; ++t) {
      problem.draw(t);
      optimizer->step(problem.gradient, 0.1, 1, &ema);
      expected = 0.75 * expected + 0.25 * a.value.data<double>()[5];
    }
    const std::uint64_t weights = problem.params.hash();
    {
      const WithAverage with(&ema, problem.params);
      CHECK(a.value.data<double>()[5] == Approx(expected).epsilon(1e-14));
      CHECK(problem.params.hash() != weights);
    }
    CHECK(problem.params.hash() == weights);
  }

  TEST_CASE("an unknown rule is a usage error that names the choices") {
    Problem problem;
    check_mentions(error_of(Fault::usage, [&] { make_optimizer({.name = "adagrad"}, problem.params, {}); }),
                   "adam, adamw, adam_atan2 or sgd");
  }
}

TEST_SUITE("optim.gradient_norm") {
  TEST_CASE("the norm is the root of the sum of squares over the ranges") {
    Problem problem(DType::f32, 40000);  // several chunks
    problem.draw(0);
    double sum = 0;
    const Param& b = problem.params.at("b");
    for (std::int64_t i = 0; i < b.shape.size(); ++i) {
      const double g = problem.gradient->data<float>()[b.offset + i];
      sum += g * g;
    }
    const auto only_b = trainable_ranges(problem.params, [](const Param& p) { return p.name == "b"; });
    CHECK(gradient_norm(problem.gradient, only_b) == Approx(std::sqrt(sum)).epsilon(1e-13));
  }

  TEST_CASE("a norm beyond the range of float is finite, and clipping reduces it to the limit") {
    Problem problem(DType::f32);
    for (float& g : problem.gradient->span<float>()) g = 1e30f;
    const double norm = gradient_norm(problem.gradient, trainable_ranges(problem.params));
    CHECK(std::isfinite(norm));
    CHECK(norm * clip_scale(norm, 2.5) == Approx(2.5));
    CHECK(clip_scale(norm, 0) == 1);
    CHECK(clip_scale(1.0, 2.5) == 1);
  }

  TEST_CASE("a non-finite element makes the norm non-finite and is named") {
    Problem problem;
    CHECK(first_non_finite(problem.params, problem.gradient) == "");
    problem.gradient->data<double>()[problem.params.at("b").offset + 3] = std::numeric_limits<double>::quiet_NaN();
    CHECK(!std::isfinite(gradient_norm(problem.gradient, trainable_ranges(problem.params))));
    CHECK(first_non_finite(problem.params, problem.gradient) == "b[3] = nan");
  }

  TEST_CASE("lazy steps keep rows of row-sparse parameters without gradient and update the others as usual") {
    for (const char* name : {"adam", "adamw", "sgd"}) {
      const OptimizerOptions eager{.name = name, .weight_decay = 0.1};
      OptimizerOptions lazy = eager;
      lazy.lazy = true;
      Problem problem, reference;
      for (Problem* p : {&problem, &reference}) p->params.at("a").row_sparse = true;
      const auto optimizer = make_optimizer(lazy, problem.params, trainable_ranges(problem.params));
      const auto all = make_optimizer(eager, reference.params, trainable_ranges(reference.params));
      const Param &a = problem.params.at("a"), &b = problem.params.at("b");
      const std::vector<double> before(a.value.data<double>(), a.value.data<double>() + a.value.size());
      for (int t = 1; t <= 3; ++t) {
        for (Problem* p : {&problem, &reference}) {
          p->draw(t);
          for (const std::int64_t row : {0, 4, 6})
            fill_zero(Stream(), Tensor::of(p->gradient->data<double>() + a.offset + 3 * row, {3}));
        }
        optimizer->step(problem.gradient, 0.01);
        all->step(reference.gradient, 0.01);
      }
      for (std::int64_t i = 0; i < a.value.size(); ++i) {
        const bool left = i / 3 == 0 || i / 3 == 4 || i / 3 == 6;
        const double expected = left ? before[to_size(i)] : reference.params.at("a").value.data<double>()[i];
        CHECK(a.value.data<double>()[i] == expected);
      }
      for (std::int64_t i = 0; i < b.value.size(); ++i)
        CHECK(b.value.data<double>()[i] == reference.params.at("b").value.data<double>()[i]);
    }
  }

  TEST_CASE("rows that a gradient marks as zero change no bit of norm, penalty and step") {
    for (const bool lazy : {false, true}) {
      for (const double l2 : {0.0, 0.25}) {
        for (const std::int64_t rows : {7, 64, 50000}) {  // several chunks, and rows that these cut
          for (const std::int64_t stride : {1, 3, 300}) {
            const OptimizerOptions options{.lazy = lazy};
            Problem known(DType::f32, rows), unknown(DType::f32, rows);
            for (Problem* p : {&known, &unknown}) p->params.at("a").row_sparse = true, p->params.at("a").l2 = l2;
            const auto step_known = make_optimizer(options, known.params, trainable_ranges(known.params)),
                       step_unknown = make_optimizer(options, unknown.params, trainable_ranges(unknown.params));
            const Param& a = known.params.at("a");
            for (int t = 1; t <= 3; ++t) {
              NonzeroElements nonzero(known.params);
              for (Problem* p : {&known, &unknown}) p->draw(t);
              for (std::int64_t row = 0; row < rows; ++row) {
                if (row % stride == t % stride) {
                  nonzero.rows_of(a)[to_size(row / 64)] |= std::uint64_t{1} << (row % 64);
                  if (row % 2 == 0) continue;  // a row that was touched, but has a zero gradient
                }
                for (Problem* p : {&known, &unknown}) fill_zero(Stream(), p->gradient->slice(a.offset + 3 * row, 3));
              }
              const FlatGradient sparse(known.gradient, &nonzero);
              CHECK(add_penalty(known.params, sparse, 8, lazy) ==
                    add_penalty(unknown.params, unknown.gradient, 8, lazy));
              CHECK(gradient_norm(sparse, trainable_ranges(known.params)) ==
                    gradient_norm(unknown.gradient, trainable_ranges(unknown.params)));
              CHECK(gradient_norm(sparse, {{a.offset + 1, a.offset + 11}}) ==
                    gradient_norm(unknown.gradient, {{a.offset + 1, a.offset + 11}}));
              step_known->step(sparse, 0.01);
              step_unknown->step(unknown.gradient, 0.01);
              CHECK(same_bits(known.params.values(), unknown.params.values()));
              // A penalty of all rows makes all of them nonzero.
              std::int64_t elements = 0;
              nonzero.for_each({0, known.params.flat_size()}, [&](auto begin, auto end) { elements += end - begin; });
              if (l2 > 0 && !lazy) CHECK(elements == known.params.flat_size());
            }
          }
        }
      }
    }
  }

  TEST_CASE("the elements that may be nonzero are all but untouched rows of tables, neighbours merged") {
    ParamStore params;
    params.add("before", {20}, init::zeros());
    for (const char* name : {"x", "y"}) params.add(name, {130, 3}, init::zeros()).row_sparse = true;
    params.add("after", {5}, init::zeros());
    params.allocate(1);
    const Param &x = params.at("x"), &y = params.at("y");
    NonzeroElements nonzero(params);
    using Ranges = std::vector<FlatRange>;
    const auto within = [&](std::int64_t begin, std::int64_t end) {
      Ranges found;
      nonzero.for_each({begin, end}, [&](std::int64_t first, std::int64_t last) { found.push_back({first, last}); });
      return found;
    };
    const std::int64_t n = params.flat_size(), gap = x.offset + 390;
    CHECK(within(0, n) == Ranges{{0, x.offset}, {gap, y.offset}, {y.offset + 390, n}});
    for (const int row : {0, 1, 63, 64, 129}) nonzero.rows_of(x)[to_size(row / 64)] |= 1ull << row % 64;
    CHECK(within(0, n) ==
          Ranges{{0, x.offset + 6}, {x.offset + 189, x.offset + 195}, {x.offset + 387, y.offset}, {y.offset + 390, n}});
    CHECK(within(x.offset + 1, x.offset + 190) ==
          Ranges{{x.offset + 1, x.offset + 6}, {x.offset + 189, x.offset + 190}});
    CHECK(within(x.offset + 6, x.offset + 189).empty());
    CHECK(within(5, 5).empty());
    nonzero.add_all({x.offset, y.offset});
    CHECK(within(0, n) == Ranges{{0, y.offset}, {y.offset + 390, n}});
    CHECK_THROWS_AS(nonzero.rows_of(params.at("after")), Error);
  }

  TEST_CASE("the penalty is the sum of squares, and its derivative is added to the gradient") {
    Problem problem;
    Param& a = problem.params.at("a");
    a.l2 = 0.25;
    a.row_sparse = true;
    problem.draw(1);
    for (const bool lazy : {false, true}) {
      fill_zero(Stream(), Tensor::of(problem.gradient->data<double>() + a.offset + 3, {3}));
      const std::vector<double> before(problem.gradient->data<double>(),
                                       problem.gradient->data<double>() + problem.params.flat_size());
      double squares = 0;
      for (const double value : a.value.span<double>()) squares += value * value;
      CHECK(add_penalty(problem.params, problem.gradient, 8, lazy) == Approx(0.25 * squares).epsilon(1e-14));
      for (std::int64_t i = 0; i < problem.params.flat_size(); ++i) {
        const std::int64_t of_a = i - a.offset;
        const bool penalised = of_a >= 0 && of_a < a.value.size() && !(lazy && of_a / 3 == 1);
        const double slope = penalised ? 2 * 0.25 * 8 * a.value.data<double>()[of_a] : 0;
        CHECK(problem.gradient->data<double>()[i] - before[to_size(i)] == Approx(slope).epsilon(1e-12));
      }
    }
  }
}
