#include "lockstep/ops/swiglu.hpp"

#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/swiglu.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
OwnedTensor reference(const Tensor& x, const Tensor& w) {
  const std::int64_t width = w.shape()[0] / 2, k = x.columns();
  OwnedTensor y(DType::f64, {x.rows(), width});
  for (std::int64_t m = 0; m < x.rows(); ++m)
    for (std::int64_t i = 0; i < width; ++i) {
      double g = 0, u = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        g += x.data<double>()[m * k + c] * w.data<double>()[i * k + c];
        u += x.data<double>()[m * k + c] * w.data<double>()[(width + i) * k + c];
      }
      y->data<double>()[m * width + i] = g / (1 + std::exp(-g)) * u;
    }
  return y;
}
}  // namespace

TEST_SUITE("ops.swiglu") {
  TEST_CASE("forward agrees with the definition whether gate and up are kept or not") {
    for_every_isa([&] {
      struct Sizes {
        std::int64_t m, width, k;
      };
      for (const Sizes s : {Sizes{7, 5, 9}, Sizes{1, 1, 1}, Sizes{250, 33, 17}, Sizes{3, 300, 4}, Sizes{0, 3, 2}})
        for (const DType dtype : {DType::f32, DType::f64}) {
          CAPTURE(s.m);
          const OwnedTensor x = random_tensor(dtype, {s.m, s.k}, "x"),
                            w = random_tensor(dtype, {2 * s.width, s.k}, "w");
          const OwnedTensor y(dtype, {s.m, s.width}), y1(dtype, {s.m, s.width}), both(dtype, {s.m, 2 * s.width});
          Stream stream;
          ops::swiglu_forward(stream, y, {}, x, w);
          ops::swiglu_forward(stream, y1, both, x, w);
          CHECK(same_bits(y, y1));
          CHECK(difference(y, reference(converted(x, DType::f64), converted(w, DType::f64))) <
                (dtype == DType::f32 ? 1e-6 : 1e-14));
        }
    });
  }

  TEST_CASE("gradient agrees with finite differences for x and both weights, with and without a norm") {
    for_every_isa([&] {
      ParamStore params(DType::f64);
      const Param &w = params.add("w", {6, 5}, init::zeros()), &down = params.add("down", {5, 3}, init::zeros());
      params.allocate(1);
      for (const Shape& shape : {Shape{7, 5}, Shape{2, 3, 5}, Shape{1, 1, 5}})
        for (const std::optional<double> eps : {std::optional<double>{}, std::optional(1e-5)}) {
          const auto layer = [&](Tape& t, const std::vector<Var>& v) { return gated_residual(t, v[0], w, down, eps); };
          CHECK(gradcheck(layer, {shape}, &params) < 1e-7);
          // x already has a gradient when the layer adds its own.
          const auto used_twice = [&](Tape& t, const std::vector<Var>& v) {
            const Var y = gated_residual(t, v[0], w, down, eps);
            return add(t, y, v[0]);
          };
          CHECK(gradcheck(used_twice, {shape}, &params) < 1e-7);
        }
    });
  }

  TEST_CASE("single precision gradients agree with double, also far from zero") {
    for_every_isa([&] {
      const std::int64_t m = 21, width = 19, k = 3;
      const OwnedTensor x = random_tensor(DType::f64, {m, k}, "x"), w = random_tensor(DType::f64, {2 * width, k}, "w"),
                        dy = random_tensor(DType::f64, {m, width}, "dy");
      for (double& v : x->span<double>()) v *= 40;
      Stream stream;
      const auto gradient = [&](DType dtype) {
        const OwnedTensor xs = converted(x, dtype), ws = converted(w, dtype), both(dtype, {m, 2 * width}),
                          y(dtype, {m, width}), dx(dtype, {m, k});
        ops::swiglu_forward(stream, y, both, xs, ws);
        ops::swiglu_backward(stream, {dx, false}, {}, converted(dy, dtype), both, xs, ws);
        return converted(dx, DType::f64);
      };
      CHECK(difference(gradient(DType::f32), gradient(DType::f64)) < 2e-6);
    });
  }

  TEST_CASE("a row's bits do not depend on the other rows") {
    for_every_isa([&] {
      const OwnedTensor x = random_tensor(DType::f32, {130, 37}, "x"), w = random_tensor(DType::f32, {58, 37}, "w");
      const OwnedTensor y(DType::f32, {130, 29}), alone(DType::f32, {130, 29});
      Stream stream;
      ops::swiglu_forward(stream, y, {}, x, w);
      for (std::int64_t m = 0; m < 130; ++m) ops::swiglu_forward(stream, alone->slice(m, 1), {}, x->slice(m, 1), w);
      CHECK(same_bits(y, alone));
    });
  }

  TEST_CASE("shapes that do not fit are an error") {
    Stream stream;
    const OwnedTensor x(DType::f32, {2, 3}), w(DType::f32, {8, 4}), y(DType::f32, {2, 4});
    CHECK_THROWS_WITH_AS(ops::swiglu_forward(stream, y, {}, x, w),
                         "swiglu: x is (2, 3), y (2, 4), so weight must be (8, 3), not (8, 4)", Error);
  }
}
