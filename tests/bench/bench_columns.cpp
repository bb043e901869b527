// bench_columns: an emulator called with one column at a time, as forecast models do, and with many at once, beside a
// plain loop over one column in double precision. Prints microseconds per column and how many times faster than the
// loop it is: medians, one thread, one run.
#include <cmath>
#include <cstdio>

#include "bench/timing.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "support/random_emulator.hpp"

using namespace lockstep;

namespace {

/// y (n_out) for one normalised state.
void plain_loop(const Emulator& network, std::vector<double> h, std::vector<double>& y) {
  const EmulatorArch& arch = network.arch();
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    const Param& weight = network.weight(k);
    const std::int64_t out = weight.shape[0], in = weight.shape[1];
    const double *w = weight.value.data<double>(), *b = network.bias(k).value.data<double>();
    y.assign(static_cast<std::size_t>(out), 0);
    for (std::int64_t o = 0; o < out; ++o) {
      double a = b[o];
      for (std::int64_t i = 0; i < in; ++i) a += w[o * in + i] * h[static_cast<std::size_t>(i)];
      y[static_cast<std::size_t>(o)] = k < arch.layers ? 0.5 * a * (1 + std::erf(a * std::sqrt(0.5))) : a;
    }
    h = y;
  }
}

template <class T>
void measure(const Emulator& network, double plain) {
  const EmulatorOperators<T> operators(network, {});
  const std::int64_t in = network.arch().n_in, out = network.arch().n_out;
  for (const std::int64_t n : {1, 2, 4, 6, 8, 24, 1000}) {
    const auto states = test::random_states(network, n);
    const std::vector<T> x(states.begin(), states.end());
    std::vector<T> y(static_cast<std::size_t>(n * out)), j(static_cast<std::size_t>(n * out * in));
    std::vector<char> workspace(operators.workspace_bytes(OperatorCall::jacobian));
    const StateView<const T> states_view{x.data(), in, 1};
    const auto each = [&](const auto& call) { return bench::time_of(Stream(), 0.2, call) / static_cast<double>(n); };
    const double predict = each([&] {
      operators.template predict<T>(n, states_view, {y.data(), out, 1}, workspace.data());
    });
    const double jacobian = each([&] {
      operators.template jacobian<T>(n, states_view, {}, JacobianUnits::physical, j.data(), workspace.data());
    });
    std::printf("%s %6lld   %8.3f %7.1f   %8.3f %7.1f\n", sizeof(T) == 4 ? "f32" : "f64", static_cast<long long>(n),
                predict * 1e6, plain / predict, jacobian * 1e6, plain / jacobian);
  }
}

}  // namespace

int main() {
  const Emulator network = test::random_emulator({.n_in = 14, .n_out = 1, .hidden = 64, .layers = 3});
  const auto x = test::random_values(14, 1);
  std::vector<double> y;
  const double plain = bench::time_of(Stream(), 0.2, [&] { plain_loop(network, x, y); });
  std::printf("network 14-64-64-64-1, gelu; the plain loop takes %.3f us\n", plain * 1e6);
  std::printf("     columns  predict: us   times   Jacobian: us  times\n");
  measure<float>(network, plain);
  measure<double>(network, plain);
}
