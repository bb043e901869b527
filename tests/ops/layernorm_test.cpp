#include "lockstep/ops/layernorm.hpp"

#include "lockstep/nn/norm.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.layernorm") {
  TEST_CASE("definition, gradients, bits and devices, also with the sums for the operation that made x") {
    for (const bool derived : {false, true}) {
      constexpr double kEps = 1e-3;
      const auto run = [&](Place& p, Int rows, Int c) {
        const Shape shape{rows, c};
        const Tensor x = p.in("x", shape), gamma = p.weight("gamma", {c}), beta = p.weight("beta", {c}),
                     dy = p.in("dy", shape);
        const Tensor y = p.out("y", shape), mean = p.real_out("mean", {rows}), rstd = p.real_out("rstd", {rows});
        ops::layernorm_forward(p.stream, y, mean, rstd, x, gamma, beta, kEps);
        ops::layernorm_forward(p.stream, p.out("y again", shape), {}, {}, x, gamma, beta, kEps);
        const Target dgamma = p.to_sum("dgamma", {c}), dbeta = p.to_sum("dbeta", {c});
        if (derived) {
          ops::layernorm_backward(p.stream, {p.added(p.out("dx", shape)), true}, dgamma, dbeta, dy, x, mean, rstd,
                                  gamma, p.out("derivative", shape), p.to_sum("sums", {c}));
          return;
        }
        ops::layernorm_backward(p.stream, p.to("dx", shape), dgamma, dbeta, dy, x, mean, rstd, gamma);
        ops::layernorm_backward(p.stream, {p.out("dx again", shape), false}, {}, {}, dy, x, mean, rstd, gamma);
        ops::layernorm_backward(p.stream, {p.out("dx again, summed", shape), false}, {}, {}, dy, x, mean, rstd, gamma,
                                {}, {p.sum("sums", {c}), false});
      };
      const auto definition = [&](Plain& r, Int rows, Int c) {
        const auto x = r.in("x"), gamma = r.in("gamma"), beta = r.in("beta"), dy = r.in("dy");
        const auto y = r.out("y"), mean = r.out("mean"), rstd = r.out("rstd"), dx = r.out("dx"), sums = r.out("sums");
        const auto before = r.in("dx"), slope = r.in("derivative");
        const double n = static_cast<double>(c);
        for (Int m = 0; m < rows; ++m) {
          double variance = 0;
          for (Int i = 0; i < c; ++i) mean(m) += x(m, i) / n;
          for (Int i = 0; i < c; ++i) variance += (x(m, i) - mean(m)) * (x(m, i) - mean(m)) / n;
          rstd(m) = 1 / std::sqrt(variance + kEps);
          double mean_a = 0, mean_ah = 0;
          for (Int i = 0; i < c; ++i) {
            const double h = (x(m, i) - mean(m)) * rstd(m), a = dy(m, i) * gamma(i);
            y(m, i) = h * gamma(i) + beta(i);
            mean_a += a / n;
            mean_ah += a * h / n;
          }
          for (Int i = 0; i < c; ++i) {
            const double h = (x(m, i) - mean(m)) * rstd(m);
            dx(m, i) = rstd(m) * (dy(m, i) * gamma(i) - mean_a - h * mean_ah) + (derived ? before(m, i) : 0);
            const double changed = derived ? slope(m, i) * dx(m, i) : dx(m, i);
            if (derived) r.out("derivative")(m, i) = changed;
            sums(i) += changed;
          }
        }
      };
      CHECK(
          faults(run, definition, {{7, 5}, {3, 50}, {0, 4}, {1, 33}, {33, 100}},
                 {.f32 = 2e-6,
                  .f64 = 1e-12,
                  .gpu = {.f32 = 1e-4, .f64 = 1e-11},
                  .refused = {{{2, 5}, "gamma", {4}, "layernorm: x is (2, 5), so gamma and beta must be (5), not (4)"}},
                  .cpu_sizes = {{1, 1}},
                  .gpu_sizes = {{2, 31}, {3, 96}, {2, 200}, {2, 400}, {2, 777}, {2, 1022}, {2, 1023}, {1, 1500}}}) ==
          "");
    }
  }

  TEST_CASE("a large mean costs no digits, and a constant row gives beta") {
    Stream stream;
    for_every_isa([&] {
      const OwnedTensor x = random_tensor(DType::f32, {4, 37}, "x"), gamma = random_tensor(DType::f32, {37}, "g"),
                        beta = random_tensor(DType::f32, {37}, "b"), y(DType::f32, {4, 37}), exact(DType::f64, {4, 37});
      for (float& v : x->span<float>()) v = 1e4f + v;
      for (std::int64_t c = 0; c < 37; ++c) x->data<float>()[c] = 3;
      ops::layernorm_forward(stream, y, {}, {}, x, gamma, beta, 1e-8);
      ops::layernorm_forward(stream, exact, {}, {}, converted(x, DType::f64), converted(gamma, DType::f64),
                             converted(beta, DType::f64), 1e-8);
      CHECK(difference(y->slice(1, 3), exact->slice(1, 3)) < 1e-3);  // the mean itself is rounded: 2^-24 1e4
      CHECK(same_bits(y->slice(0, 1).reshaped({37}), beta));
    });
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences") {
    for (const Shape shape : {Shape{7, 5}, Shape{0, 3}, Shape{3, 2, 19}}) {
      ParamStore params(DType::f64);
      const LayerNorm norm = add_layernorm(params, "norm", shape.columns(), 1e-5);
      params.allocate(1);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return layernorm(t, v[0], norm); }, {shape}, &params) <
            1e-7);
    }
  }
}
