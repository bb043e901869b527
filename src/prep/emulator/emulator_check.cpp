#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "prep/page.hpp"
#include "prep/problems.hpp"

namespace lockstep::prep {

namespace {

template <class T>
void check_finite(const std::vector<T>& values, std::size_t columns, const std::vector<std::string>& names,
                  const char* dataset, Problems& problems) {
  std::vector<std::int64_t> bad(columns, 0), first(columns, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (bad[i % columns]++ == 0) first[i % columns] = static_cast<std::int64_t>(i / columns);
  }
  for (std::size_t c = 0; c < columns; ++c) {
    if (bad[c] == 0) continue;
    problems.push_back(join(dataset, " column ", c, names.empty() ? "" : " (" + names[c] + ")", ": ", bad[c],
                            " values are NaN or infinite, the first in row ", first[c]));
  }
}

}  // namespace

std::vector<std::string> check_emulator_set(const H5File& file, std::vector<std::string>& remarks) {
  Problems problems;
  EmulatorSet set = read_emulator_set(file, &problems);
  check_names(set.inputs.names, "input names", problems);
  check_names(set.outputs.names, "output names", problems);
  check_finite(set.x, set.n_in(), set.inputs.names, "/x", problems);
  check_finite(set.y, set.n_out(), set.outputs.names, "/y", problems);
  check_finite(set.lat, 1, {}, "/lat", problems);
  check_finite(set.lon, 1, {}, "/lon", problems);
  if (!set.jac.empty()) check_finite(set.jac, set.n_in() * set.n_out(), {}, "/jac", problems);

  check_sums(set.sources, set.sha256, problems);
  const char* const parts[] = {"training", "validation", "test"};
  for (int part = 0; part < 3; ++part) {
    if (set.rows_in(part) > 0) continue;
    if (part == 2) {
      remarks.push_back("there are no test rows");
    } else {
      problems.push_back(join("there are no ", parts[part], " rows"));
    }
  }
  if (!problems.empty()) return problems;

  const auto input_mean = set.input_mean, input_std = set.input_std, output_mean = set.output_mean,
             output_std = set.output_std;
  take_moments(set);
  check_moments(set.inputs.names, {input_mean, input_std}, {set.input_mean, set.input_std}, problems, remarks);
  check_moments(set.outputs.names, {output_mean, output_std}, {set.output_mean, set.output_std}, problems, remarks);
  return problems;
}

void describe_emulator_set(const H5File& file, std::ostream& out) {
  const EmulatorSet set = read_emulator_set(file);
  Page page(out, file, "emulator data set");
  page.line("rows", set.rows(), " = ", set.rows_in(0), " train + ", set.rows_in(1), " validation + ", set.rows_in(2),
            " test");
  page.line("inputs", set.n_in());
  page.line("outputs", set.n_out());
  page.line("mask mode", set.mask_mode, ", ice threshold ", set.min_ice);
  page.line("seed", set.seed);
  page.line("moments over", set.moment_rows == MomentRows::train ? "training rows" : "all rows");
  page.line("Jacobian", set.jac.empty() ? "unknown" : "true dy/dx stored");
  page.line("input source", set.input_source);
  std::string grid;
  for (std::size_t d = 0; d < set.grid_dims.size(); ++d)
    grid += join(d == 0 ? "" : " x ", set.grid_dims[d], " ", set.grid_shape[d]);
  if (!grid.empty()) page.line("grid", grid);
  page.sources(set.sources, set.sha256);
  page.attributes("/", set.notes);
  page.print("\n  %-6s  %-16s  %12s  %12s  %12s  %12s  %-10s  %s\n", "", "column", "mean", "std", "min", "max", "units",
             "CF name");
  const auto table = [&](const char* side, const ColumnNames& columns, const std::vector<float>& values,
                         const std::vector<double>& mean, const std::vector<double>& std) {
    const std::size_t m = columns.names.size();
    for (std::size_t c = 0; c < m; ++c) {
      float low = INFINITY, high = -INFINITY;
      for (std::size_t i = c; i < values.size(); i += m) {
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
      }
      page.print("  %-6s  %-16s  %12.5g  %12.5g  %12.5g  %12.5g  %-10s  %s\n", side, columns.names[c].c_str(), mean[c],
                 std[c], static_cast<double>(low), static_cast<double>(high), columns.units[c].c_str(),
                 columns.cf[c].c_str());
    }
  };
  table("input", set.inputs, set.x, set.input_mean, set.input_std);
  table("output", set.outputs, set.y, set.output_mean, set.output_std);
}

}  // namespace lockstep::prep
