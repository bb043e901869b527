#include "lockstep/models/emulator/emulator_columns.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/units.hpp"

namespace lockstep {
namespace {

void check_column(const std::vector<double>& values, std::int64_t columns, bool is_std, const char* what,
                  const std::string& source) {
  require_data(std::ssize(values) == columns, source, ": ", what, " has ", values.size(), " entries: expected ",
               columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    require_data(std::isfinite(values[i]), source, ": ", what, "[", i, "] is not finite");
    require_data(!is_std || values[i] > 0, source, ": ", what, "[", i, "] = ", values[i],
                 ": must be > 0 (a constant column has 1)");
  }
}

}  // namespace

void require_same_units(const EmulatorVariables& model, const EmulatorVariables& data, const std::string& where) {
  std::string unknown;
  const auto compare = [&](const std::vector<std::string>& names, const std::vector<std::string>& its,
                           const std::vector<std::string>& found, const std::vector<std::int64_t>& its_level,
                           const std::vector<std::int64_t>& level) {
    for (std::size_t c = 0; c < std::min(its.size(), found.size()); ++c) {
      if (!its[c].empty() && found[c].empty())
        unknown += (unknown.empty() ? "" : ", ") + join(names[c], " in ", its[c]);
      if (its[c].empty() || found[c].empty() || same_units(its[c], found[c])) continue;
      throw Error(Fault::data,
                  join(where, ": column '", names[c], "' is in ", found[c], ", the model's is in ", its[c],
                       "; prepare it in the model's unit, or, if both mean the same, with lockstep-prep's --units ",
                       names[c], "=", its[c]));
    }
    for (std::size_t c = 0; c < std::min(its_level.size(), level.size()); ++c)
      require_data(its_level[c] == level[c] || (its_level[c] < 0) != (level[c] < 0), where, ": column '", names[c],
                   "' is of level ", level[c], ", the model's is of level ", its_level[c], "; prepare that level");
  };
  compare(model.input_names, model.input_units, data.input_units, model.input_level, data.input_level);
  compare(model.output_names, model.output_units, data.output_units, model.output_level, data.output_level);
  if (!unknown.empty()) log::info(where, ": units unknown; its values are taken as the model's: ", unknown);
}

void check_moments(const Moments& moments, std::int64_t n_in, std::int64_t n_out, const std::string& source) {
  check_column(moments.input_mean, n_in, false, "input_mean", source);
  check_column(moments.input_std, n_in, true, "input_std", source);
  check_column(moments.output_mean, n_out, false, "output_mean", source);
  check_column(moments.output_std, n_out, true, "output_std", source);
}

}  // namespace lockstep
