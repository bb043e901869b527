#include "support/random_emulator.hpp"

#include <cmath>

namespace lockstep::test {

Emulator random_emulator(const EmulatorArch& arch, DType dtype, std::uint64_t seed) {
  Moments m;
  const Philox draw(seed, 0, "moments");
  std::uint64_t i = 0;
  const auto columns = [&](std::int64_t count, std::vector<double>& mean, std::vector<double>& std) {
    for (std::int64_t c = 0; c < count; ++c) {
      std.push_back(0.1 * std::pow(500.0, draw.uniform(i++)));
      mean.push_back(10 * draw.normal(i++));
    }
  };
  columns(arch.n_in, m.input_mean, m.input_std);
  columns(arch.n_out, m.output_mean, m.output_std);
  return Emulator(arch, m, dtype, seed, BiasInit::torch);
}

std::vector<double> random_states(const Emulator& emulator, std::int64_t n, std::uint64_t seed) {
  const std::int64_t in = emulator.arch().n_in;
  std::vector<double> x = random_values(n * in, seed);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::size_t i = k % static_cast<std::size_t>(in);
    x[k] = emulator.moments().input_mean[i] + x[k] * emulator.moments().input_std[i];
  }
  return x;
}

std::vector<double> random_values(std::int64_t n, std::uint64_t seed) {
  const Philox draw(seed, 0, "values");
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(draw.normal(static_cast<std::uint64_t>(i)));
  return values;
}

}  // namespace lockstep::test
