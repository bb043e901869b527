#include "lockstep/models/emulator/emulator_operators.hpp"
#include "support/device_array.hpp"
#include "support/devices.hpp"
#include "support/random_emulator.hpp"
#include "support/test.hpp"

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

template <class S>
std::vector<S> as(const std::vector<double>& values) {
  return std::vector<S>(values.begin(), values.end());
}

/// Predictions and Jacobians of some states, by the CPU or a GPU.
template <class S>
struct Results {
  std::vector<S> y, rows, physical;
};
template <class T, class S>
Results<S> on_cpu(const EmulatorOperators<T>& operators, const std::vector<S>& x, const std::vector<S>& mask) {
  const std::int64_t in = operators.arch().n_in, out = operators.arch().n_out, n = std::ssize(x) / in;
  Results<S> r = {std::vector<S>(to_size(n * out)), std::vector<S>(to_size(n * out * in)),
                  std::vector<S>(to_size(n * out * in))};
  const StateView<const S> view = {x.data(), in, 1};
  operators.template predict<S>(n, view, {r.y.data(), out, 1});
  const NodeSelection<S> select = {.mask = mask.empty() ? nullptr : mask.data()};
  operators.template jacobian<S>(n, view, select, JacobianUnits::normalised, r.rows.data());
  operators.template jacobian<S>(n, view, select, JacobianUnits::physical, r.physical.data());
  return r;
}
template <class T, class S>
Results<S> on_gpu(const EmulatorOperators<T>& operators, const std::vector<S>& x, const std::vector<S>& mask) {
  const std::int64_t in = operators.arch().n_in, out = operators.arch().n_out, n = std::ssize(x) / in;
  const ops::FeedForwardStates<T> there = operators.on_gpu(kGpu);
  const Stream stream(kGpu);
  const test::DeviceArray<S> states(x), masks(mask.empty() ? std::vector<S>(1) : mask);
  const test::DeviceArray<S> y(to_size(n * out)), rows(to_size(n * out * in)), physical(to_size(n * out * in));
  const StateView<const S> view = {states.data(), in, 1};
  there.template predict<S>(stream, n, view, {y.data(), out, 1});
  const ops::StatesMask<S> select = {mask.empty() ? nullptr : masks.data(), operators.options().mask_min,
                                     operators.options().mask_max};
  there.template jacobian<S>(stream, n, view, select, static_cast<int>(JacobianUnits::normalised), rows.data());
  there.template jacobian<S>(stream, n, view, select, static_cast<int>(JacobianUnits::physical), physical.data());
  return {y.read(), rows.read(), physical.read()};
}

/// Sizes around those of a warp's and a block's nodes, networks with more and fewer outputs than inputs.
struct Case {
  EmulatorArch arch;
  std::int64_t n;
};
std::vector<Case> cases() {
  return {{{.n_in = 14, .n_out = 1, .hidden = 64, .layers = 3}, 130},
          {{.n_in = 7, .n_out = 3, .hidden = 13, .layers = 2, .activation = ops::Activation::tanh}, 63},
          {{.n_in = 2, .n_out = 5, .hidden = 3, .layers = 1, .activation = ops::Activation::silu}, 65},
          {{.n_in = 9, .n_out = 20, .hidden = 17, .layers = 3, .activation = ops::Activation::elu}, 64},
          {{.n_in = 10, .n_out = 5, .hidden = 12, .layers = 2, .conv_channels = 3, .conv_kernel = 5}, 17},
          {{.n_in = 3, .n_out = 6, .hidden = 9, .layers = 2, .conv_channels = 2, .conv_kernel = 7}, 5},
          {{.n_in = 1, .n_out = 1, .hidden = 1, .layers = 1, .activation = ops::Activation::leaky_relu}, 1}};
}

template <class T, class S>
void check_agreement(double tolerance) {
  for (const auto& [arch, n] : cases()) {
    CAPTURE(arch.n_in);
    const Emulator emulator = test::random_emulator(arch);
    OperatorOptions options = {.mask_min = -0.5, .mask_max = 1};
    if (arch.n_in > 1) {
      options.active_inputs.assign(to_size(arch.n_in), 1);
      options.active_inputs[1] = 0;
    }
    const EmulatorOperators<T> operators(emulator, options);
    std::vector<S> x = as<S>(test::random_states(emulator, n));
    if (n > 10) x[to_size(3 * arch.n_in)] = std::numeric_limits<S>::quiet_NaN();
    if (n > 10) x[to_size(7 * arch.n_in)] = std::numeric_limits<S>::infinity();
    const std::vector<S> mask = as<S>(test::random_values(n, 9));
    const Results<S> here = on_cpu(operators, x, mask), there = on_gpu(operators, x, mask);
    CHECK(apart(there.y, here.y) < tolerance);
    CHECK(apart(there.rows, here.rows) < tolerance);
    CHECK(apart(there.physical, here.physical) < tolerance);
    const auto zeros = [](const std::vector<S>& values) { return std::ranges::count(values, S{0}); };
    CHECK(zeros(there.rows) == zeros(here.rows));
    const test::LastFirst reversed;
    const Results<S> again = on_gpu(operators, x, mask);
    CHECK(std::ranges::equal(std::as_bytes(std::span(again.physical)), std::as_bytes(std::span(there.physical))));
  }
}

}  // namespace

TEST_SUITE("models.emulator_cuda") {
  TEST_CASE("predictions and Jacobians of a GPU agree with those of the CPU" * doctest::skip(gpu_count() == 0)) {
    SUBCASE("in double") { check_agreement<double, double>(1e-12); }
    SUBCASE("in single") { check_agreement<float, float>(5e-6); }
    SUBCASE("a single network with double states") { check_agreement<float, double>(5e-6); }
  }

  TEST_CASE("a node's results depend on that node alone, in either layout" * doctest::skip(gpu_count() == 0)) {
    const Emulator emulator = test::random_emulator({.n_in = 5, .n_out = 2, .hidden = 20, .layers = 2});
    const EmulatorOperators<double> operators(emulator);
    constexpr std::int64_t kNodes = 70;
    const std::vector<double> x = test::random_states(emulator, kNodes);
    const Results<double> all = on_gpu(operators, x, {});
    const Results<double> one = on_gpu(operators, std::vector<double>(x.end() - 5, x.end()), {});
    CHECK(std::ranges::equal(one.y, std::span(all.y).last(2)));
    CHECK(std::ranges::equal(one.physical, std::span(all.physical).last(10)));

    std::vector<double> by_variable(x.size());
    for (std::size_t j = 0; j < kNodes; ++j)
      for (std::size_t i = 0; i < 5; ++i) by_variable[i * kNodes + j] = x[j * 5 + i];
    const test::DeviceArray<double> states(by_variable), y(2 * kNodes);
    operators.on_gpu(kGpu).predict<double>(Stream(kGpu), kNodes, {states.data(), 1, kNodes}, {y.data(), 1, kNodes});
    const std::vector<double> found = y.read();
    for (std::size_t j = 0; j < kNodes; ++j)
      for (std::size_t o = 0; o < 2; ++o) CHECK(found[o * kNodes + j] == all.y[j * 2 + o]);
  }

  TEST_CASE("a network of which 64 nodes do not fit in a block" * doctest::skip(gpu_count() == 0)) {
    const Emulator emulator = test::random_emulator({.n_in = 30, .n_out = 2, .hidden = 150, .layers = 3});
    const EmulatorOperators<double> operators(emulator);
    const std::vector<double> x = test::random_states(emulator, 33);
    const Results<double> here = on_cpu(operators, x, {}), there = on_gpu(operators, x, {});
    CHECK(apart(there.y, here.y) < 1e-12);
    CHECK(apart(there.physical, here.physical) < 1e-12);
    // More outputs than the groups of a block compute at once.
    const Emulator wide = test::random_emulator({.n_in = 3, .n_out = 2, .hidden = 300, .layers = 2});
    const EmulatorOperators<double> wide_operators(wide);
    const std::vector<double> states = test::random_states(wide, 5);
    CHECK(apart(on_gpu(wide_operators, states, {}).y, on_cpu(wide_operators, states, {}).y) < 1e-12);
    const EmulatorOperators<double> large(test::random_emulator({.n_in = 4, .n_out = 1, .hidden = 600, .layers = 3}));
    CHECK_THROWS_WITH_AS((void)large.on_gpu(kGpu), doctest::Contains("do not fit 16 times"), Error);
    const EmulatorOperators<float> deep(test::random_emulator({.n_in = 4, .n_out = 1, .hidden = 4, .layers = 16}));
    CHECK_THROWS_WITH_AS((void)deep.on_gpu(kGpu), doctest::Contains("16 hidden layers, more than 15"), Error);
  }
}
