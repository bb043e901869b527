#include "lockstep/ops/conv1d.hpp"

#include "lockstep/nn/linear.hpp"
#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.conv1d") {
  TEST_CASE("definition, gradients, bits and devices: a sum over a padded row, channel-major") {
    for (const Activation f : {Activation::none, Activation::gelu}) {
      const auto run = [&](Place& p, Int rows, Int channels, Int kernel, Int length) {
        const Tensor x = p.in("x", {rows, length}), w = p.weight("w", {channels, 1, kernel}),
                     b = p.weight("b", {channels}), y = p.out("y", {rows, channels * length}),
                     d = p.out("derivative", y.shape()), dy = p.over("da", p.in("dy", y.shape()));
        ops::conv1d_forward(p.stream, y, d, x, w, b, f);
        ops::conv1d_forward(p.stream, p.out("y again", y.shape()), {}, x, w, b, f);
        ops::conv1d_backward(p.stream, p.to("dx", x.shape()), p.to_sum("dw", w.shape()), p.to_sum("db", b.shape()), dy,
                             d, x, w);
      };
      const auto definition = [&](Plain& r, Int rows, Int channels, Int kernel, Int length) {
        const auto x = r.in("x"), w = r.in("w"), b = r.in("b"), y = r.out("y"), d = r.out("derivative");
        for (Int m = 0; m < rows; ++m)
          for (Int c = 0; c < channels; ++c)
            for (Int i = 0; i < length; ++i) {
              double sum = b(c);
              for (Int j = 0; j < kernel; ++j)
                if (const Int k = i + j - kernel / 2; k >= 0 && k < length) sum += w(c, 0, j) * x(m, k);
              std::tie(y(m, c * length + i), d(m, c * length + i)) = exact(f, sum);
            }
      };
      CHECK(faults(
                run, definition, {{7, 3, 5, 9}, {1, 1, 1, 1}, {4, 2, 7, 3}, {40, 4, 3, 14}, {0, 2, 3, 4}, {3, 2, 3, 1}},
                {.f64 = f == Activation::none ? 1e-14 : 2e-14,
                 .gpu = {.f32 = 2e-5},
                 .refused =
                     {{{2, 1, 3, 3}, "w", {1, 1, 4}, "conv1d: weight must be (C, 1, K) with an odd K, not (1, 1, 4)"}},
                 .cpu_sizes = {{300, 3, 3, 14}},
                 .gpu_sizes = {{300, 5, 3, 11}}}) == "");
    }
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences for x, weight and bias") {
    ParamStore params(DType::f64);
    const Conv1d layer = add_conv1d(params, "conv1d", 3, 5, init::zeros(), init::zeros());
    params.allocate(1);
    for (const Activation activation : {Activation::none, Activation::gelu})
      for (const Shape& shape : {Shape{7, 9}, Shape{0, 4}})
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return conv1d(t, v[0], layer, activation); }, {shape},
                        &params) < 1e-7);
  }
}
