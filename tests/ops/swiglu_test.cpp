#include "lockstep/ops/swiglu.hpp"

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/loss.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
constexpr double kEps = 1e-5;

/// y_mi = silu(g_mi) u_mi for rows x(m, k) and gate and up in the halves of w.
void gated(const Plain::Array& y, const auto& x, const Plain::Array& w, Int rows, Int width, Int k) {
  for (Int m = 0; m < rows; ++m)
    for (Int i = 0; i < width; ++i) {
      double g = 0, u = 0;
      for (Int c = 0; c < k; ++c) {
        g += x(m, c) * w(i, c);
        u += x(m, c) * w(width + i, c);
      }
      y(m, i) = g / (1 + std::exp(-g)) * u;
    }
}
}  // namespace

TEST_SUITE("ops.swiglu") {
  TEST_CASE("definition, gradients, bits and devices, whether gate and up are kept or not") {
    const auto run = [](Place& p, Int rows, Int width, Int k) {
      const Tensor x = p.in("x", {rows, k}), w = p.weight("w", {2 * width, k}), dy = p.in("dy", {rows, width});
      const Tensor both = p.out("gate_up", {rows, 2 * width});
      ops::swiglu_forward(p.stream, p.out("y", {rows, width}), both, x, w);
      ops::swiglu_forward(p.stream, p.out("y again", {rows, width}), {}, x, w);
      ops::swiglu_backward(p.stream, p.to("dx", {rows, k}), p.to_sum("dw", {2 * width, k}), dy, both, x, w);
    };
    const auto definition = [](Plain& r, Int rows, Int width, Int k) {
      gated(r.out("y"), r.in("x"), r.in("w"), rows, width, k);
    };
    CHECK(faults(run, definition, {{7, 5, 9}, {1, 1, 1}, {33, 64, 17}, {130, 29, 37}, {3, 300, 4}, {0, 3, 2}},
                 {.refused =
                      {{{2, 4, 3}, "w", {8, 4}, "swiglu: x is (2, 3), y (2, 4), so weight must be (8, 3), not (8, 4)"}},
                  .gpu_sizes = {{31, 600, 4}, {2, 20000, 3}}}) == "");
  }

  TEST_CASE("definition, gradients, bits and devices of a layer with a norm") {
    const auto run = [](Place& p, Int rows, Int width, Int k) {
      const Shape in{rows, k}, out{rows, width}, weight{2 * width, k};
      const Tensor x = p.in("x", in), w = p.weight("w", weight), dy = p.in("dy", out);
      const Tensor rstd = p.real_out("rstd", {rows}), both = p.in("gate_up", {rows, 2 * width});
      const Tensor z = p.out("z", in), dz = p.in("dz", in);
      ops::normed_swiglu_forward(p.stream, p.out("y again", out), p.out("z again", in), {}, {}, x, w, kEps);
      ops::normed_swiglu_forward(p.stream, p.out("y", out), z, rstd, both, x, w, kEps);
      ops::normed_swiglu_backward(p.stream, p.to("dx", in), p.to_sum("dw", weight), dy, dz, both, z, rstd, x, w);
      // x without gradient
      ops::normed_swiglu_forward(p.stream, p.out("y again, alone", out), z, rstd, both, x, w, kEps);
      ops::normed_swiglu_backward(p.stream, {}, p.to_sum("dw alone", weight), dy, p.in("dz", in), both, z, rstd, x, w);
    };
    const auto definition = [](Plain& r, Int rows, Int width, Int k) {
      const auto x = r.in("x"), z = r.out("z"), rstd = r.out("rstd");
      for (Int m = 0; m < rows; ++m) {
        double squares = 0;
        for (Int c = 0; c < k; ++c) squares += x(m, c) * x(m, c);
        rstd(m) = 1 / std::sqrt(squares / static_cast<double>(k) + kEps);
        for (Int c = 0; c < k; ++c) z(m, c) = x(m, c) * rstd(m);
      }
      gated(r.out("y"), z, r.in("w"), rows, width, k);
    };
    // On a GPU: whole packs or not; more columns than a block has threads; a row for more than one block.
    CHECK(faults(run, definition, {{7, 5, 9}, {1, 1, 3}, {33, 64, 24}, {0, 3, 2}},
                 {.gpu_sizes = {{5, 24, 600}, {3, 20000, 8}}}) == "");
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences, with and without a norm") {
    ParamStore params(DType::f64);
    const Param &w = params.add("w", {6, 5}, init::zeros()), &down = params.add("down", {5, 3}, init::zeros());
    params.allocate(1);
    for (const Shape& shape : {Shape{7, 5}, Shape{2, 3, 5}})
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
  }

  TEST_CASE("single precision gradients agree with double, also far from zero") {
    const auto run = [](Place& p, Int rows, Int width, Int k) {
      const Tensor x = p.in("x", {rows, k}, 40), w = p.weight("w", {2 * width, k});
      const Tensor both = p.in("gate_up", {rows, 2 * width});
      ops::swiglu_forward(p.stream, p.out("y", {rows, width}), both, x, w);
      ops::swiglu_backward(p.stream, p.to("dx", {rows, k}), {}, p.in("dy", {rows, width}), both, x, w);
    };
    CHECK(faults(run, {}, {}, {.f32_rest = 2e-6, .gradient = 0, .cpu_sizes = {{21, 19, 3}}}) == "");
  }

  TEST_CASE("more rows of a gated layer than fit in the cache are computed block by block" *
            doctest::test_suite("ops.swiglu.cuda") * doctest::skip(gpu_count() == 0)) {
    const auto run = [](Place& p, Int rows, Int width) {
      const Tensor x = p.in("x", {rows, 2}), w = p.weight("w", {2 * width, 2});
      ops::swiglu_forward(p.stream, p.out("y", {rows, width}), {}, x, w);
      ops::normed_swiglu_forward(p.stream, p.out("y of z", {rows, width}), p.out("z", {rows, 2}), {}, {}, x, w, kEps);
    };
    CHECK(faults(run, {}, {}, {.gpu = {.bf16 = 0, .f16 = 0}, .gpu_sizes = {{13, 1 << 18}}}) == "");
  }
}
