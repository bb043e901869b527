#include "prep/emulator/synthetic.hpp"

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/emulator/columns.hpp"

namespace lockstep::prep {

Synthetic::Synthetic(Options& options, std::int64_t default_rows, Rows kind, bool default_jacobian) {
  if (kind == Rows::option) options.add("rows", &rows, default_rows, at_least(3), "number of rows");
  options.add("seed", &seed, std::uint64_t{0}, "seed of every random choice");
  options.add("val-fraction,validation-split", &validation_split, 0.1, below_one,
              "validation rows, as a fraction of all rows");
  options.add("test-fraction,test-split", &test_split, 0.1, below_one, "test rows, as a fraction of all rows");
  options.add("jacobian", &jacobian, default_jacobian, "store the true Jacobian of every row");
}

void Synthetic::reserve(EmulatorSet& set, std::int64_t n, const std::filesystem::path& output,
                        const std::string& advice) const {
  const std::size_t in = set.n_in(), out = set.n_out(), derivatives = jacobian ? in * out : 0;
  constexpr std::size_t kPosition = 2 * sizeof(float) + 2 * sizeof(std::int64_t) + sizeof(std::int32_t) + 1;
  const double row_bytes = static_cast<double>(sizeof(float) * (in + out + derivatives) + kPosition);
  const double bytes = static_cast<double>(n) * row_bytes;
  require_memory_for(bytes, join("making the data: ", n, " rows need"), advice);
  require_space(output, static_cast<std::int64_t>(bytes));
  set.x.reserve(n * in);
  set.y.reserve(n * out);
  set.jac.reserve(n * derivatives);
}

void Synthetic::finish(EmulatorSet& set, std::size_t n) const {
  set.seed = seed;
  set.lat.assign(n, 0);
  set.lon.assign(n, 0);
  set.time.assign(n, 0);
  set.source.assign(n, 0);
  set.cell = consecutive<std::int64_t>(static_cast<std::int64_t>(n));
  set.split.assign(n, 0);
  require_usage(validation_split + test_split < 1, "options val-fraction and test-fraction: ", validation_split, " + ",
                test_split, " leave nothing for training");
  const auto rows_of = [&](double share) { return static_cast<std::int64_t>(static_cast<double>(n) * share); };
  const auto order = draw_permutation(static_cast<std::int64_t>(n), seed, "prep.split");
  const std::int64_t test = rows_of(test_split), validation = rows_of(validation_split);
  for (std::int64_t i = 0; i < test + validation; ++i) set.split[order[i]] = i < test ? 2 : 1;
  take_moments(set);
}

ColumnNames known_names(const std::vector<std::string>& names, const std::vector<std::string>& units) {
  ColumnNames out;
  for (const auto& name : names) {
    const KnownColumn* known = find_column(name);
    out.names.push_back(name);
    out.cf.emplace_back(known != nullptr ? known->cf : "");
    out.level.push_back(0);
  }
  out.units = units;
  out.units.resize(names.size());
  return out;
}

}  // namespace lockstep::prep
