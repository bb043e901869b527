#include "lockstep/ops/cross_entropy.hpp"

#include "lockstep/nn/loss.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.cross_entropy") {
  TEST_CASE("the sum over the rows agrees with the definition, with and without smoothing") {
    const std::int64_t rows = 9, classes = 6;
    const std::vector<std::int32_t> labels = {0, 5, 3, 3, 1, 2, 4, 0, 5};
    for (const DType type : {DType::f32, DType::f64})
      for (const double smoothing : {0.0, 0.1}) {
        const OwnedTensor x = random_tensor(type, {rows, classes}, "x"), x64 = converted(x, DType::f64);
        double expected = 0;
        for (std::int64_t n = 0; n < rows; ++n) {
          const double* row = x64->data<double>() + n * classes;
          double sum = 0;
          for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(row[k]);
          for (std::int64_t k = 0; k < classes; ++k)
            expected -= ((k == labels[to_size(n)] ? 1 - smoothing : 0) + smoothing / classes) *
                        std::log(std::exp(row[k]) / sum);
        }
        Stream stream;
        const OwnedTensor loss(type, {});
        ops::cross_entropy(stream, loss, {}, x, Tensor::of(labels.data(), {rows}), smoothing);
        const double sum = *converted(loss, DType::f64)->data<double>();
        CHECK(std::abs(sum - expected) < (type == DType::f32 ? 1e-6 : 1e-14) * expected);
        const std::vector<double> twice(to_size(rows), 2.0);
        ops::cross_entropy(stream, loss, {}, x, Tensor::of(labels.data(), {rows}), smoothing,
                           Tensor::of(twice.data(), {rows}));
        CHECK(*converted(loss, DType::f64)->data<double>() == 2 * sum);
      }
  }

  TEST_CASE("gradient agrees with finite differences") {
    const std::vector<std::int32_t> labels = {2, 0, 4, 4, 1, 3, 0};
    for (const Shape shape : {Shape{7, 5}, Shape{1, 5}, Shape{0, 3}})
      for (const double smoothing : {0.0, 0.1}) {
        const auto first = std::span(labels).first(to_size(shape[0]));
        const auto f = [&](Tape& t, const std::vector<Var>& v) {
          return cross_entropy(t, v[0], Tensor::of(on_tape(t, first).data(), {shape[0]}), smoothing);
        };
        CHECK(gradcheck(f, {shape}) < 1e-7);
        const std::vector<double> weights(first.begin(), first.end());  // a row of weight 0 among them
        const auto weighted = [&](Tape& t, const std::vector<Var>& v) {
          return cross_entropy(t, v[0], Tensor::of(on_tape(t, first).data(), {shape[0]}), smoothing,
                               Tensor::of(on_tape(t, std::span(weights)).data(), {shape[0]}));
        };
        CHECK(gradcheck(weighted, {shape}) < 1e-7);
      }
  }

  TEST_CASE("logits of any size give a finite loss; a NaN stays a NaN") {
    std::vector<float> x = {1e6F, -1e6F, 0, -3e4F, 3e4F, 2e4F}, dx(6);
    const std::vector<std::int32_t> labels = {1, 0};
    Stream stream;
    const auto run = [&] {
      float loss = 0;
      ops::cross_entropy(stream, Tensor::of(&loss, {}), Tensor::of(dx.data(), {2, 3}), Tensor::of(x.data(), {2, 3}),
                         Tensor::of(labels.data(), {2}), 0);
      return loss;
    };
    CHECK(run() == 2e6 + 6e4);
    CHECK(dx == std::vector<float>{1, -1, 0, -1, 1, 0});
    x[2] = std::nanf("");
    CHECK(std::isnan(run()));
  }

  TEST_CASE("a label that is not a class is reported") {
    const OwnedTensor x = random_tensor(DType::f32, {2, 3}, "x");
    const std::vector<std::int32_t> labels = {1, 3};
    Stream stream;
    const OwnedTensor loss(DType::f32, {});
    CHECK_THROWS_WITH_AS(ops::cross_entropy(stream, loss, {}, x, Tensor::of(labels.data(), {2}), 0),
                         "cross entropy: label 3 of row 1 is not in 0..2", Error);
  }
}
