#include "lockstep/optim/schedule.hpp"

#include <numbers>

#include "support/test.hpp"

TEST_SUITE("optim.schedule") {
  TEST_CASE("step and cosine equal PyTorch's StepLR and CosineAnnealingLR from the first epoch on") {
    const LrSchedule drops({.name = "step", .step_size = 3, .gamma = 0.5}, 0.8);
    const double expected[] = {0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2};
    for (int e = 0; e < 7; ++e) CHECK(drops.lr(1000 + e, e) == Approx(expected[e]));
    const LrSchedule cosine({.name = "cosine", .total = 10}, 0.8);
    for (int e = 0; e <= 10; ++e) {
      CHECK(cosine.lr(0, e) == Approx(0.4 * (1 + std::cos(std::numbers::pi * e / 10))));
    }
    CHECK(cosine.lr(0, 25) == Approx(0));  // past the end it stays at its floor
  }

  TEST_CASE("a schedule by steps ignores epochs") {
    const LrSchedule schedule({.name = "step", .unit = "step", .step_size = 2, .gamma = 0.1}, 1);
    CHECK(schedule.lr(1, 99) == Approx(1));
    CHECK(schedule.lr(2, 0) == Approx(0.1));
  }

  TEST_CASE("exponential warms up for W steps, then decays by rho per D steps from index W") {
    // lr(s+1)/W for s < W, then lr rho^((s-W)/D)
    const LrSchedule schedule({.name = "exponential", .unit = "step", .warmup = 4, .step_size = 10, .gamma = 0.98}, 2);
    for (int s = 0; s < 4; ++s) CHECK(schedule.lr(s, 0) == Approx(2.0 * (s + 1) / 4));
    for (int s = 4; s < 9; ++s) CHECK(schedule.lr(s, 0) == Approx(2.0 * std::pow(0.98, (s - 4) / 10.0)));
  }

  TEST_CASE("with origin 1 cosine starts from the last warm-up unit and ends at an absolute floor") {
    // lr(e) = base e/W if e <= W, else min + (base - min)(1 + cos(pi (e-W)/(E-W)))/2, e = 1..E
    const double base = 1e-3, low = 1e-6;
    const int W = 5, E = 20;
    const LrSchedule schedule({.name = "cosine", .warmup = W, .total = E, .origin = 1, .min_lr = low}, base);
    for (int e = 1; e <= E; ++e) {
      const double expected =
          e <= W ? base * e / W : low + (base - low) * 0.5 * (1 + std::cos(std::numbers::pi * (e - W) / (E - W)));
      CHECK(schedule.lr(0, e - 1) == Approx(expected).epsilon(1e-12));
    }
  }

  TEST_CASE("a floor may be a fraction of the base rate") {
    // t >= W: base (r + (1 - r)(1 + cos(pi (t-W)/(T-W)))/2), t = 1..T
    const LrSchedule schedule(
        {.name = "cosine", .unit = "step", .warmup = 3, .total = 12, .origin = 1, .min_ratio = 0.1}, 4);
    for (int t = 3; t <= 12; ++t) {
      CHECK(schedule.lr(t - 1, 0) == Approx(4 * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * (t - 3) / 9)))));
    }
  }

  TEST_CASE("a floor above the base rate is refused") {
    CHECK_THROWS_WITH_AS(LrSchedule({.name = "cosine", .total = 10, .min_lr = 0.1, .min_ratio = 0.9}, 0.5),
                         doctest::Contains("would rise from the learning rate 0.5 to 0.55"), Error);
    CHECK(LrSchedule({.name = "cosine", .total = 10, .min_ratio = 1}, 0.3).lr(0, 7) == 0.3);
    CHECK(LrSchedule({.name = "step", .min_lr = 2}, 0.3).lr(0, 0) == 0.3);
  }

  TEST_CASE("late: the first unit uses the full rate, each other unit that of the previous one") {
    const LrSchedule early({.name = "cosine", .warmup = 3, .total = 9, .origin = 1}, 1);
    const LrSchedule late({.name = "cosine", .warmup = 3, .total = 9, .origin = 1, .late = true}, 1);
    CHECK(late.lr(0, 0) == 1);
    for (int e = 1; e < 9; ++e) CHECK(late.lr(0, e) == early.lr(0, e - 1));
  }

  TEST_CASE("plateau: more than `patience` evaluations without a relative improvement halve the rate") {
    LrSchedule schedule({.name = "plateau", .factor = 0.5, .patience = 2, .threshold = 0.1}, 1);
    schedule.observe(1.0);
    schedule.observe(0.95);  // less than 10 % better: does not count
    schedule.observe(0.95);
    CHECK(schedule.lr(0, 0) == 1);
    const LrSchedule::State kept = schedule.state();
    schedule.observe(0.95);
    CHECK(schedule.lr(0, 0) == 0.5);
    schedule.observe(0.5);  // better
    for (int i = 0; i < 3; ++i) schedule.observe(0.5);
    CHECK(schedule.lr(0, 0) == 0.25);
    schedule.set_state(kept);
    CHECK(schedule.lr(0, 0) == 1);
    schedule.observe(1);
    CHECK(schedule.lr(0, 0) == 0.5);
  }

  TEST_CASE("plateau: a metric that should grow is observed with its sign changed") {
    LrSchedule schedule({.name = "plateau", .factor = 0.5, .patience = 1, .threshold = 0.1}, 1);
    schedule.observe(-0.20);
    schedule.observe(-0.30);  // better
    schedule.observe(-0.32);  // less than 10 % better
    CHECK(schedule.lr(0, 0) == 1);
    schedule.observe(-0.25);
    CHECK(schedule.lr(0, 0) == 0.5);
  }

  TEST_CASE("a cosine that is not longer than its warm-up is an error") {
    CHECK_THROWS_AS(LrSchedule({.name = "cosine", .warmup = 5, .total = 5}, 1), Error);
    CHECK_THROWS_AS(LrSchedule({.name = "linear"}, 1), Error);
  }
}
