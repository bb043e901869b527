#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

namespace {

const std::vector<std::int64_t> kOffsets = {0, 2, 5};
const std::vector<std::uint64_t> kSamples = {17, 4};
const SampleRows kRows{kOffsets, kSamples};
const Dropout kDropout{.rate = 0.4, .seed = 3, .step = 9, .site = Site("here")};

}  // namespace

TEST_SUITE("nn.dropout") {
  TEST_CASE("a fused residual end equals its parts, and a layer norm after it completes its gradient") {
    for (const bool drops : {true, false})
      for (const bool normed : {true, false}) {
        CAPTURE(drops);
        CAPTURE(normed);
        ParamStore params(DType::f64);
        const Linear layer = add_linear(params, "layer", 4, 37, init::uniform(1), init::uniform(1));
        const LayerNorm norm = add_layernorm(params, "norm", 37, 1e-5);
        params.allocate(2);
        const Dropout drop = drops ? kDropout : Dropout{};
        const auto branch = [&](bool whole) {
          return [&, whole](Tape& t, const std::vector<Var>& v) {
            const ops::SampleRows rows = on_tape(t, kRows);
            const Var h = whole ? residual_linear(t, v[0], v[1], layer, drop, rows)
                                : add(t, v[0], dropout(t, linear(t, v[1], layer), drop, rows));
            return normed ? add(t, layernorm(t, h, norm), h) : h;  // h has more readers than the norm
          };
        };
        CHECK(gradcheck(branch(true), {{5, 37}, {5, 4}}, &params) < 1e-7);
        const OwnedTensor x = random_tensor(DType::f64, {5, 37}, "x"), y = random_tensor(DType::f64, {5, 4}, "y"),
                          dy = random_tensor(DType::f64, {5, 37}, "dy");
        struct Result {
          OwnedTensor value, dx, dy, weights;
        };
        const auto run = [&](bool whole) {
          Gradients gradients(params);
          OwnTape t(DType::f64, Tape::Mode::train, &gradients);
          const std::vector<Var> v = {t.variable(x), t.variable(y)};
          const Var out = branch(whole)(t, v);
          t.backward(out, dy);
          return Result{converted(out.value(), DType::f64), converted(v[0].grad(), DType::f64),
                        converted(v[1].grad(), DType::f64), converted(gradients.flat(), DType::f64)};
        };
        const Result one = run(true), parts = run(false);
        CHECK(same_bits(one.value, parts.value));
        CHECK(same_bits(one.dx, parts.dx));
        CHECK(same_bits(one.dy, parts.dy));
        CHECK(same_bits(one.weights, parts.weights));
      }
  }

  TEST_CASE("a layer norm that is not the first operation on a sum cannot complete its gradient") {
    ParamStore params(DType::f64);
    const Linear layer = add_linear(params, "layer", 4, 6, init::uniform(1), init::uniform(1));
    const LayerNorm norm = add_layernorm(params, "norm", 6, 1e-5);
    params.allocate(2);
    Gradients gradients(params);
    OwnTape t(DType::f64, Tape::Mode::train, &gradients);
    const OwnedTensor x = random_tensor(DType::f64, {5, 6}, "x"), y = random_tensor(DType::f64, {5, 4}, "y");
    const Var h = residual_linear(t, t.variable(x), t.variable(y), layer), first = activation(t, h, Activation::tanh);
    const Var out = add(t, first, layernorm(t, h, norm));
    CHECK_THROWS_WITH_AS(t.backward(out, x),
                         "backward of activation: adding to a gradient after a layer norm has completed it: the layer "
                         "norm must be the first operation on its input",
                         Error);
  }

  TEST_CASE("stacked layers of any width equal the layers one by one, with and without a residual") {
    for (const std::int64_t out : {1, 5, 50}) {
      CAPTURE(out);
      ParamStore params(DType::f64);
      const std::vector<Linear> layers =
          add_stacked_linears(params, {"a", "b", "c"}, 7, out, init::uniform(1), init::uniform(1));
      params.allocate(2);
      const OwnedTensor x = random_tensor(DType::f64, {5, 7}, "x");
      const auto two = std::span(layers).subspan(1);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return stacked_linear(t, v[0], layers); }, {{5, 7}},
                      &params) < 1e-7);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return stacked_linear(t, v[0], two, v[1]); },
                      {{5, 7}, {5, 2 * out}}, &params) < 1e-7);
      OwnTape t(DType::f64);
      const Var all = stacked_linear(t, t.constant(x), layers);
      for (std::size_t i = 0; i < 3; ++i) {
        const Var one = linear(t, t.constant(x), layers[i]);
        for (std::int64_t m = 0; m < 5; ++m)
          for (std::int64_t n = 0; n < out; ++n)
            CHECK(all.value().data<double>()[(3 * m + static_cast<std::int64_t>(i)) * out + n] ==
                  one.value().data<double>()[m * out + n]);
      }
    }
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
      OwnTape t(DType::f64);
      const Var vx = t.constant(x);
      CHECK(same_bits(together(t, {vx}).value(), dropout(t, linear(t, vx, layer, f), kDropout, kRows).value()));
    }
  }
}
