#include "lockstep/ops/activation_tangent.hpp"

#include "lockstep/nn/tangent.hpp"
#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

using ops::Activation;

TEST_SUITE("ops.activation_tangent") {
  TEST_CASE("directions are multiplied by the slope; gradients use the second derivative, also in the tails") {
    for_every_isa([&] {
      for (const Activation f : kActivations) {
        CAPTURE(std::string(ops::name(f)));
        for (const auto& [s, a] :
             {std::pair{Shape{21, 5}, Shape{7, 5}}, {Shape{64, 3}, Shape{64, 3}}, {Shape{0, 3}, Shape{0, 3}}})
          CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return activation_tangent(t, v[0], v[1], f); },
                          {s, a}) < 1e-7);
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
    });
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
