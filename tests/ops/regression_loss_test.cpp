#include "lockstep/ops/regression_loss.hpp"

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
constexpr Regression kAll[] = {Regression::mse, Regression::mae, Regression::huber};
}

TEST_SUITE("ops.regression_loss") {
  TEST_CASE("definition, bits and devices; gradients by definition, because of their kinks") {
    const auto all = {std::pair{kAll[0], false}, {kAll[1], false}, {kAll[2], false}, {kAll[2], true}};
    for (const auto& [kind, weighted] : all) {
      CAPTURE(std::string(name(kind)));
      const auto run = [&](Place& p, Int rows, Int c) {
        const Shape shape{rows, c};
        ops::regression_loss(p.stream, p.sum("loss", {}), p.real_out("dy", shape), p.in("y", shape),
                             p.real_in("target", shape), kind, weighted ? p.real_in("weights", {rows}) : Tensor());
        ops::regression_loss(p.stream, p.sum("loss of zero", {}), p.real_out("dy of zero", shape),
                             p.in("zero", shape, 0), p.real_in("no target", shape, 0), kind);
      };
      const auto definition = [&](Plain& r, Int rows, Int c) {
        const auto y = r.in("y"), target = r.in("target"), weights = r.in(weighted ? "weights" : "target"),
                   loss = r.out("loss"), dy = r.out("dy");
        (void)r.out("loss of zero"), (void)r.out("dy of zero");
        for (Int m = 0; m < rows; ++m)
          for (Int i = 0; i < c; ++i) {
            const double d = y(m, i) - target(m, i), size = std::abs(d), sign = d > 0 ? 1 : -1,
                         weight = weighted ? weights(m) : 1;
            const bool square = kind == Regression::mse, far = kind == Regression::mae || size >= 1;
            loss() += weight * (square ? d * d : kind == Regression::mae ? size : far ? size - 0.5 : d * d / 2);
            dy(m, i) = weight * (square ? 2 * d : far ? sign : d);
          }
      };
      CHECK(faults(run, definition, {{7, 3}, {1, 3}, {9, 33}, {0, 2}, {300, 3}},
                   {.f32 = 2e-7, .f64 = 1e-13, .gradient = 0, .cpu_sizes = {{100003, 1}}}) == "");
    }
  }

  TEST_CASE("definition, gradients, bits and devices of the smoothness") {
    for (const int order : {1, 2}) {
      const auto number = [](Int c) { return 0.25 + static_cast<double>(c % 4); };
      const auto run = [&](Place& p, Int rows, Int columns) {
        std::vector<double> mean, std;
        for (Int c = 0; c < columns; ++c) mean.push_back(0.5 * number(c)), std.push_back(number(c));
        ops::smoothness_loss(p.stream, p.sum("loss", {}), p.real_out("dy", {rows, columns}), p.in("y", {rows, columns}),
                             p.host(mean), p.host(std), order);
      };
      const auto definition = [&](Plain& r, Int rows, Int columns) {
        const auto y = r.in("y"), loss = r.out("loss");
        const auto at = [&](Int m, Int c) { return y(m, c) * number(c) + 0.5 * number(c); };
        for (Int m = 0; m < rows; ++m)
          for (Int c = 0; c + order < columns; ++c) {
            const double d = order == 1 ? at(m, c + 1) - at(m, c) : at(m, c + 2) - 2 * at(m, c + 1) + at(m, c);
            loss() += d * d;
          }
      };
      CHECK(faults(run, definition, {{6, 5}, {1, 3}, {9, 33}, {0, 5}, {300, 3}}, {.f64 = 1e-13}) == "");
    }
  }

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

  TEST_CASE("gradient of the record agrees with finite differences, stored and added") {
    for (const Regression loss : kAll)
      for (const Shape shape : {Shape{7, 3}, Shape{0, 2}}) {
        CAPTURE(std::string(name(loss)));
        // sigmoid(v) - target is in (-3, -2) or, for |v| < 4, in (0.01, 0.98): away from the knees at 0 and 1.
        const OwnedTensor target(DType::f64, shape);
        for (std::int64_t i = 0; i < target->size(); ++i) target->data<double>()[i] = i % 2 ? 3 : 0.005;
        const auto f = [&](Tape& t, const std::vector<Var>& v) {
          return regression_loss(t, activation(t, v[0], Activation::sigmoid), on_tape(t, target), loss, 0.4);
        };
        CHECK(gradcheck(f, {shape}) < 1e-7);
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

  TEST_CASE("smoothness gradient of the record agrees with finite differences") {
    const std::vector<double> mean = {1, 2, 3, 4, 5}, std = {0.5, 1, 2, 0.25, 3};
    for (const int order : {1, 2})
      for (const std::int64_t rows : {0, 6})
        CHECK(gradcheck(
                  [&](Tape& t, const std::vector<Var>& v) { return smoothness_loss(t, v[0], mean, std, order, 0.3); },
                  {{rows, 5}}) < 1e-7);
  }

  TEST_CASE("shapes that do not fit are an error") {
    Stream stream;
    const std::vector<double> two = {1, 1};
    const OwnedTensor y(DType::f32, {3, 2}), t(DType::f32, {3, 1});
    const OwnedTensor loss(DType::f32, {});
    CHECK_THROWS_WITH_AS(ops::regression_loss(stream, loss, {}, y, t, Regression::mse),
                         "regression loss: y is (3, 2), target (3, 1); they must be equal", Error);
    CHECK_THROWS_WITH_AS(ops::smoothness_loss(stream, loss, {}, y, two, two, 2),
                         "smoothness loss: 2 output columns have no finite difference of order 2", Error);
  }
}
