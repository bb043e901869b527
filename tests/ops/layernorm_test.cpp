#include "lockstep/ops/layernorm.hpp"

#include "lockstep/nn/layernorm.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
OwnedTensor by_definition(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  OwnedTensor y(DType::f64, x.shape());
  const std::int64_t c = x.columns();
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    const double* row = x.data<double>() + i * c;
    double mean = 0, var = 0;
    for (std::int64_t k = 0; k < c; ++k) mean += row[k] / static_cast<double>(c);
    for (std::int64_t k = 0; k < c; ++k) var += (row[k] - mean) * (row[k] - mean) / static_cast<double>(c);
    for (std::int64_t k = 0; k < c; ++k)
      y->data<double>()[i * c + k] =
          (row[k] - mean) / std::sqrt(var + eps) * gamma.data<double>()[k] + beta.data<double>()[k];
  }
  return y;
}
}  // namespace

TEST_SUITE("ops.layernorm") {
  TEST_CASE("rows agree with the definition, in both precisions, and do not depend on one another") {
    Stream stream;
    for_every_isa([&] {
      for (const Shape shape : {Shape{7, 5}, Shape{3, 2, 50}, Shape{1, 1}, Shape{0, 4}, Shape{33, 100}}) {
        const OwnedTensor x = random_tensor(DType::f64, shape, "x"),
                          gamma = random_tensor(DType::f64, {shape.columns()}, "g"),
                          beta = random_tensor(DType::f64, {shape.columns()}, "b"), y(DType::f64, shape),
                          y32(DType::f32, shape);
        ops::layernorm_forward(stream, y, {}, {}, x, gamma, beta, 1e-8);
        if (shape.size() == 0) continue;
        CHECK(difference(y, by_definition(x, gamma, beta, 1e-8)) < 1e-12);
        const OwnedTensor x32 = converted(x, DType::f32), g32 = converted(gamma, DType::f32),
                          b32 = converted(beta, DType::f32);
        ops::layernorm_forward(stream, y32, {}, {}, x32, g32, b32, 1e-8);
        CHECK(difference(y32, y) < 2e-6);
        const Tensor rows = x32->reshaped({shape.rows(), shape.columns()});
        for (std::int64_t i = 0; i < shape.rows(); ++i) {
          const OwnedTensor one(DType::f32, {1, shape.columns()});
          ops::layernorm_forward(stream, one, {}, {}, rows.slice(i, 1), g32, b32, 1e-8);
          CHECK(same_bits(one, y32->reshaped({shape.rows(), shape.columns()}).slice(i, 1)));
        }
      }
    });
  }

  TEST_CASE("a large mean costs no digits, and a constant row gives beta") {
    Stream stream;
    for_every_isa([&] {
      const OwnedTensor x = random_tensor(DType::f32, {4, 37}, "x"), gamma = random_tensor(DType::f32, {37}, "g"),
                        beta = random_tensor(DType::f32, {37}, "b"), y(DType::f32, {4, 37});
      for (float& v : x->span<float>()) v = 1e4f + v;
      for (std::int64_t c = 0; c < 37; ++c) x->data<float>()[c] = 3;
      ops::layernorm_forward(stream, y, {}, {}, x, gamma, beta, 1e-8);
      const OwnedTensor reference =
          by_definition(converted(x, DType::f64), converted(gamma, DType::f64), converted(beta, DType::f64), 1e-8);
      CHECK(difference(y->slice(1, 3), reference->slice(1, 3)) < 1e-3);  // the mean itself is rounded: 2^-24 1e4
      CHECK(same_bits(y->slice(0, 1).reshaped({37}), beta));
    });
  }

  TEST_CASE("gradient agrees with finite differences") {
    for_every_isa([&] {
      for (const Shape shape : {Shape{7, 5}, Shape{1, 2}, Shape{0, 3}, Shape{3, 2, 19}}) {
        ParamStore params(DType::f64);
        const LayerNorm norm = add_layernorm(params, "norm", shape.columns(), 1e-5);
        params.allocate(1);
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return layernorm(t, v[0], norm); }, {shape},
                        &params) < 1e-7);
      }
    });
  }

  TEST_CASE("a NaN stays a NaN, and wrong shapes are reported") {
    Stream stream;
    const OwnedTensor x = random_tensor(DType::f32, {2, 5}, "x"), v = random_tensor(DType::f32, {5}, "v"),
                      y(DType::f32, {2, 5});
    x->data<float>()[7] = NAN;
    ops::layernorm_forward(stream, y, {}, {}, x, v, v, 1e-8);
    CHECK(std::isnan(y->data<float>()[5]));
    CHECK(!std::isnan(y->data<float>()[0]));
    CHECK_THROWS_WITH_AS(ops::layernorm_forward(stream, y, {}, {}, x, OwnedTensor(DType::f32, {4}), v, 1e-8),
                         "layernorm: x is (2, 5), so gamma and beta must be (5), not (4)", Error);
  }
}
