#include "support/emulator_file.hpp"

#include <cmath>
#include <deque>

#include "lockstep/base/philox.hpp"
#include "lockstep/io/h5.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

EmulatorContents emulator_contents(std::int64_t n, std::int64_t n_in, std::int64_t n_out, std::uint64_t seed) {
  EmulatorContents c;
  c.n = n;
  c.n_in = n_in;
  c.n_out = n_out;
  const Philox states(seed, 0, "states"), factors(seed, 0, "factors");
  const auto factor = [&](std::int64_t o, std::int64_t i) {
    return factors.normal(static_cast<std::uint64_t>(o * n_in + i));
  };
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t i = 0; i < n_in; ++i)
      c.x.push_back(static_cast<float>(states.normal(static_cast<std::uint64_t>(r * n_in + i))));
    const float* x = c.x.data() + r * n_in;
    for (std::int64_t o = 0; o < n_out; ++o) {
      double y = 0;
      for (std::int64_t i = 0; i < n_in; ++i) {
        const double t = std::tanh(static_cast<double>(x[i]));
        y += factor(o, i) * t;
        c.jacobian.push_back(factor(o, i) * (1 - t * t));
      }
      c.y.push_back(static_cast<float>(y));
    }
    c.split.push_back(r % 10 == 9 ? 2 : r % 5 == 4 ? 1 : 0);
  }
  const auto in = static_cast<std::size_t>(n_in), out = static_cast<std::size_t>(n_out);
  c.moments = {std::vector<double>(in, 0.1), std::vector<double>(in, 1.5), std::vector<double>(out, -0.2),
               std::vector<double>(out, 2.0)};
  for (std::int64_t i = 0; i < n_in; ++i) c.variables.input_names.push_back("in" + std::to_string(i));
  for (std::int64_t o = 0; o < n_out; ++o)
    c.variables.output_names.push_back(o == 0 ? "aice" : "out" + std::to_string(o));
  c.variables.input_cf.assign(in, "cf_in");
  c.variables.output_cf.assign(out, "");
  c.variables.input_units.assign(in, "K");
  c.variables.output_units.assign(out, "1");
  c.variables.input_level.assign(in, 3);
  c.variables.output_level.assign(out, 0);
  c.variables.input_source = "ocean";
  return c;
}

void write_emulator_data(const std::filesystem::path& path, const EmulatorContents& c) {
  H5File file = H5File::create(path);
  file.set_attribute("/", "format", std::string("lockstep-emulator-data"));
  file.set_attribute("/", "version", std::int64_t{1});
  file.set_attribute("/", "mask_mode", std::string("both"));
  file.set_attribute("/", "n", c.n);
  file.set_attribute("/", "n_in", c.n_in);
  file.set_attribute("/", "n_out", c.n_out);
  file.write<float>("/x", c.x, {c.n, c.n_in});
  file.write<float>("/y", c.y, {c.n, c.n_out});
  file.write<std::uint8_t>("/split", c.split, {c.n});
  if (!c.jacobian.empty()) file.write<double>("/jac", c.jacobian, {c.n, c.n_out, c.n_in});
  write_moments(file, "/moments", c.moments);
  write_variables(file, "/vars", c.variables);
  file.close();
}

EmulatorData read_data(const EmulatorContents& contents) {
  static std::deque<LocalDataMemory> memories;
  const TempDir dir;
  write_emulator_data(dir / "data.h5", contents);
  return EmulatorData::read(dir / "data.h5", memories.emplace_back());
}

}  // namespace lockstep::test
