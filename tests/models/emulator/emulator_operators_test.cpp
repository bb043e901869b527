#include "lockstep/models/emulator/emulator_operators.hpp"

#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/random_emulator.hpp"
#include "support/test.hpp"

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<EmulatorArch> shapes() {
  return {{.n_in = 7, .n_out = 1, .hidden = 13, .layers = 3},
          {.n_in = 14, .n_out = 1, .hidden = 64, .layers = 3},
          {.n_in = 9, .n_out = 4, .hidden = 17, .layers = 2, .activation = ops::Activation::tanh},
          {.n_in = 2, .n_out = 5, .hidden = 3, .layers = 1, .activation = ops::Activation::silu},
          {.n_in = 40, .n_out = 40, .hidden = 16, .layers = 2, .activation = ops::Activation::sigmoid},
          {.n_in = 10,
           .n_out = 5,
           .hidden = 12,
           .layers = 2,
           .activation = ops::Activation::elu,
           .conv_channels = 3,
           .conv_kernel = 5},
          {.n_in = 3,
           .n_out = 6,
           .hidden = 9,
           .layers = 2,
           .activation = ops::Activation::gelu,
           .conv_channels = 2,
           .conv_kernel = 7},
          {.n_in = 1, .n_out = 1, .hidden = 1, .layers = 1, .activation = ops::Activation::leaky_relu}};
}

template <class S>
std::vector<S> as(const std::vector<double>& values) {
  return std::vector<S>(values.begin(), values.end());
}
template <class S>
StateView<const S> rows(const std::vector<S>& v, std::int64_t columns) {
  return {v.data(), columns, 1};
}
template <class S>
StateView<S> rows(std::vector<S>& v, std::int64_t columns) {
  return {v.data(), columns, 1};
}
template <class S>
double dot(const std::vector<S>& a, const std::vector<S>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// The network's equations, one node at a time.
std::vector<double> plain_predict(const Emulator& e, const std::vector<double>& x) {
  const EmulatorArch& arch = e.arch();
  const auto phi = [&](double a) { return exact(arch.activation, a).first; };
  std::vector<double> out;
  for (std::size_t node = 0; node < x.size() / to_size(arch.n_in); ++node) {
    std::vector<double> h;
    for (std::int64_t i = 0; i < arch.n_in; ++i) {
      const auto u = to_size(i);
      h.push_back((x[node * to_size(arch.n_in) + u] - e.moments().input_mean[u]) / e.moments().input_std[u]);
    }
    if (arch.conv_channels > 0) {
      std::vector<double> g;
      for (std::int64_t c = 0; c < arch.conv_channels; ++c)
        for (std::int64_t i = 0; i < arch.n_in; ++i) {
          double a = e.conv_bias().value.data<double>()[c];
          for (std::int64_t j = 0; j < arch.conv_kernel; ++j) {
            const std::int64_t at = i + j - arch.conv_kernel / 2;
            if (at >= 0 && at < arch.n_in)
              a += e.conv_weight().value.data<double>()[c * arch.conv_kernel + j] * h[to_size(at)];
          }
          g.push_back(phi(a));
        }
      h = g;
    }
    for (std::int64_t k = 0; k <= arch.layers; ++k) {
      std::vector<double> g;
      const Tensor w = e.weight(k).value, b = e.bias(k).value;
      for (std::int64_t o = 0; o < w.shape()[0]; ++o) {
        double a = b.data<double>()[o];
        for (std::size_t i = 0; i < h.size(); ++i) a += w.data<double>()[to_size(o) * h.size() + i] * h[i];
        g.push_back(k == arch.layers ? a : phi(a));
      }
      h = g;
    }
    for (std::size_t o = 0; o < h.size(); ++o)
      out.push_back(h[o] * e.moments().output_std[o] + e.moments().output_mean[o]);
  }
  return out;
}

template <class T, class S>
struct Case {
  Emulator emulator;
  std::int64_t n, in, out;
  std::vector<S> x, dx, dy;
  EmulatorOperators<T> op;
  explicit Case(const EmulatorArch& arch, std::int64_t nodes = 131, const OperatorOptions& options = {})
      : emulator(random_emulator(arch)), n(nodes), in(arch.n_in), out(arch.n_out), op(emulator, options) {
    x = as<S>(random_states(emulator, n));
    dx = as<S>(random_values(n * in, 3));
    dy = as<S>(random_values(n * out, 4));
    for (std::size_t k = 0; k < dx.size(); ++k) dx[k] *= static_cast<S>(emulator.moments().input_std[k % to_size(in)]);
    for (std::size_t k = 0; k < dy.size(); ++k)
      dy[k] /= static_cast<S>(emulator.moments().output_std[k % to_size(out)]);
  }
  std::vector<S> predict(const std::vector<S>& states) const {
    std::vector<S> y(to_size(n * out));
    op.template predict<S>(n, rows(states, in), rows(y, out));
    return y;
  }
  std::vector<S> jacobian(JacobianUnits units = JacobianUnits::physical, const NodeSelection<S>& select = {}) const {
    std::vector<S> j(to_size(n * out * in));
    op.template jacobian<S>(n, rows(x, in), select, units, j.data());
    return j;
  }
  std::vector<S> tangent(const NodeSelection<S>& select = {}) const {
    std::vector<S> y(to_size(n * out));
    op.template tangent<S>(n, rows(x, in), select, rows(dx, in), rows(y, out));
    return y;
  }
  std::vector<S> adjoint(const NodeSelection<S>& select = {}) const {
    std::vector<S> g(to_size(n * in));
    op.template adjoint<S>(n, rows(x, in), select, rows(dy, out), rows(g, in));
    return g;
  }
};

}  // namespace

TEST_SUITE("models.emulator_operators") {
  EVERY_ISA_TEST_CASE("predictions agree with the network's equations, on every instruction set") {
    for (const EmulatorArch& arch : shapes()) {
      CAPTURE(arch.n_in);
      CAPTURE(name(arch.activation));
      const Case<double, double> exact(arch);
      const std::vector<double> plain = plain_predict(exact.emulator, exact.x);
      CHECK(apart(exact.predict(exact.x), plain) < 1e-13);
      const Case<float, double> mixed(arch);
      CHECK(apart(mixed.predict(mixed.x), plain) < 2e-6);
      const Case<float, float> single(arch);
      CHECK(apart(single.predict(single.x), plain) < 5e-6);  // the states themselves are rounded to float
      const Case<double, float> other(arch);
      CHECK(apart(other.predict(other.x), plain) < 5e-6);
    }
  }

  // dy is K dx in normalised units, so that the product is a sum of squares without cancellation.
  TEST_CASE("<K dx, dy> = <dx, K^T dy>") {
    const auto gap = []<class T, class S>(Case<T, S> c) {
      const std::vector<S> k = c.tangent();
      for (std::size_t i = 0; i < k.size(); ++i) {
        const double std = c.emulator.moments().output_std[i % to_size(c.out)];
        c.dy[i] = static_cast<S>(static_cast<double>(k[i]) / (std * std));
      }
      const double left = dot(k, c.dy), right = dot(c.dx, c.adjoint());
      CHECK(left > 0);
      return std::abs(left - right) / std::max(std::abs(left), std::abs(right));
    };
    for_every_isa([&] {
      for (const EmulatorArch& arch : shapes()) {
        CAPTURE(arch.n_in);
        CAPTURE(name(arch.activation));
        CHECK(gap(Case<double, double>(arch)) <= 1e-13);
        CHECK(gap(Case<float, float>(arch)) <= 1e-6);
        CHECK(gap(Case<float, double>(arch)) <= 1e-6);
      }
    });
  }

  TEST_CASE("the tangent's remainder falls fourfold when the step halves") {
    for (const EmulatorArch& arch : shapes()) {
      if (arch.activation == ops::Activation::leaky_relu || arch.activation == ops::Activation::elu)
        continue;  // not twice differentiable at 0
      CAPTURE(arch.n_in);
      const Case<double, double> c(arch);
      const std::vector<double> y = c.predict(c.x), k = c.tangent();
      const auto remainder = [&](double eps) {
        std::vector<double> moved = c.x;
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += eps * c.dx[i];
        const std::vector<double> m = c.predict(moved);
        double sum = 0;
        for (std::size_t i = 0; i < m.size(); ++i) sum += std::pow(m[i] - y[i] - eps * k[i], 2);
        return std::sqrt(sum);
      };
      for (const double eps : {1e-2, 5e-3, 2.5e-3, 1.25e-3})
        CHECK(remainder(eps) / remainder(eps / 2) == Approx(4).epsilon(0.05));
    }
  }

  EVERY_ISA_TEST_CASE("the Jacobian times dx is the tangent, and row o is the adjoint of unit vector o") {
    for (const EmulatorArch& arch : shapes()) {
      CAPTURE(arch.n_in);
      CAPTURE(name(arch.activation));
      Case<double, double> c(arch);
      const std::vector<double> j = c.jacobian();
      std::vector<double> product(to_size(c.n * c.out), 0);
      for (std::int64_t r = 0; r < c.n * c.out; ++r)
        for (std::int64_t i = 0; i < c.in; ++i)
          product[to_size(r)] += j[to_size(r * c.in + i)] * c.dx[to_size(r / c.out * c.in + i)];
      CHECK(apart(c.tangent(), product) < 1e-13);
      for (std::int64_t o = 0; o < c.out; ++o) {
        for (std::size_t k = 0; k < c.dy.size(); ++k) c.dy[k] = static_cast<std::int64_t>(k) % c.out == o ? 1 : 0;
        const std::vector<double> row = c.adjoint();
        std::vector<double> expected;
        for (std::int64_t node = 0; node < c.n; ++node)
          for (std::int64_t i = 0; i < c.in; ++i) expected.push_back(j[to_size((node * c.out + o) * c.in + i)]);
        CHECK(apart(row, expected) < 1e-13);
      }
      const std::vector<double> normalised = c.jacobian(JacobianUnits::normalised);
      std::vector<double> scaled = normalised;
      for (std::size_t k = 0; k < scaled.size(); ++k) {
        const auto i = k % to_size(c.in), o = k / to_size(c.in) % to_size(c.out);
        scaled[k] *= c.emulator.moments().output_std[o] / c.emulator.moments().input_std[i];
      }
      CHECK(apart(j, scaled) < 1e-14);
      CHECK(apart(Case<float, double>(arch).jacobian(), j) < 5e-6);
    }
  }

  EVERY_ISA_TEST_CASE("a node's bits depend neither on other nodes nor on the number of threads") {
    const EmulatorArch arch{.n_in = 9, .n_out = 4, .hidden = 17, .layers = 2};
    constexpr std::int64_t kMany = 8000;  // so many that threads share them
    const Case<float, float> all(arch, kMany), threaded(arch, kMany, {.threads = 3});
    const std::vector<float> y = all.predict(all.x), j = all.jacobian(), a = all.adjoint(), t = all.tangent();
    CHECK(threaded.predict(threaded.x) == y);
    CHECK(threaded.jacobian() == j);
    for (const std::int64_t node : {0, 1, 47, 48, 131, 4000, 7967, 7997, 7999}) {
      float one[4], row[36];
      all.op.predict<float>(1, StateView<const float>{all.x.data() + node * 9, 9, 1}, StateView<float>{one, 4, 1});
      all.op.jacobian<float>(1, StateView<const float>{all.x.data() + node * 9, 9, 1}, {}, JacobianUnits::physical,
                             row);
      CHECK(std::equal(one, one + 4, y.begin() + node * 4));
      CHECK(std::equal(row, row + 36, j.begin() + node * 36));
    }
    CHECK(threaded.adjoint() == a);
    CHECK(threaded.tangent() == t);
  }

  TEST_CASE("leading dimensions and variables-first layouts give the same bits and change no other memory") {
    const EmulatorArch arch{.n_in = 5, .n_out = 2, .hidden = 8, .layers = 2};
    const Case<float, float> c(arch, 60);
    const std::vector<float> y = c.predict(c.x), t = c.tangent(), a = c.adjoint();
    for (const bool variables_first : {false, true}) {
      CAPTURE(variables_first);
      const std::int64_t ld = variables_first ? 64 : 8;
      const auto view = [&](std::vector<float>& v, std::int64_t columns) {
        v.assign(to_size(variables_first ? ld * columns : ld * 60), -77.0f);
        return variables_first ? StateView<float>{v.data(), 1, ld} : StateView<float>{v.data(), ld, 1};
      };
      const auto copy = [&](const std::vector<float>& from, std::int64_t columns, std::vector<float>& v) {
        const StateView<float> to = view(v, columns);
        for (std::int64_t node = 0; node < 60; ++node)
          for (std::int64_t i = 0; i < columns; ++i) to.at(node, i) = from[to_size(node * columns + i)];
        return to;
      };
      const auto check = [&](const StateView<float>& to, const std::vector<float>& v,
                             const std::vector<float>& expected, std::int64_t columns) {
        bool equal = true;
        for (std::int64_t node = 0; node < 60; ++node)
          for (std::int64_t i = 0; i < columns; ++i) equal &= to.at(node, i) == expected[to_size(node * columns + i)];
        CHECK(equal);
        CHECK(std::count(v.begin(), v.end(), -77.0f) == std::ssize(v) - 60 * columns);
      };
      std::vector<float> vx, vdx, vdy, out;
      const StateView<const float> x = copy(c.x, 5, vx), dx = copy(c.dx, 5, vdx), dy = copy(c.dy, 2, vdy);
      StateView<float> to = view(out, 2);
      c.op.predict<float>(60, x, to);
      check(to, out, y, 2);
      to = view(out, 2);
      c.op.tangent<float>(60, x, {}, dx, to);
      check(to, out, t, 2);
      to = view(out, 5);
      c.op.adjoint<float>(60, x, {}, dy, to);
      check(to, out, a, 5);
    }
  }

  EVERY_ISA_TEST_CASE("a linearisation agrees with tangent and adjoint, whether it stores K or the derivatives") {
    for (const EmulatorArch& arch : shapes()) {
      CAPTURE(arch.n_in);
      const Case<double, double> c(arch);
      std::vector<double> mask(to_size(c.n), 0.5);
      mask[3] = 2;
      const Case<double, double> masked(arch, c.n, {.mask_min = 0, .mask_max = 1});
      const NodeSelection<double> select{.mask = mask.data()};
      const auto lin = masked.op.linearize<double>(c.n, rows(c.x, c.in), select);
      CHECK(lin.nodes() == c.n);
      CHECK(lin.holds_jacobian() == (arch.n_in * arch.n_out <= 2 * arch.layers * arch.hidden));
      std::vector<double> y(to_size(c.n * c.out), 5), g(to_size(c.n * c.in), 7);
      lin.tangent<double>(rows(c.dx, c.in), rows(y, c.out));
      lin.adjoint<double>(rows(c.dy, c.out), rows(g, c.in));
      CHECK(apart(y, masked.tangent(select)) < 1e-13);
      CHECK(apart(g, masked.adjoint(select)) < 1e-13);
      CHECK(y[to_size(3 * c.out)] == 0);
      std::vector<double> twice = y;
      lin.tangent<double>(rows(c.dx, c.in), rows(twice, c.out), StoreMode::add);
      for (double& value : twice) value /= 2;
      CHECK(apart(twice, y) < 1e-15);
    }
  }

  TEST_CASE("background-only inputs have no sensitivity, and the others are unchanged") {
    const EmulatorArch arch{.n_in = 5, .n_out = 3, .hidden = 8, .layers = 2};
    Case<double, double> all(arch), some(arch, 131, {.active_inputs = {1, 0, 1, 0, 1}});
    std::vector<double> expected = all.jacobian();
    for (std::size_t k = 0; k < expected.size(); ++k)
      if (k % 5 == 1 || k % 5 == 3) expected[k] = 0;
    CHECK(some.jacobian() == expected);
    for (std::size_t k = 0; k < some.dx.size(); ++k)
      if (k % 5 == 1 || k % 5 == 3) some.dx[k] = kNaN;  // excluded values have no effect
    for (std::size_t k = 0; k < all.dx.size(); ++k)
      if (k % 5 == 1 || k % 5 == 3) all.dx[k] = 0;
    CHECK(apart(some.tangent(), all.tangent()) < 1e-14);
    const std::vector<double> g = some.adjoint(), full = all.adjoint();
    CHECK(g[1] == 0);
    CHECK(g[3] == 0);
    CHECK(g[0] == full[0]);
    CHECK_THROWS_AS(EmulatorOperators<double>(all.emulator, {.active_inputs = {1, 0}}), Error);
  }

  TEST_CASE("the mask includes its ends; outside it, off the poles and at non-finite nodes the Jacobian is 0") {
    const EmulatorArch arch{.n_in = 3, .n_out = 2, .hidden = 8, .layers = 2};
    Case<double, double> c(arch, 6, {.mask_min = 0.1, .mask_max = 0.9, .min_abs_latitude = 40});
    const std::vector<double> mask = {0.1, 0.9, 0.0999, 0.9001, kNaN, 0.5}, latitude = {-40, 40, 90, 90, 90, 39.9};
    const std::vector<double> j = c.jacobian(JacobianUnits::physical, {mask.data(), latitude.data()}),
                              free = c.jacobian();
    for (std::size_t node = 0; node < 6; ++node)
      for (std::size_t k = 0; k < 6; ++k) CHECK(j[node * 6 + k] == (node < 2 ? free[node * 6 + k] : 0));
    for (const double bad : {kNaN, kInfinity, -kInfinity}) {
      c.x[7] = bad;
      const std::vector<double> with_bad = c.jacobian(), tangent = c.tangent(), adjoint = c.adjoint();
      for (std::size_t k = 0; k < with_bad.size(); ++k) {
        CHECK(std::isfinite(with_bad[k]));
        if (k / 6 != 2) CHECK(with_bad[k] == free[k]);
      }
      for (const double value : tangent) CHECK(std::isfinite(value));
      for (const double value : adjoint) CHECK(std::isfinite(value));
    }
  }

  TEST_CASE("weights that decayed towards subnormal numbers count as zero") {
    Emulator emulator = random_emulator({.n_in = 3, .n_out = 2, .hidden = 8, .layers = 2}, DType::f32);
    float* weights = emulator.weight(0).value.data<float>();
    for (std::int64_t h = 0; h < 8; ++h) weights[3 * h] = 1e-33f;  // of input 0
    const std::vector<float> x = as<float>(random_states(emulator, 5));
    std::vector<float> j(5 * 2 * 3);
    EmulatorOperators<float>(emulator).jacobian<float>(5, rows(x, 3), {}, JacobianUnits::normalised, j.data());
    for (std::size_t k = 0; k < j.size(); ++k) CHECK((j[k] == 0) == (k % 3 == 0));
  }

  EVERY_ISA_TEST_CASE("a NaN input gives a NaN prediction: missing values stay visible") {
    for (const ops::Activation activation : kSlopes) {
      CAPTURE(name(activation));
      const EmulatorArch arch{.n_in = 3, .n_out = 2, .hidden = 8, .layers = 2, .activation = activation};
      Case<float, float> c(arch, 5);
      c.x[4] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> y = c.predict(c.x);
      for (std::size_t k = 0; k < y.size(); ++k) CHECK(std::isnan(y[k]) == (k / 2 == 1));
    }
  }

  TEST_CASE("a caller's workspace may have any alignment, and zero nodes are valid") {
    const EmulatorArch arch{.n_in = 5, .n_out = 2, .hidden = 8, .layers = 2};
    constexpr std::int64_t kMany = 40000;  // so many that threads share them
    const Case<float, float> c(arch, kMany, {.threads = 2});
    const std::size_t size = c.op.workspace_bytes(OperatorCall::predict);
    std::vector<std::byte> memory(size + 17, std::byte{0x5A});
    std::vector<float> y(2 * kMany), j(10 * kMany);
    c.op.predict<float>(kMany, rows(c.x, 5), rows(y, 2), memory.data() + 1);
    CHECK(y == c.predict(c.x));
    c.op.jacobian<float>(kMany, rows(c.x, 5), {}, JacobianUnits::physical, j.data(), memory.data() + 1);
    CHECK(j == c.jacobian());
    CHECK(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(size) + 1, memory.end(),
                      [](std::byte b) { return b == std::byte{0x5A}; }));
    c.op.predict<float>(0, StateView<const float>{}, StateView<float>{});
    CHECK(c.op.linearize<float>(0, StateView<const float>{}, {}).nodes() == 0);
  }
}
