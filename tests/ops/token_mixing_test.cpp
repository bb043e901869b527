#include "lockstep/ops/token_mixing.hpp"

#include "lockstep/nn/linear.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
constexpr double kEps = 1e-5;

/// Weights are scaled so that a product's results are as large as its inputs.
void run(Place& p, Int batch, Int positions, Int channels, Int width) {
  const Shape shape{batch, positions, channels}, up{2 * width, positions}, low{positions, width};
  const Tensor x = p.in("x", shape), dy = p.in("dy", shape);
  const Tensor gate_up = p.weight("gate_up", up, 1 / std::sqrt(static_cast<double>(positions))),
               down = p.weight("down", low, 1 / std::sqrt(static_cast<double>(width)));
  const Tensor y = p.out("y", shape), kept = p.in("kept", {batch, 2 * width, channels}),
               rstd = p.real_out("rstd", {batch, channels});
  ops::token_mixing_forward(p.stream, p.out("y again", shape), {}, {}, x, gate_up, down, kEps);
  ops::token_mixing_forward(p.stream, y, kept, rstd, x, gate_up, down, kEps);
  ops::token_mixing_backward(p.stream, p.to("dx", shape), p.to_sum("dgate_up", up), p.to_sum("ddown", low), dy, y, kept,
                             rstd, x, gate_up, down);
}
void definition(Plain& r, Int batch, Int positions, Int channels, Int width) {
  const auto x = r.in("x"), gate_up = r.in("gate_up"), down = r.in("down"), y = r.out("y"), rstd = r.out("rstd");
  for (Int b = 0; b < batch; ++b)
    for (Int d = 0; d < channels; ++d) {
      double squares = 0;
      for (Int t = 0; t < positions; ++t) y(b, t, d) = x(b, t, d);
      for (Int i = 0; i < width; ++i) {
        double g = 0, u = 0;
        for (Int t = 0; t < positions; ++t) {
          g += gate_up(i, t) * x(b, t, d);
          u += gate_up(width + i, t) * x(b, t, d);
        }
        for (Int t = 0; t < positions; ++t) y(b, t, d) += down(t, i) * g / (1 + std::exp(-g)) * u;
      }
      for (Int t = 0; t < positions; ++t) squares += y(b, t, d) * y(b, t, d);
      rstd(b, d) = 1 / std::sqrt(squares / static_cast<double>(positions) + kEps);
      for (Int t = 0; t < positions; ++t) y(b, t, d) *= rstd(b, d);
    }
}
}  // namespace

TEST_SUITE("ops.token_mixing") {
  TEST_CASE("definition, gradients, bits and devices, whether a backward follows or not") {
    // The wide layers split the channels into chunks. A channel whose positions nearly cancel amplifies rounding.
    CHECK(faults(run, definition, {{3, 7, 5, 9}, {2, 9, 64, 31}, {0, 3, 2, 4}},
                 {.f32 = 1e-5,
                  .f64 = 1e-13,
                  .f32_rest = 1e-4,
                  .refused = {{{2, 3, 4, 5},
                               "gate_up",
                               {10, 5},
                               "token mixing: x is (2, 3, 4), so gate_up must be (2I, 3) and down (3, I), not (10, 5) "
                               "and (3, 5)"}},
                  .cpu_sizes = {{1, 1, 1, 1}, {5, 37, 70, 29}, {2, 3, 150, 1100}}}) == "");
  }

  TEST_CASE("two positions, and sequences of which a pair fills the cache, agree with the CPU" *
            doctest::test_suite("ops.token_mixing.cuda") * doctest::skip(gpu_count() == 0)) {
    // With two positions the gradient is half rounding. Sums of 32768 terms have a different order.
    CHECK(faults(run, {}, {},
                 {.gpu = {.f32 = 1e-4, .bf16 = 0, .f16 = 0}, .gpu_sizes = {{2, 2, 1, 1}, {3, 2, 32, 1 << 15}}}) == "");
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences for x and both weights") {
    ParamStore params(DType::f64);
    const Param &gate_up = params.add("gate_up", {12, 7}, init::normal(0.4)),
                &down = params.add("down", {7, 6}, init::normal(0.4));
    params.allocate(1);
    CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return token_mixing(t, v[0], gate_up, down, kEps); },
                    {{2, 7, 5}}, &params) < 1e-7);
  }

  EVERY_ISA_TEST_CASE("many channels have the gradient of each channel alone, summed for the weights") {
    // Wide layers split the channels into chunks; the weights' sums take several blocks.
    const std::int64_t batch = 2, positions = 5, channels = 290, width = 700;
    const Shape shape{batch, positions, channels};
    const OwnedTensor x = random_tensor(DType::f64, shape, "x"), dy = random_tensor(DType::f64, shape, "dy"),
                      gate_up = random_tensor(DType::f64, {2 * width, positions}, "gate_up"),
                      down = random_tensor(DType::f64, {positions, width}, "down");
    struct Gradients {
      OwnedTensor dx, dgate_up, ddown;
    };
    const auto zeros = [](Shape shape) {
      OwnedTensor t(DType::f64, shape);
      std::ranges::fill(t->span<double>(), 0.0);
      return t;
    };
    const auto of = [&](const Tensor& x, const Tensor& dy, Gradients& g) {
      const OwnedTensor y(DType::f64, x.shape()), kept(DType::f64, {x.shape()[0], 2 * width, x.columns()}),
          rstd(DType::f64, {x.shape()[0], x.columns()});
      Stream stream;
      ops::token_mixing_forward(stream, y, kept, rstd, x, gate_up, down, kEps);
      ops::token_mixing_backward(stream, {g.dx, true}, {g.dgate_up, true}, {g.ddown, true}, dy, y, kept, rstd, x,
                                 gate_up, down);
    };
    Gradients whole{zeros(shape), zeros(gate_up->shape()), zeros(down->shape())};
    of(x, dy, whole);
    Gradients sum{zeros(shape), zeros(gate_up->shape()), zeros(down->shape())};
    for (std::int64_t d = 0; d < channels; ++d) {
      const OwnedTensor own(DType::f64, {batch, positions, 1}), slope(DType::f64, {batch, positions, 1});
      for (std::int64_t i = 0; i < batch * positions; ++i) {
        own->data<double>()[i] = x->data<double>()[i * channels + d];
        slope->data<double>()[i] = dy->data<double>()[i * channels + d];
      }
      Gradients one{zeros(own->shape()), std::move(sum.dgate_up), std::move(sum.ddown)};
      of(own, slope, one);
      for (std::int64_t i = 0; i < batch * positions; ++i)
        sum.dx->data<double>()[i * channels + d] = one.dx->data<double>()[i];
      sum.dgate_up = std::move(one.dgate_up), sum.ddown = std::move(one.ddown);
    }
    CHECK(same_bits(whole.dx, sum.dx));
    CHECK(difference(whole.dgate_up, sum.dgate_up) < 1e-13);
    CHECK(difference(whole.ddown, sum.ddown) < 1e-13);
  }
}
