#include "lockstep/ops/rmsnorm.hpp"

#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/norm.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
constexpr double kEps = 1e-5;
}

TEST_SUITE("ops.rmsnorm") {
  TEST_CASE("definition, gradients, bits and devices, with a sum of two and of three arrays") {
    for (const bool three : {false, true}) {
      const auto run = [&](Place& p, Int rows, Int c) {
        const Shape shape{rows, c};
        const Tensor x = p.in("x", shape), a = p.in("a", shape), b = three ? p.in("b", shape) : Tensor{};
        const Tensor y = p.out("y", shape), rstd = p.real_out("rstd", {rows});
        const Tensor in_place = p.over("y again, in place", x), over = p.over("over dy", p.in("dy", shape));
        ops::rmsnorm_forward(p.stream, y, rstd, x, kEps);
        ops::rmsnorm_forward(p.stream, p.out("y again", shape), {}, x, kEps, {p.out("sum", shape), a, b});
        ops::add(p.stream, p.out("sum again", shape), y, a, b);
        ops::rmsnorm_forward(p.stream, in_place, {}, in_place, kEps);
        ops::rmsnorm_backward(p.stream, p.to("dx", shape), p.in("dy", shape), y, rstd);
        ops::rmsnorm_backward(p.stream, {over, false}, over, y, rstd);
      };
      const auto definition = [&](Plain& r, Int rows, Int c) {
        const auto x = r.in("x"), a = r.in("a"), b = r.in("b");
        const auto y = r.out("y"), rstd = r.out("rstd"), sum = r.out("sum");
        for (Int m = 0; m < rows; ++m) {
          double squares = 0;
          for (Int i = 0; i < c; ++i) squares += x(m, i) * x(m, i);
          rstd(m) = 1 / std::sqrt(squares / static_cast<double>(c) + kEps);
          for (Int i = 0; i < c; ++i) {
            y(m, i) = x(m, i) * rstd(m);
            sum(m, i) = y(m, i) + a(m, i) + (three ? b(m, i) : 0);
          }
        }
      };
      // On a GPU: rows in registers, with wide loads or not, and rows too long for registers.
      CHECK(faults(run, definition, {{7, 20}, {6, 33}, {9, 100}, {2, 512}, {0, 4}},
                   {.refused = {{{2, 3}, "y", {3, 2}, "rmsnorm: x is (2, 3), so y must be too, not (3, 2)"},
                                {{2, 3},
                                 "a",
                                 {3, 2},
                                 join("rmsnorm: x is (2, 3), so a sum and what it adds must be too, not (2, 3), (3, 2) "
                                      "and ",
                                      three ? "(2, 3)" : "()")}},
                    .cpu_sizes = {{1, 1}},
                    .gpu_sizes = {{3, 1024}, {2, 1023}, {2, 1200}}}) == "");
    }
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences, also through a sum") {
    for (const Shape& shape : {Shape{7, 5}, Shape{3, 2, 17}}) {
      CHECK(gradcheck([](Tape& t, const std::vector<Var>& v) { return rmsnorm(t, v[0], kEps).y; }, {shape}) < 1e-7);
      const auto used_twice = [](Tape& t, const std::vector<Var>& v) {
        const Normed n = rmsnorm(t, v[0], kEps, {.a = v[1], .b = v[2]});
        return add(t, n.y, n.sum);
      };
      CHECK(gradcheck(used_twice, {shape, shape, shape}) < 1e-7);
      const auto sum_alone = [](Tape& t, const std::vector<Var>& v) { return rmsnorm(t, v[0], kEps, {.a = v[1]}).sum; };
      CHECK(gradcheck(sum_alone, {shape, shape}) < 1e-7);
    }
  }

  EVERY_ISA_TEST_CASE("rows scaled by 1e10 do not overflow") {
    const OwnedTensor x = random_tensor(DType::f32, {1, 37}, "x");
    for (float& v : x->span<float>()) v *= 1e10f;
    Stream stream;
    ops::rmsnorm_forward(stream, x, {}, x, kEps);
    CHECK(std::isfinite(x->data<float>()[0]));
  }
}
