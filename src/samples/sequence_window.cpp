#include "lockstep/samples/sequence_window.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
std::int64_t unit_of(const std::string& scale) {
  if (scale == "raw" || scale == "unit:second") return 1;
  if (scale == "unit:minute") return 60;
  if (scale == "unit:hour") return 3600;
  require(scale == "unit:day", "scaling times: no scale '", scale, "'");
  return 86400;
}
}  // namespace

const std::vector<std::string>& time_scales() {
  static const std::vector<std::string> kScales = {"per_user_min", "unit:second", "unit:minute",
                                                   "unit:hour",    "unit:day",    "raw"};
  return kScales;
}

void scale_times(std::span<const std::int64_t> raw, const std::string& scale, std::span<std::int64_t> scaled) {
  if (scale != "per_user_min") {
    const std::int64_t unit = unit_of(scale);
    for (std::size_t k = 0; k < raw.size(); ++k) scaled[k] = (raw[k] - raw[0]) / unit + 1;
    return;
  }
  std::int64_t gap = 0;
  for (std::size_t k = 1; k < raw.size(); ++k) {
    const std::int64_t step = raw[k] - raw[k - 1];
    if (step != 0 && (gap == 0 || step < gap)) gap = step;
  }
  const double unit = gap == 0 ? 1.0 : static_cast<double>(gap);
  for (std::size_t k = 0; k < raw.size(); ++k)  // nearbyint rounds half to even in the default rounding mode
    scaled[k] = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(raw[k] - raw[0]) / unit)) + 1;
}

}  // namespace lockstep
