#include "lockstep/ops/activation_tangent.hpp"

#include "lockstep/nn/tangent.hpp"
#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

using ops::Activation;

TEST_SUITE("ops.activation_tangent") {
  TEST_CASE("definition, gradients, bits and devices: t_kj = s_kj f'(a_j)") {
    for (const Activation f : kActivations) {
      CAPTURE(std::string(name(f)));
      const auto run = [&](Place& p, Int n, Int directions) {
        const Shape one{n}, all{directions, n};
        const Tensor a = p.in("a", one), s = p.in("s", all), dt = p.in("dt", all);
        const Tensor first = p.out("first", one), second = p.out("second", one);
        ops::activation_slopes(p.stream, first, second, a, f);
        ops::activation_tangent(p.stream, p.to("t", all), s, first);
        ops::activation_tangent(p.stream, p.to("ds", all), dt, first);
        ops::activation_tangent_backward(p.stream, p.to("da", one), dt, s, second);
      };
      const auto definition = [&](Plain& r, Int n, Int directions) {
        const auto a = r.in("a"), s = r.in("s"), first = r.out("first"), t = r.out("t");
        for (Int j = 0; j < n; ++j) {
          first(j) = exact(f, a(j)).second;
          for (Int k = 0; k < directions; ++k) t(k, j) = s(k, j) * first(j);
        }
      };
      CHECK(faults(run, definition, {{35, 3}, {192, 1}, {0, 3}},
                   {.rows = false,
                    .refused = {{{35, 1},
                                 "first",
                                 {2, 5},
                                 "activation slopes: x is (35), first (2, 5), second (35); all must be equal"}}}) ==
            "");
    }
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences; slopes vanish in the tails") {
    for (const Activation f : kActivations) {
      CAPTURE(std::string(name(f)));
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return activation_tangent(t, v[0], v[1], f); },
                      {{21, 5}, {7, 5}}) < 1e-7);
      double far[] = {-3e4, -50, 50, 3e4}, y[4], d[4], first[4], second[4];
      const auto four = [](double* values) { return Tensor::of(values, {4}); };
      Stream stream;
      ops::activation_forward(stream, four(y), four(d), four(far), f);
      ops::activation_slopes(stream, four(first), four(second), four(far), f);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(first[i] == d[i]);
        CHECK(std::abs(second[i]) < 1e-18);
      }
    }
  }

  TEST_CASE("shapes that do not fit are an error that names them") {
    Stream stream;
    const OwnedTensor s(DType::f64, {7, 5}), a(DType::f64, {2, 5});
    CHECK_THROWS_WITH_AS(
        ops::activation_tangent(stream, {s}, s, a),
        "activation tangent: s is (7, 5), its result (7, 5), the derivative (2, 5); the first two must be "
        "equal and a multiple of the third",
        Error);
  }
}
