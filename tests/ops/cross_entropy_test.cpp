#include "lockstep/ops/cross_entropy.hpp"

#include "lockstep/nn/loss.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
std::vector<std::int32_t> labels_of(Int rows, Int classes) {
  std::vector<std::int32_t> labels;
  for (Int n = 0; n < rows; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % classes));
  return labels;
}
}  // namespace

TEST_SUITE("ops.cross_entropy") {
  TEST_CASE("definition, gradients, bits and devices, with smoothing and weights, a weight of 0 among them") {
    for (const double smoothing : {0.0, 0.1})
      for (const bool weighted : {false, true}) {
        const auto run = [&](Place& p, Int rows, Int classes) {
          const std::vector<std::int32_t> labels = labels_of(rows, classes);
          const std::vector<double> weights(labels.begin(), labels.end());
          ops::cross_entropy(p.stream, p.sum("loss", {}), p.real_out("dx", {rows, classes}), p.in("x", {rows, classes}),
                             Tensor::of(p.list("labels", labels).data(), {rows}), smoothing,
                             weighted ? Tensor::of(p.host(weights).data(), {rows}) : Tensor{});
        };
        const auto definition = [&](Plain& r, Int rows, Int classes) {
          const auto x = r.in("x"), dx = r.out("dx"), loss = r.out("loss");
          for (Int n = 0; n < rows; ++n) {
            const Int label = r.list("labels")[to_size(n)];
            const double weight = weighted ? static_cast<double>(label) : 1;
            double sum = 0;
            for (Int k = 0; k < classes; ++k) sum += std::exp(x(n, k));
            for (Int k = 0; k < classes; ++k) {
              const double p = std::exp(x(n, k)) / sum,
                           q = (k == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
              loss() -= weight * q * std::log(p);
              dx(n, k) = weight * (p - q);
            }
          }
        };
        // A row of a weighted call has its own weight.
        CHECK(faults(run, definition, {{9, 6}, {1, 3}, {9, 33}, {0, 3}, {300, 3}}, {.rows = !weighted}) == "");
      }
  }

  TEST_CASE("large logits and more rows than a grid has warps agree with the CPU" *
            doctest::test_suite("ops.cross_entropy.cuda") * doctest::skip(gpu_count() == 0)) {
    const auto run = [&](Place& p, Int rows) {
      ops::cross_entropy(p.stream, p.sum("loss", {}), p.real_out("dx", {rows, 3}), p.in("x", {rows, 3}, 1e4),
                         Tensor::of(p.list("labels", labels_of(rows, 3)).data(), {rows}), 0.1);
    };
    CHECK(faults(run, {}, {}, {.gpu = {.bf16 = 0, .f16 = 0}, .gpu_sizes = {{4100}}}) == "");
  }

  TEST_CASE("gradient of the record agrees with finite differences") {
    const std::vector<std::int32_t> labels = {2, 0, 4, 4, 1, 3, 0};
    for (const Shape shape : {Shape{7, 5}, Shape{0, 3}})
      for (const double smoothing : {0.0, 0.1}) {
        const auto first = std::span(labels).first(to_size(shape[0]));
        const std::vector<double> weights(first.begin(), first.end());
        for (const bool weighted : {false, true}) {
          const auto f = [&](Tape& t, const std::vector<Var>& v) {
            return cross_entropy(t, v[0], Tensor::of(on_tape(t, first).data(), {shape[0]}), smoothing,
                                 weighted ? Tensor::of(on_tape(t, std::span(weights)).data(), {shape[0]}) : Tensor{});
          };
          CHECK(gradcheck(f, {shape}) < 1e-7);
        }
      }
  }

  TEST_CASE("logits of any size give a finite loss") {
    std::vector<float> x = {1e6F, -1e6F, 0, -3e4F, 3e4F, 2e4F}, dx(6);
    const std::vector<std::int32_t> labels = {1, 0};
    Stream stream;
    float loss = 0;
    ops::cross_entropy(stream, Tensor::of(&loss, {}), Tensor::of(dx.data(), {2, 3}), Tensor::of(x.data(), {2, 3}),
                       Tensor::of(labels.data(), {2}), 0);
    CHECK(loss == 2e6 + 6e4);
    CHECK(dx == std::vector<float>{1, -1, 0, -1, 1, 0});
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
