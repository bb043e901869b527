#include "lockstep/ops/token_mixing.hpp"

#include "lockstep/nn/token_mixing.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
constexpr double kEps = 1e-5;

struct Sizes {
  std::int64_t batch, positions, channels, width;
};

/// Weights scaled so that a product's results are as large as its inputs.
OwnedTensor weight(DType dtype, Shape shape, const char* name) {
  const OwnedTensor w = random_tensor(DType::f64, shape, name);
  for (double& v : w->span<double>()) v /= std::sqrt(static_cast<double>(shape[1]));
  return converted(w, dtype);
}

OwnedTensor reference(const Tensor& x, const Tensor& gate_up, const Tensor& down) {
  const std::int64_t batch = x.shape()[0], positions = x.shape()[1], channels = x.shape()[2], width = down.shape()[1];
  OwnedTensor y(DType::f64, x.shape());
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t d = 0; d < channels; ++d) {
      const auto at = [&](std::int64_t t) { return (b * positions + t) * channels + d; };
      double squares = 0;
      for (std::int64_t t = 0; t < positions; ++t) y->data<double>()[at(t)] = x.data<double>()[at(t)];
      for (std::int64_t i = 0; i < width; ++i) {
        double g = 0, u = 0;
        for (std::int64_t t = 0; t < positions; ++t) {
          g += gate_up.data<double>()[i * positions + t] * x.data<double>()[at(t)];
          u += gate_up.data<double>()[(width + i) * positions + t] * x.data<double>()[at(t)];
        }
        for (std::int64_t t = 0; t < positions; ++t)
          y->data<double>()[at(t)] += down.data<double>()[t * width + i] * g / (1 + std::exp(-g)) * u;
      }
      for (std::int64_t t = 0; t < positions; ++t) squares += y->data<double>()[at(t)] * y->data<double>()[at(t)];
      for (std::int64_t t = 0; t < positions; ++t)
        y->data<double>()[at(t)] /= std::sqrt(squares / static_cast<double>(positions) + kEps);
    }
  return y;
}
}  // namespace

TEST_SUITE("ops.token_mixing") {
  TEST_CASE("forward agrees with the definition whether a backward follows or not") {
    for_every_isa([&] {
      // The wide layers split the channels into chunks. A channel whose positions nearly cancel amplifies rounding.
      for (const Sizes s :
           {Sizes{3, 7, 5, 9}, Sizes{1, 1, 1, 1}, Sizes{2, 33, 70, 31}, Sizes{2, 3, 150, 1100}, Sizes{0, 3, 2, 4}})
        for (const DType dtype : {DType::f32, DType::f64}) {
          CAPTURE(s.channels);
          const Shape shape{s.batch, s.positions, s.channels};
          const OwnedTensor x = random_tensor(dtype, shape, "x"), y(dtype, shape), y1(dtype, shape),
                            gate_up = weight(dtype, {2 * s.width, s.positions}, "gate_up"),
                            down = weight(dtype, {s.positions, s.width}, "down"),
                            kept(dtype, {s.batch, 2 * s.width, s.channels}), rstd(dtype, {s.batch, s.channels});
          Stream stream;
          ops::token_mixing_forward(stream, y, {}, {}, x, gate_up, down, kEps);
          ops::token_mixing_forward(stream, y1, kept, rstd, x, gate_up, down, kEps);
          CHECK(same_bits(y, y1));
          CHECK(difference(y, reference(converted(x, DType::f64), converted(gate_up, DType::f64),
                                        converted(down, DType::f64))) < (dtype == DType::f32 ? 1e-5 : 1e-13));
        }
    });
  }

  TEST_CASE("gradient agrees with finite differences for x and both weights") {
    for_every_isa([&] {
      ParamStore params(DType::f64);
      const Param &gate_up = params.add("gate_up", {12, 7}, init::normal(0.4)),
                  &down = params.add("down", {7, 6}, init::normal(0.4));
      params.allocate(1);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return token_mixing(t, v[0], gate_up, down, kEps); },
                      {{2, 7, 5}}, &params) < 1e-7);
    });
  }

  TEST_CASE("many channels have the gradient of each channel alone, summed for the weights") {
    for_every_isa([&] {
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
    });
  }

  TEST_CASE("a sequence's bits depend on neither the other sequences nor the number of threads") {
    for_every_isa([&] {
      const OwnedTensor x = random_tensor(DType::f32, {5, 37, 70}, "x"), y(DType::f32, {5, 37, 70}),
                        alone(DType::f32, {5, 37, 70}), w = random_tensor(DType::f32, {58, 37}, "w"),
                        down = random_tensor(DType::f32, {37, 29}, "down");
      Stream stream;

      for (const int threads : {1, 2, 3}) {
        const Threads limit(threads);
        ops::token_mixing_forward(stream, y, {}, {}, x, w, down, kEps);
        for (std::int64_t b = 0; b < 5; ++b)
          ops::token_mixing_forward(stream, alone->slice(b, 1), {}, {}, x->slice(b, 1), w, down, kEps);
        CHECK(same_bits(y, alone));
      }
    });
  }

  TEST_CASE("shapes that do not fit are an error") {
    Stream stream;
    const OwnedTensor x(DType::f32, {2, 3, 4}), gate_up(DType::f32, {10, 5}), down(DType::f32, {3, 5});
    CHECK_THROWS_WITH_AS(
        ops::token_mixing_forward(stream, x, {}, {}, x, gate_up, down, kEps),
        "token mixing: x is (2, 3, 4), so gate_up must be (2I, 3) and down (3, I), not (10, 5) and (3, 5)", Error);
  }
}
