#include "lockstep/models/emulator/emulator.hpp"

#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "ops/activations.hpp"
#include "support/gradcheck.hpp"
#include "support/random_emulator.hpp"
#include "support/test.hpp"

namespace {

const EmulatorArch kSmall{.n_in = 6, .n_out = 3, .hidden = 10, .layers = 2};
const EmulatorArch kConv{.n_in = 10, .n_out = 5, .hidden = 12, .layers = 2, .conv_channels = 3, .conv_kernel = 5};

Moments unit_moments(std::int64_t n_in, std::int64_t n_out) {
  const auto in = to_size(n_in), out = to_size(n_out);
  return {std::vector<double>(in, 0), std::vector<double>(in, 1), std::vector<double>(out, 0),
          std::vector<double>(out, 1)};
}

}  // namespace

TEST_SUITE("models.emulator") {
  TEST_CASE("parameters have the names, shapes and count of the public code") {
    Emulator e({.n_in = 14, .n_out = 1}, unit_moments(14, 1));
    CHECK(e.params().count() == 9345);
    CHECK(e.arch().parameters() == 9345);
    CHECK(e.params().at("network.0.weight").shape == Shape{64, 14});
    CHECK(e.params().at("network.6.weight").shape == Shape{1, 64});
    CHECK(e.params().at("network.6.bias").shape == Shape{1});
    Emulator c(kConv, unit_moments(10, 5));
    CHECK(c.params().at("conv1d.weight").shape == Shape{3, 1, 5});
    CHECK(c.params().at("network.0.weight").shape == Shape{12, 30});
    CHECK(c.params().count() == c.arch().parameters());
  }

  TEST_CASE("initial weights are Xavier-normal by seed and name, biases zero or as in PyTorch") {
    const EmulatorArch arch{.n_in = 50, .n_out = 1, .hidden = 200, .layers = 2};
    Emulator e(arch, unit_moments(50, 1), DType::f64, 7), again(arch, unit_moments(50, 1), DType::f64, 7),
        other(arch, unit_moments(50, 1), DType::f64, 8);
    CHECK(same_bits(e.params().values(), again.params().values()));
    CHECK_FALSE(same_bits(e.params().values(), other.params().values()));
    double sum = 0, squares = 0;
    for (const double w : e.weight(1).value.span<double>()) {
      sum += w;
      squares += w * w;
    }
    CHECK(std::sqrt(squares / 40000) == Approx(std::sqrt(2.0 / 400)).epsilon(0.02));
    CHECK(std::abs(sum / 40000) < 0.002);
    for (const double b : e.bias(0).value.span<double>()) CHECK(b == 0);
    Emulator torch(arch, unit_moments(50, 1), DType::f64, 7, BiasInit::torch);
    CHECK(same_bits(e.weight(0).value, torch.weight(0).value));
    double largest = 0;
    for (const double b : torch.bias(1).value.span<double>()) largest = std::max(largest, std::abs(b));
    CHECK(largest <= 1 / std::sqrt(200.0));
    CHECK(largest > 0.9 / std::sqrt(200.0));
    Emulator conv(kConv, unit_moments(10, 5), DType::f64, 7);
    CHECK(conv.conv_weight().value.size() == 15);
  }

  TEST_CASE("an invalid architecture is an error that names the value") {
    CHECK_THROWS_WITH_AS(Emulator({.n_in = 3, .n_out = 1, .activation = ops::Activation::none}, unit_moments(3, 1)),
                         doctest::Contains("'none'"), Error);
    CHECK_THROWS_WITH_AS(Emulator({.n_in = 3, .n_out = 1, .layers = 0}, unit_moments(3, 1)),
                         doctest::Contains("hidden_layers 0"), Error);
    CHECK_THROWS_WITH_AS(Emulator({.n_in = 3, .n_out = 1, .conv_channels = 2, .conv_kernel = 4}, unit_moments(3, 1)),
                         doctest::Contains("4"), Error);
    Moments flat = unit_moments(3, 1);
    flat.input_std[1] = 0;
    CHECK_THROWS_WITH_AS(Emulator({.n_in = 3, .n_out = 1}, flat), doctest::Contains("input_std[1]"), Error);
  }

  TEST_CASE("gradients agree with finite differences, layer by layer") {
    for (const EmulatorArch& arch : {kSmall, kConv}) {
      Emulator e = random_emulator(arch);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return e.forward(t, v[0]); }, {{7, arch.n_in}},
                      &e.params()) < 1e-7);
    }
  }

  TEST_CASE("the operators' kernels and the tape compute the same network") {
    for (EmulatorArch arch : {kSmall, kConv})
      for (const ops::Activation activation : kSlopes)
        for (const DType dtype : {DType::f32, DType::f64})
          for (const std::int64_t rows : {1, 7, 48, 131}) {
            arch.activation = activation;
            CAPTURE(name(activation));
            CAPTURE(rows);
            CAPTURE(dtype);
            const Emulator e = random_emulator(arch, dtype);
            const OwnedTensor z = random_tensor(dtype, {rows, arch.n_in}, "z");
            OwnTape tape(dtype);
            const Var y = e.forward(tape, tape.constant(z));
            visit_float(dtype, [&]<class T>() {
              // The operators take physical values: denormalise the inputs, and normalise the outputs.
              const Moments& m = e.moments();
              std::vector<T> x(to_size(rows * arch.n_in)), physical(to_size(rows * arch.n_out));
              for (std::size_t i = 0; i < x.size(); ++i) {
                const std::size_t c = i % to_size(arch.n_in);
                x[i] = static_cast<T>(static_cast<double>(z->data<T>()[i]) * m.input_std[c] + m.input_mean[c]);
              }
              EmulatorOperators<T>(e).predict(rows, StateView<const T>{x.data(), arch.n_in},
                                              StateView<T>{physical.data(), arch.n_out});
              std::vector<T> back(physical.size());
              for (std::size_t i = 0; i < back.size(); ++i) {
                const std::size_t c = i % to_size(arch.n_out);
                back[i] = static_cast<T>((static_cast<double>(physical[i]) - m.output_mean[c]) / m.output_std[c]);
              }
              CHECK(difference(Tensor::of(back.data(), Shape{rows, arch.n_out}), y.value()) <
                    (dtype == DType::f64 ? 1e-13 : 5e-6));
            });
          }
  }

  TEST_CASE("products with the Jacobian agree with the operators, and their gradients with finite differences") {
    for (EmulatorArch arch : {kSmall, kConv})
      for (const auto activation : {ops::Activation::gelu, ops::Activation::silu,
                                    ops::Activation::tanh})  // without kinks in the slope, for the differences
        for (const JacobianSide side : {JacobianSide::inputs, JacobianSide::outputs}) {
          arch.activation = activation;
          CAPTURE(name(activation));
          Emulator e = random_emulator(arch);
          const bool tangents = side == JacobianSide::inputs;
          const std::int64_t from = tangents ? arch.n_in : arch.n_out, to = tangents ? arch.n_out : arch.n_in, rows = 7;
          const auto products = [&](Tape& t, const std::vector<Var>& v) {
            EmulatorTrace trace;
            e.forward(t, v[0], &trace);
            return e.jacobian_products(t, trace, v[1], side);
          };
          // In halves a product of five matrices and slopes keeps fewer digits than a single operation: f16 was up to
          // 2^-5 of the largest element off.
          CHECK(gradcheck(products, {{rows, arch.n_in}, {2 * rows, from}}, &e.params(), 1, Where::every_device,
                          {.bf16 = 0x1p-2, .f16 = 0x1p-4}) < 1e-7);

          const OwnedTensor z = random_tensor(DType::f64, {rows, arch.n_in}, "z"), v(DType::f64, {from * rows, from});
          for (std::int64_t k = 0; k < from; ++k)
            for (std::int64_t r = 0; r < rows; ++r) v->data<double>()[(k * rows + r) * from + k] = 1;
          OwnTape tape(DType::f64);
          const Tensor got = products(tape, {tape.constant(z), tape.constant(v)}).value();
          std::vector<double> x(to_size(rows * arch.n_in)), j(x.size() * to_size(arch.n_out));
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % to_size(arch.n_in);
            x[i] = z->data<double>()[i] * e.moments().input_std[c] + e.moments().input_mean[c];
          }
          EmulatorOperators<double>(e).jacobian<double>(rows, {x.data(), arch.n_in, 1}, {}, JacobianUnits::normalised,
                                                        j.data());
          double worst = 0;
          for (std::int64_t k = 0; k < from; ++k)
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t b = 0; b < to; ++b)
                worst = std::max(
                    worst,
                    std::abs(got.data<double>()[(k * rows + r) * to + b] -
                             j[to_size((r * arch.n_out + (tangents ? b : k)) * arch.n_in + (tangents ? k : b))]));
          CHECK(worst < 1e-11);  // elements up to 100
        }
  }

  TEST_CASE("a copy in another dtype has the rounded weights") {
    const Emulator e = random_emulator(kConv), single = e.as(DType::f32);
    CHECK(single.dtype() == DType::f32);
    CHECK(difference(single.weight(1).value, e.weight(1).value) < 1e-7);
    CHECK(difference(single.conv_weight().value, e.conv_weight().value) < 1e-7);
    CHECK(same_bits(e.as(DType::f64).params().values(), e.params().values()));
  }
}
