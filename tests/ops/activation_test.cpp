#include "lockstep/ops/activation.hpp"

#include "lockstep/nn/linear.hpp"
#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

using ops::Activation;

namespace {
/// The distance in units in the last place of the reference (at least those of the smallest normal number).
template <class T>
double ulps(T value, double reference) {
  const T r = static_cast<T>(std::max(std::abs(reference), static_cast<double>(std::numeric_limits<T>::min())));
  const double ulp =
      static_cast<double>(std::nextafter(r, std::numeric_limits<T>::infinity())) - static_cast<double>(r);
  return std::abs(static_cast<double>(value) - reference) / ulp;
}

struct Worst {
  double value = 0, derivative = 0, at_value = 0, at_derivative = 0;
};
template <class T>
Worst worst_ulps(Activation activation, double low, double high, std::int64_t n) {
  OwnedTensor x(dtype_of<T>::value, {n}), y(dtype_of<T>::value, {n}), d(dtype_of<T>::value, {n});
  for (std::int64_t i = 0; i < n; ++i)
    x->data<T>()[i] = static_cast<T>(low + (high - low) * (static_cast<double>(i) + 0.37) / static_cast<double>(n));
  Stream stream;
  ops::activation_forward(stream, y, d, x, activation);
  Worst worst;
  for (std::int64_t i = 0; i < n; ++i) {
    const double at = static_cast<double>(x->data<T>()[i]);
    const auto [value, derivative] = exact(activation, at);
    const double u = ulps(y->data<T>()[i], value), v = ulps(d->data<T>()[i], derivative);
    if (u > worst.value) {
      worst.value = u;
      worst.at_value = at;
    }
    if (v > worst.derivative) {
      worst.derivative = v;
      worst.at_derivative = at;
    }
  }
  return worst;
}
}  // namespace

TEST_SUITE("ops.activation") {
  EVERY_ISA_TEST_CASE("values are within 3 ulp of the exact ones (f64: 4), also far in the tails") {
    for (const Activation activation : kActivations) {
      if (activation == Activation::gelu) continue;
      CAPTURE(std::string(name(activation)));
      for (const auto& [low, high] : {std::pair{-1e-3, 1e-3}, {-1.0, 1.0}, {-9.0, 9.0}}) {
        CAPTURE(high);
        const Worst f32 = worst_ulps<float>(activation, low, high, 20001),
                    f64 = worst_ulps<double>(activation, low, high, 20001);
        CAPTURE(f32.at_value);
        CHECK(f32.value < 3);
        CHECK(f64.value < 4);
      }
    }
  }

  TEST_CASE("the error of gelu is below one rounding of the value, or of 1 if the value is smaller") {
    const auto worst = [&]<class T>(T) {
      constexpr std::int64_t kCount = 40001;
      OwnedTensor x(dtype_of<T>::value, {kCount}), y(dtype_of<T>::value, {kCount}), d(dtype_of<T>::value, {kCount});
      for (std::int64_t i = 0; i < kCount; ++i)
        x->data<T>()[i] = static_cast<T>(-20 + 40 * (double(i) + 0.37) / kCount);
      Stream stream;
      ops::activation_forward(stream, y, d, x, Activation::gelu);
      std::pair<double, double> most;
      for (std::int64_t i = 0; i < kCount; ++i) {
        const auto [value, derivative] = exact(Activation::gelu, static_cast<double>(x->data<T>()[i]));
        const double of_value = std::abs(static_cast<double>(y->data<T>()[i]) - value) / std::max(1.0, std::abs(value));
        most.first = std::max(most.first, of_value);
        most.second = std::max(most.second, std::abs(static_cast<double>(d->data<T>()[i]) - derivative));
      }
      return most;
    };
    for_every_isa([&] {
      const auto f32 = worst(float{});
      CHECK(f32.first < 1.2e-7);  // the last place of a value from 1 to 2
      CHECK(f32.second < 3e-7);
      const auto f64 = worst(double{});
      CHECK(f64.first < 2.3e-16);
      CHECK(f64.second < 1e-15);
    });
  }

  EVERY_ISA_TEST_CASE("derivatives are exact to rounding, except where they pass through zero") {
    for (const Activation activation : kActivations) {
      CAPTURE(std::string(name(activation)));
      // gelu' and silu' change sign near -0.75 and -1.28: there the error is small relative to the largest
      // derivative, not relative to zero.
      const bool crosses = activation == Activation::gelu || activation == Activation::silu;
      const Worst inner = worst_ulps<float>(activation, crosses ? -0.5 : -9, 9, 20001);
      CAPTURE(inner.at_derivative);
      CHECK(inner.derivative < 9);
    }
  }

  TEST_CASE("extreme inputs give limits, and a NaN stays a NaN") {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    for_every_isa([&] {
      const auto value = [](Activation activation, float x) {
        std::vector<float> in(3, x), out(3), d(3);
        Stream stream;
        ops::activation_forward(stream, Tensor::of(out.data(), {3}), Tensor::of(d.data(), {3}),
                                Tensor::of(in.data(), {3}), activation);
        return std::pair(out[2], d[2]);
      };
      for (const float big : {50.f, 1e4f, 3e38f}) {
        CAPTURE(big);
        for (const Activation linear :
             {Activation::relu, Activation::elu, Activation::silu, Activation::leaky_relu, Activation::none})
          CHECK(value(linear, big) == std::pair(big, 1.f));
        CHECK(value(Activation::tanh, big).first == 1);
        CHECK(value(Activation::tanh, -big).first == -1);
        CHECK(value(Activation::sigmoid, big).first == 1);
        CHECK(std::abs(value(Activation::tanh, big).second) < 1e-30f);
        CHECK(value(Activation::gelu, big).first == big);
        CHECK(std::abs(value(Activation::gelu, big).second - 1) < 3e-7f);
        CHECK(std::abs(value(Activation::gelu, -big).first) < 2e-8f);
        CHECK(std::abs(value(Activation::gelu, -big).second) < 3e-7f);
        CHECK(value(Activation::elu, -big).first == -1);
        CHECK(std::abs(value(Activation::sigmoid, -big).first) < 1e-20f);
      }
      CHECK(value(Activation::relu, static_cast<float>(-kInf)).first == 0);
      for (const Activation activation : kActivations) {
        CAPTURE(std::string(name(activation)));
        CHECK(std::isnan(value(activation, NAN).first));
      }
      CHECK(value(Activation::relu, 0).second == 0);
      CHECK(value(Activation::leaky_relu, 0).second == 0.01f);
      CHECK(value(Activation::gelu, 0).first == 0);
      CHECK(std::abs(value(Activation::gelu, 0).second - 0.5f) < 3e-7f);
    });
  }

  TEST_CASE("definition, gradients, bits and devices") {
    for (const Activation f : kActivations) {
      CAPTURE(std::string(name(f)));
      const auto run = [&](Place& p, Int n) {
        const Tensor x = p.in("x", {n}), dy = p.in("dy", {n}), y = p.out("y", {n}), d = p.out("derivative", {n});
        ops::activation_forward(p.stream, y, d, x, f);
        const Tensor in_place = p.over("y again", x), zero = p.in("zero", {n}, 0);
        ops::activation_forward(p.stream, in_place, {}, in_place, f);
        ops::activation_forward(p.stream, p.out("y of zero", {n}), p.out("derivative at zero", {n}), zero, f);
        ops::activation_backward(p.stream, p.to("dx", {n}), dy, d);
      };
      const auto definition = [&](Plain& r, Int n) {
        const auto x = r.in("x"), y = r.out("y"), d = r.out("derivative");
        const auto y0 = r.out("y of zero"), d0 = r.out("derivative at zero");
        for (Int i = 0; i < n; ++i) {
          std::tie(y(i), d(i)) = exact(f, x(i));
          std::tie(y0(i), d0(i)) = exact(f, 0);
        }
      };
      CHECK(faults(run, definition, {{0}, {1}, {33}, {67}},
                   {.f32 = 3e-7, .f64 = 1e-15, .cpu_sizes = {{4001}}, .gpu_sizes = {{1023}}}) == "");
    }
  }

  TEST_CASE("gradient of the record agrees with finite differences") {
    for (const Activation f : kActivations) {
      CAPTURE(std::string(name(f)));
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return activation(t, v[0], f); }, {{7, 5}}) < 1e-7);
    }
  }

  TEST_CASE("an unknown name gets the list of names") {
    CHECK_THROWS_WITH_AS(
        named<Activation>("swish", "activation"),
        "activation 'swish': unknown; choose one of none, gelu, relu, tanh, sigmoid, leakyrelu, elu, silu", Error);
  }
}

TEST_SUITE("ops.activation.cuda" * doctest::skip(gpu_count() == 0)) {
  /// Values and derivatives of GELU on the GPU.
  std::pair<OwnedTensor, OwnedTensor> gelu_on_gpu(const OwnedTensor& x) {
    const Device gpu{DeviceKind::cuda, 0};
    const OwnedTensor there = on_device(x, gpu), y(x->dtype(), x->shape(), gpu), d(x->dtype(), x->shape(), gpu);
    Stream stream(gpu);
    ops::activation_forward(stream, y, d, there, Activation::gelu);
    return {on_cpu(y), on_cpu(d)};
  }

  TEST_CASE("gelu has a small relative error in f32, also far in the tails") {
    constexpr std::int64_t kCount = 60001;
    const OwnedTensor x(DType::f32, {kCount});
    for (std::int64_t i = 0; i < kCount; ++i)
      x->data<float>()[i] = static_cast<float>(-16 + 32 * (static_cast<double>(i) + 0.37) / kCount);
    const auto [y, d] = gelu_on_gpu(x);
    constexpr double kLeast = 2e-37;  // below, the exponential is subnormal
    double of_value = 0, of_derivative = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double at = x->data<float>()[i], density = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0));
      const auto [value, derivative] = exact(Activation::gelu, at);
      // The derivative is a sum whose terms cancel near -0.75.
      const double larger = std::max(std::erfc(-at / std::sqrt(2.0)) / 2, std::abs(at) * density);
      of_value = std::max(of_value, std::abs(y->data<float>()[i] - value) / std::max(kLeast, std::abs(value)));
      of_derivative = std::max(of_derivative, std::abs(d->data<float>()[i] - derivative) / std::max(kLeast, larger));
    }
    CHECK(of_value < 5e-7);
    CHECK(of_derivative < 5e-7);
  }

  TEST_CASE("gelu of huge and infinite numbers is the limit, and a NaN stays a NaN") {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const std::vector<float> at = {kInf, 3e38f, 16, 0, -0.0f, -16, -3e38f, -kInf, NAN};
    const OwnedTensor x(DType::f32, {std::ssize(at)});
    std::ranges::copy(at, x->data<float>());
    const auto [y, d] = gelu_on_gpu(x);
    const std::vector<float> values(y->data<float>(), y->data<float>() + 8),
        slopes(d->data<float>(), d->data<float>() + 8);
    CHECK(values == std::vector<float>{kInf, 3e38f, 16, 0, 0, 0, 0, 0});
    CHECK(slopes == std::vector<float>{1, 1, 1, 0.5f, 0.5f, 0, 0, 0});
    CHECK(std::isnan(y->data<float>()[8]));
    CHECK(std::isnan(d->data<float>()[8]));
  }
}
