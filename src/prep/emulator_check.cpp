#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/emulator_set.hpp"

namespace lockstep::prep {

namespace {

template <class T>
void check_finite(const std::vector<T>& values, std::size_t columns, const std::vector<std::string>& names,
                  const char* dataset, std::vector<std::string>& problems) {
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

void check_names(const ColumnNames& columns, const char* side, std::vector<std::string>& problems) {
  const std::set<std::string> different(columns.names.begin(), columns.names.end());
  if (different.size() != columns.names.size() || different.contains(""))
    problems.push_back(join("the ", side, " names are not all different and non-empty"));
}

void check_moments(const std::vector<double>& stored_mean, const std::vector<double>& stored_std,
                   const std::vector<double>& mean, const std::vector<double>& std, const ColumnNames& columns,
                   std::vector<std::string>& problems, std::vector<std::string>& remarks) {
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double scale = std::max({std::abs(mean[c]), std[c], 1e-30});
    if (!(std::abs(stored_mean[c] - mean[c]) <= 1e-9 * scale) || !(std::abs(stored_std[c] - std[c]) <= 1e-9 * scale))
      problems.push_back(join("moments of ", columns.names[c], ": stored mean ", stored_mean[c], ", std ",
                              stored_std[c], "; the rows give ", mean[c], ", ", std[c]));
    if (std[c] == 1.0) remarks.push_back(join(columns.names[c], " is constant (its standard deviation counts as 1)"));
  }
}

}  // namespace

std::vector<std::string> check_emulator_set(const H5File& file, std::vector<std::string>& remarks) {
  std::vector<std::string> problems;
  EmulatorSet set = read_emulator_set(file);
  check_names(set.inputs, "input", problems);
  check_names(set.outputs, "output", problems);
  check_finite(set.x, set.n_in(), set.inputs.names, "/x", problems);
  check_finite(set.y, set.n_out(), set.outputs.names, "/y", problems);
  check_finite(set.lat, 1, {}, "/lat", problems);
  check_finite(set.lon, 1, {}, "/lon", problems);
  if (!set.jac.empty()) check_finite(set.jac, set.n_in() * set.n_out(), {}, "/jac", problems);

  const auto count_bad = [&](const auto& values, const char* what, auto good) {
    const auto bad = std::count_if(values.begin(), values.end(), [&](auto v) { return !good(v); });
    if (bad > 0) problems.push_back(join(what, ": ", bad, " of ", values.size(), " values are out of range"));
  };
  count_bad(set.split, "/split (0, 1 or 2)", [](auto v) { return v <= 2; });
  count_bad(set.lat, "/lat (-90 .. 90)", [](auto v) { return !(std::abs(v) > 90.001f); });
  count_bad(set.lon, "/lon (-360 .. 360)", [](auto v) { return !(std::abs(v) > 360.001f); });
  count_bad(set.cell, "/cell (>= 0)", [](auto v) { return v >= 0; });
  const auto files = static_cast<std::int32_t>(set.sources.size());
  count_bad(set.source, "/source (a number of 'sources')",
            [&](auto v) { return v >= 0 && (v < files || (files == 0 && v == 0)); });
  if (set.sha256.size() != set.sources.size())
    problems.push_back(join(set.sha256.size(), " sums for ", set.sources.size(), " sources"));
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

  EmulatorSet again = set;
  take_moments(again);
  check_moments(set.input_mean, set.input_std, again.input_mean, again.input_std, set.inputs, problems, remarks);
  check_moments(set.output_mean, set.output_std, again.output_mean, again.output_std, set.outputs, problems, remarks);
  return problems;
}

void describe_emulator_set(const H5File& file, std::ostream& out) {
  const EmulatorSet set = read_emulator_set(file);
  const auto line = [&](const std::string& name, const auto&... values) {
    out << "  " << name << std::string(name.size() < 14 ? 14 - name.size() : 1, ' ');
    (out << ... << values) << "\n";
  };
  out << file.path().string() << ": emulator data set, format version " << file.int_attribute("/", "version") << "\n";
  line("rows", set.rows(), " = ", set.rows_in(0), " train + ", set.rows_in(1), " validation + ", set.rows_in(2),
       " test");
  line("inputs", set.n_in());
  line("outputs", set.n_out());
  line("mask mode", set.mask_mode, ", ice threshold ", set.min_ice);
  line("seed", set.seed);
  line("moments over", set.moment_rows == MomentRows::train ? "training rows" : "all rows");
  line("Jacobian", set.jac.empty() ? "unknown" : "true dy/dx stored");
  line("input source", set.input_source);
  for (std::size_t i = 0; i < set.sources.size(); ++i)
    line(i == 0 ? "sources" : "", set.sources[i], i < set.sha256.size() ? "  sha256 " + set.sha256[i] : "");
  static const std::set<std::string> kShown = {"format", "version", "mask_mode", "min_ice", "n",          "n_in",
                                               "n_out",  "seed",    "sources",   "sha256",  "moment_rows"};
  for (const auto& attribute : file.attributes("/")) {
    if (kShown.contains(attribute)) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { out << value; }) line(attribute, value);
        },
        file.attribute("/", attribute));
  }
  out << "\n";
  char text[256];
  std::snprintf(text, sizeof text, "  %-6s  %-16s  %12s  %12s  %12s  %12s  %-10s  %s\n", "", "column", "mean", "std",
                "min", "max", "units", "CF name");
  out << text;
  const auto table = [&](const char* side, const ColumnNames& columns, const std::vector<float>& values,
                         const std::vector<double>& mean, const std::vector<double>& std) {
    const std::size_t m = columns.names.size();
    for (std::size_t c = 0; c < m; ++c) {
      float low = INFINITY, high = -INFINITY;
      for (std::size_t i = c; i < values.size(); i += m)
        low = std::min(low, values[i]), high = std::max(high, values[i]);
      std::snprintf(text, sizeof text, "  %-6s  %-16s  %12.5g  %12.5g  %12.5g  %12.5g  %-10s  %s\n", side,
                    columns.names[c].c_str(), mean[c], std[c], static_cast<double>(low), static_cast<double>(high),
                    columns.units[c].c_str(), columns.cf[c].c_str());
      out << text;
    }
  };
  table("input", set.inputs, set.x, set.input_mean, set.input_std);
  table("output", set.outputs, set.y, set.output_mean, set.output_std);
}

}  // namespace lockstep::prep
