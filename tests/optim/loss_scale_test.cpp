#include "lockstep/optim/loss_scale.hpp"

#include "support/test.hpp"

TEST_SUITE("optim.loss_scale") {
  TEST_CASE("an overflow halves the loss scale, two thousand good steps in a row double it") {
    LossScale scale;
    const double first = scale.value;
    for (int i = 0; i < 1999; ++i) scale.update(true);
    CHECK(scale.value == first);
    scale.update(false);  // the count begins again
    CHECK(scale.value == first / 2);
    for (int i = 0; i < 1999; ++i) scale.update(true);
    CHECK(scale.value == first / 2);
    scale.update(true);
    CHECK(scale.value == first);
  }

  TEST_CASE("a loss scale falls to one and no further") {
    LossScale scale;
    int steps = 0;
    for (; scale.can_fall(); ++steps) scale.update(false);
    CHECK(steps == 16);
    CHECK(scale.value == 1);
  }

  TEST_CASE("a sum of n losses is scaled by a power of two near the scale of the mean over n") {
    const LossScale scale{.value = 1024};
    CHECK(scale.of_sum(1) == 1024);
    CHECK(scale.of_sum(64) == 16);
    CHECK(scale.of_sum(65) == 8);
    CHECK(scale.of_sum(0) == 1024);
  }
}
