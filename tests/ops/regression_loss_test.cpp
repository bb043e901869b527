#include "lockstep/ops/regression_loss.hpp"

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

namespace {
constexpr Regression kAll[] = {Regression::mse, Regression::mae, Regression::huber};
}

TEST_SUITE("ops.regression_loss") {
  TEST_CASE("values and gradients are exact at known distances, including zero and the knee of huber") {
    Stream stream;
    const std::vector<double> y = {0, 0.5, 1, -1, 3, -0.5}, target(6, 0.0);
    std::vector<double> dy(6);
    const auto run = [&](Regression loss) {
      double sum = 0;
      ops::regression_loss(stream, Tensor::of(&sum, {}), Tensor::of(dy.data(), {6}), Tensor::of(y.data(), {6}),
                           Tensor::of(target.data(), {6}), loss);
      return sum;
    };
    CHECK(run(Regression::mse) == 0.25 + 1 + 1 + 9 + 0.25);
    CHECK(dy == std::vector<double>{0, 1, 2, -2, 6, -1});
    CHECK(run(Regression::mae) == 6);
    CHECK(dy == std::vector<double>{0, 1, 1, -1, 1, -1});
    CHECK(run(Regression::huber) == 0.125 + 0.5 + 0.5 + 2.5 + 0.125);
    CHECK(dy == std::vector<double>{0, 0.5, 1, -1, 1, -0.5});
  }

  TEST_CASE("gradient agrees with finite differences, stored and added") {
    for (const Regression loss : kAll)
      for (const Shape shape : {Shape{7, 3}, Shape{1, 1}, Shape{0, 2}}) {
        CAPTURE(std::string(ops::name(loss)));
        // sigmoid(v) - target is in (-3, -2) or, for |v| < 4, in (0.01, 0.98): away from the knees at 0 and 1.
        const OwnedTensor target(DType::f64, shape);
        for (std::int64_t i = 0; i < target->size(); ++i) target->data<double>()[i] = i % 2 ? 3 : 0.005;
        const auto f = [&](Tape& t, const std::vector<Var>& v) {
          return regression_loss(t, activation(t, v[0], Activation::sigmoid), on_tape(t, target), loss, 0.4);
        };
        CHECK(gradcheck(f, {shape}) < 1e-7);
      }
  }

  TEST_CASE("f32 agrees with f64, and the sum keeps its digits over many elements") {
    const OwnedTensor y = random_tensor(DType::f32, {100003, 1}, "y"), t = random_tensor(DType::f32, {100003, 1}, "t");
    const OwnedTensor dy(DType::f32, y->shape()), dy64(DType::f64, y->shape());
    Stream stream;
    for (const Regression loss : kAll) {
      const OwnedTensor narrow(DType::f32, {}), wide(DType::f64, {});
      ops::regression_loss(stream, narrow, dy, y, t, loss);
      ops::regression_loss(stream, wide, dy64, converted(y, DType::f64), converted(t, DType::f64), loss);
      CHECK(difference(narrow, wide) < 1e-7);
      CHECK(difference(dy, dy64) < 1e-6);
    }
  }

  TEST_CASE("smoothness agrees with its definition: a constant has none of order 1, a line none of order 2") {
    Stream stream;
    const std::vector<double> mean = {1, 2, 3, 4}, std = {0.5, 1, 2, 4};
    std::vector<double> y(4), dy(4);
    const auto run = [&](const std::vector<double>& physical, int order) {
      for (std::size_t c = 0; c < 4; ++c) y[c] = (physical[c] - mean[c]) / std[c];
      double sum = 0;
      ops::smoothness_loss(stream, Tensor::of(&sum, {}), Tensor::of(dy.data(), {1, 4}), Tensor::of(y.data(), {1, 4}),
                           mean, std, order);
      return sum;
    };
    CHECK(run({5, 5, 5, 5}, 1) == 0);
    CHECK(run({1, 3, 5, 7}, 2) == 0);
    CHECK(run({1, 3, 5, 7}, 1) == Approx(12));
    CHECK(run({0, 1, 4, 9}, 2) == Approx(8));
  }

  TEST_CASE("smoothness gradient agrees with finite differences") {
    const std::vector<double> mean = {1, 2, 3, 4, 5}, std = {0.5, 1, 2, 0.25, 3};
    for (const int order : {1, 2})
      for (const std::int64_t rows : {0, 1, 6})
        CHECK(gradcheck(
                  [&](Tape& t, const std::vector<Var>& v) { return smoothness_loss(t, v[0], mean, std, order, 0.3); },
                  {{rows, 5}}) < 1e-7);
  }

  TEST_CASE("shapes and names that do not fit are an error") {
    Stream stream;
    const std::vector<double> two = {1, 1};
    const OwnedTensor y(DType::f32, {3, 2}), t(DType::f32, {3, 1});
    const OwnedTensor loss(DType::f32, {});
    CHECK_THROWS_WITH_AS(ops::regression_loss(stream, loss, {}, y, t, Regression::mse),
                         "regression loss: y is (3, 2), target (3, 1); they must be equal", Error);
    CHECK_THROWS_WITH_AS(ops::smoothness_loss(stream, loss, {}, y, two, two, 2),
                         "smoothness loss: 2 output columns have no finite difference of order 2", Error);
    CHECK_THROWS_WITH_AS(ops::parse_regression("l2"), "loss 'l2': unknown; choose one of mse, mae, huber", Error);
    for (const Regression loss : kAll) CHECK(ops::parse_regression(ops::name(loss)) == loss);
  }
}
