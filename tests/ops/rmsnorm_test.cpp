#include "lockstep/ops/rmsnorm.hpp"

#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/rmsnorm.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
constexpr double kEps = 1e-5;

OwnedTensor reference(const Tensor& x) {
  OwnedTensor y(DType::f64, x.shape());
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    double squares = 0;
    const auto v = [&](std::int64_t c) { return x.data<double>()[m * x.columns() + c]; };
    for (std::int64_t c = 0; c < x.columns(); ++c) squares += v(c) * v(c);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.columns()) + kEps);
    for (std::int64_t c = 0; c < x.columns(); ++c) y->data<double>()[m * x.columns() + c] = v(c) * scale;
  }
  return y;
}
}  // namespace

TEST_SUITE("ops.rmsnorm") {
  TEST_CASE("forward agrees with the definition, in place too") {
    for_every_isa([&] {
      for (const Shape& shape : {Shape{7, 20}, Shape{1, 1}, Shape{2, 3, 33}, Shape{5, 512}, Shape{0, 4}})
        for (const DType dtype : {DType::f32, DType::f64}) {
          CAPTURE(shape.columns());
          const OwnedTensor x = random_tensor(dtype, shape, "x");
          const OwnedTensor y(dtype, shape), rstd(dtype, {x->rows()});
          const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
          Stream stream;
          ops::rmsnorm_forward(stream, y, rstd, x, kEps);
          CHECK(difference(y, reference(converted(x, DType::f64))) < tolerance);
          ops::rmsnorm_forward(stream, x, {}, x, kEps);
          CHECK(same_bits(x, y));
        }
    });
  }

  TEST_CASE("a sum in the pass of a norm has the bits of a separate sum") {
    for_every_isa([&] {
      for (const Shape& shape : {Shape{7, 20}, Shape{1, 1}, Shape{2, 3, 33}, Shape{0, 4}}) {
        const OwnedTensor x = random_tensor(DType::f32, shape, "x"), a = random_tensor(DType::f32, shape, "a"),
                          b = random_tensor(DType::f32, shape, "b");
        const OwnedTensor y(DType::f32, shape), y2(DType::f32, shape), sum(DType::f32, shape), apart(DType::f32, shape);
        Stream stream;
        ops::rmsnorm_forward(stream, y, {}, x, kEps);
        ops::rmsnorm_forward(stream, y2, {}, x, kEps, {sum, a, b});
        ops::add(stream, apart, y, a, b);
        CHECK(same_bits(y, y2));
        CHECK(same_bits(sum, apart));
        ops::rmsnorm_forward(stream, y2, {}, x, kEps, {sum, a, {}});
        ops::add(stream, apart, y, a);
        CHECK(same_bits(sum, apart));
      }
    });
  }

  TEST_CASE("gradient agrees with finite differences, also through a sum") {
    for_every_isa([&] {
      for (const Shape& shape : {Shape{7, 5}, Shape{1, 1}, Shape{3, 2, 17}, Shape{2, 64}}) {
        CHECK(gradcheck([](Tape& t, const std::vector<Var>& v) { return rmsnorm(t, v[0], kEps).y; }, {shape}) < 1e-7);
        const auto used_twice = [](Tape& t, const std::vector<Var>& v) {
          const Normed n = rmsnorm(t, v[0], kEps, {.a = v[1], .b = v[2]});
          return add(t, n.y, n.sum);
        };
        CHECK(gradcheck(used_twice, {shape, shape, shape}) < 1e-7);
        const auto sum_alone = [](Tape& t, const std::vector<Var>& v) {
          return rmsnorm(t, v[0], kEps, {.a = v[1]}).sum;
        };
        CHECK(gradcheck(sum_alone, {shape, shape}) < 1e-7);
      }
    });
  }

  TEST_CASE("a row's bits do not depend on the other rows; rows scaled by 1e10 do not overflow; a NaN stays a NaN") {
    for_every_isa([&] {
      const OwnedTensor x = random_tensor(DType::f32, {9, 37}, "x"), y(DType::f32, {9, 37}), alone(DType::f32, {9, 37});
      x->data<float>()[0] = NAN;
      for (std::int64_t c = 0; c < 37; ++c) x->data<float>()[37 + c] *= 1e10f;
      Stream stream;
      ops::rmsnorm_forward(stream, y, {}, x, kEps);
      for (std::int64_t m = 0; m < 9; ++m) ops::rmsnorm_forward(stream, alone->slice(m, 1), {}, x->slice(m, 1), kEps);
      CHECK(same_bits(y->slice(1, 8), alone->slice(1, 8)));
      CHECK(std::isnan(y->data<float>()[36]));
      CHECK(std::isfinite(y->data<float>()[37]));
    });
  }

  TEST_CASE("shapes that do not fit are an error") {
    Stream stream;
    const OwnedTensor x(DType::f32, {2, 3}), y(DType::f32, {3, 2});
    CHECK_THROWS_WITH_AS(ops::rmsnorm_forward(stream, y, {}, x, kEps),
                         "rmsnorm: x is (2, 3), so y must be too, not (3, 2)", Error);
    CHECK_THROWS_WITH_AS(ops::rmsnorm_forward(stream, x, {}, x, kEps, {x, x, y}),
                         "rmsnorm: x is (2, 3), so a sum and what it adds must be too, not (2, 3), (2, 3) and (3, 2)",
                         Error);
  }
}
