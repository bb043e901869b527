#include "tasks/emulator/emulator_metrics.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::emulator_metrics {

Sums::Sums(double* sums, std::int64_t n_out, bool aice, bool jacobian) {
  rows = sums;
  output = reinterpret_cast<OutputSums*>(sums + 2);
  double* next = sums + 2 + n_out * static_cast<std::int64_t>(sizeof(OutputSums) / sizeof(double));
  ice_edge = aice ? reinterpret_cast<RangeSums*>(next) : nullptr;
  open_water = aice ? ice_edge + 1 : nullptr;
  if (aice) next += 2 * sizeof(RangeSums) / sizeof(double);
  jacobian_error = jacobian ? next : nullptr;
}

std::int64_t Sums::count(std::int64_t n_out, bool aice, bool jacobian) {
  return 2 + n_out * static_cast<std::int64_t>(sizeof(OutputSums) / sizeof(double)) +
         (aice ? 2 * static_cast<std::int64_t>(sizeof(RangeSums) / sizeof(double)) : 0) + (jacobian ? kBins : 0);
}

std::int64_t bin_of(double relative_error) {
  if (!(relative_error > 0)) return 0;
  const double at = (std::log10(relative_error) - kLow) / (kHigh - kLow) * static_cast<double>(kBins);
  return static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(kBins - 1)));
}

double median(const double* bins) {
  double total = 0;
  for (std::int64_t b = 0; b < kBins; ++b) total += bins[b];
  double below = 0;
  for (std::int64_t b = 0; b < kBins; ++b) {
    if (bins[b] > 0 && below + bins[b] >= total / 2) {
      const double at = static_cast<double>(b) + (total / 2 - below) / bins[b];
      return std::pow(10.0, kLow + (kHigh - kLow) * at / static_cast<double>(kBins));
    }
    below += bins[b];
  }
  return 0;
}

std::vector<Metric> metrics(const Sums& sums, std::int64_t n_out, const std::vector<std::string>& names,
                            const std::vector<double>& output_std) {
  const double n = sums.rows[0];
  if (n == 0) return {};
  double ee = 0;
  for (std::int64_t o = 0; o < n_out; ++o) ee += sums.output[o].ee;
  std::vector<Metric> out = {{"loss", sums.rows[1] / n}, {"rmse", std::sqrt(ee / (n * static_cast<double>(n_out)))}};
  for (std::int64_t o = 0; o < n_out; ++o) {
    const OutputSums& s = sums.output[o];
    const std::string& name = names[static_cast<std::size_t>(o)];
    const double std = output_std[static_cast<std::size_t>(o)], rmse = std::sqrt(s.ee / n), bias = s.e / n;
    const double tt = s.tt - s.t * s.t / n, pp = s.pp - s.p * s.p / n, tp = s.tp - s.t * s.p / n;
    out.push_back({"rmse." + name, rmse * std});
    out.push_back({"bias." + name, bias * std});
    out.push_back({"mae." + name, s.abs_e / n * std});
    out.push_back({"r2." + name, tt > 0 ? 1 - s.ee / tt : 0});  // 0 for a constant target
    out.push_back({"corr." + name, tt > 0 && pp > 0 ? tp / std::sqrt(tt * pp) : 0});
    out.push_back({"rmse_norm." + name, rmse});
    out.push_back({"bias_norm." + name, bias});
  }
  const auto range = [&](const RangeSums* s, const std::string& name) {
    if (!s || s->rows == 0) return;
    out.push_back({"rmse." + name, std::sqrt(s->ee / s->rows)});
    out.push_back({"bias." + name, s->e / s->rows});
  };
  range(sums.ice_edge, "ice_edge");
  range(sums.open_water, "open_water");
  if (sums.jacobian_error) out.push_back({"jacobian_error", median(sums.jacobian_error)});
  return out;
}

}  // namespace lockstep::emulator_metrics
