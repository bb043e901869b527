#include "lockstep/nn/dropout.hpp"

#include <doctest/doctest.h>

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<std::int64_t> kOffsets = {0, 2, 5};
const std::vector<std::uint64_t> kSamples = {17, 4};
const SampleRows kRows{kOffsets, kSamples};
const Dropout kDropout{.rate = 0.4, .seed = 3, .step = 9, .site = Site("here")};

}  // namespace

TEST_SUITE("nn.dropout") {
  TEST_CASE("add_dropped equals dropout and addition, in values and gradients") {
    CHECK(gradcheck([](Tape& t, auto v) { return add_dropped(t, v[0], v[1], kDropout, on_tape(t, kRows)); },
                    {{5, 7}, {5, 7}}) < 1e-7);
    const OwnedTensor x = random_tensor(DType::f32, {5, 7}, "x"), y = random_tensor(DType::f32, {5, 7}, "y");
    Stream stream;
    Arena arena;
    Tape t(stream, arena, DType::f32, Tape::Mode::forward);
    const Var vx = t.constant(x), vy = t.constant(y);
    CHECK(same_bits(add_dropped(t, vx, vy, kDropout, kRows).value(),
                    add(t, vx, dropout(t, vy, kDropout, kRows)).value()));
    CHECK(same_bits(add_dropped(t, vx, vy, {}, kRows).value(), add(t, vx, vy).value()));
  }

  TEST_CASE("a linear layer with dropout equals the layer followed by dropout, in values and gradients") {
    ParamStore params(DType::f64);
    const Linear layer = add_linear(params, "layer", 4, 6, init::uniform(1), init::uniform(1));
    params.allocate(2);
    for (const Activation f : {Activation::none, Activation::gelu}) {
      const auto together = [&](Tape& t, const std::vector<Var>& v) {
        return linear(t, v[0], layer, f, kDropout, on_tape(t, kRows));
      };
      CHECK(gradcheck(together, {{5, 4}}, &params) < 1e-7);
      const OwnedTensor x = random_tensor(DType::f64, {5, 4}, "x");
      Stream stream;
      Arena arena;
      Tape t(stream, arena, DType::f64, Tape::Mode::forward);
      const Var vx = t.constant(x);
      CHECK(same_bits(together(t, {vx}).value(), dropout(t, linear(t, vx, layer, f), kDropout, kRows).value()));
    }
  }
}
