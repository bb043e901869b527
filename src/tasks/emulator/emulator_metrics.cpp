#include "tasks/emulator/emulator_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/report/statistics.hpp"

namespace lockstep::emulator_metrics {

namespace {
/// Calls view(count, pointer to the member) for each part of the array in order.
template <class S, class View>
void each_part(const Layout& layout, S& sums, const View& view) {
  const std::int64_t aice = layout.aice ? 1 : 0, many = layout.members > 1 ? 1 : 0;
  view(2, sums.rows);
  view(layout.n_out, sums.output);
  view(aice, sums.ice_edge);
  view(aice, sums.open_water);
  view(layout.jacobian ? kBins : 0, sums.jacobian_error);
  view(layout.constraints, sums.constraint);
  view(many * layout.n_out, sums.ensemble);
  view(many * (layout.members + 1), sums.ranks);
}

/// The order of numbers, with NaN after all others. The operator < is no order of values with NaN.
bool nan_last(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

/// The metrics of an ensemble from the sums of `n` values and from `ee`, the summed squared error of its mean.
void add_ensemble_metrics(std::vector<Metric>& out, const EnsembleSums& s, double n, double ee, double members,
                          double unit, const std::string& suffix) {
  out.push_back({"member_rmse" + suffix, std::sqrt(s.member_ee / n) * unit});
  out.push_back({"spread" + suffix, std::sqrt(s.variance / n) * unit});
  out.push_back({"crps" + suffix, s.crps / n * unit});
  out.push_back({"spread_skill" + suffix, ee > 0 ? std::sqrt((members + 1) / members * s.variance / ee) : 0});
  for (std::size_t i = 0; i < 3; ++i) out.push_back({join("coverage", kPercents[i], suffix), s.covered[i] / n, true});
}
}  // namespace

Sums::Sums(double* sums, const Layout& l) : layout(l) {
  std::int64_t at = 0;
  each_part(layout, *this, [&]<class P>(std::int64_t count, P*& part) {
    part = sums != nullptr && count > 0 ? reinterpret_cast<P*>(sums + at) : nullptr;
    at += count * static_cast<std::int64_t>(sizeof(P) / sizeof(double));  // NOLINT: P may be double
  });
}

std::int64_t Sums::count(const Layout& layout) {
  std::int64_t total = 0;
  Sums any(nullptr, layout);
  each_part(layout, any, [&]<class P>(std::int64_t count, P*&) {
    total += count * static_cast<std::int64_t>(sizeof(P) / sizeof(double));  // NOLINT: P may be double
  });
  return total;
}

void Sums::forget_ensemble() const {
  if (ensemble == nullptr) return;
  auto* first = reinterpret_cast<double*>(ensemble);
  std::fill(first, ranks + layout.members + 1, std::numeric_limits<double>::quiet_NaN());
}

void add_ensemble(const Sums& to, const std::vector<Tensor>& predictions, const Tensor& target, const Tensor& mean) {
  const auto members = std::ssize(predictions);
  const auto n = static_cast<double>(members);
  std::vector<double> v(predictions.size());
  double half_width[3];  // of the intervals, in standard deviations s
  for (std::size_t i = 0; i < 3; ++i) half_width[i] = central_t(kPercents[i] / 100.0, n - 1) * std::sqrt((n + 1) / n);
  visit_float(target.dtype(), [&]<class T>() {
    for (std::int64_t at = 0; at < target.size(); ++at) {
      EnsembleSums& s = to.ensemble[at % to.layout.n_out];
      const double t = static_cast<double>(target.data<T>()[at]);
      for (std::size_t k = 0; k < v.size(); ++k) v[k] = static_cast<double>(predictions[k].data<T>()[at]);
      std::ranges::sort(v, nan_last);
      double sum = 0, distance = 0, pairs = 0, ee = 0, squares = 0;
      for (std::int64_t k = 0; k < members; ++k) {
        const double value = v[k];
        sum += value;
        distance += std::abs(value - t);
        pairs += static_cast<double>(2 * k + 1 - members) * value;  // half the sum of |v_i - v_j| over all pairs
        ee += (value - t) * (value - t);
      }
      const double centre = sum / n;
      for (const double value : v) squares += (value - centre) * (value - centre);
      mean.data<T>()[at] = static_cast<T>(centre);
      const double variance = squares / (n - 1);
      s.member_ee += ee / n;
      s.variance += variance;
      s.crps += distance / n - pairs / (n * n);
      for (std::size_t i = 0; i < 3; ++i)
        s.covered[i] += std::abs(t - centre) <= half_width[i] * std::sqrt(variance) ? 1 : 0;
      to.ranks[std::ranges::lower_bound(v, t) - v.begin()] += 1;
    }
  });
}

std::int64_t bin_of(double relative_error) {
  if (relative_error <= 0) return 0;
  const double at = (std::log10(relative_error) - kLow) / (kHigh - kLow) * static_cast<double>(kBins);
  return at < static_cast<double>(kBins - 1) ? static_cast<std::int64_t>(std::max(at, 0.0)) : kBins - 1;  // also NaN
}

double median(const double* bins) {
  double total = 0;
  for (std::int64_t b = 0; b < kBins; ++b) total += bins[b];
  // The value below which `rank` values lie, if those of a bin are spread evenly.
  const auto value = [&](double rank) {
    double below = 0;
    for (std::int64_t b = 0; b < kBins; below += bins[b++])
      if (below + bins[b] > rank)
        return std::pow(10.0, kLow + (kHigh - kLow) * (static_cast<double>(b) + (rank - below) / bins[b]) /
                                         static_cast<double>(kBins));
    return 0.0;
  };
  const double half = std::fmod(total, 2) == 0 ? 0.5 : 0;  // the mean of the two middle values of an even number
  return (value(total / 2 - half) + value(total / 2 + half)) / 2;
}

std::vector<Metric> metrics(const Sums& sums, const std::vector<std::string>& names,
                            const std::vector<double>& output_std) {
  const std::int64_t n_out = sums.layout.n_out;
  const double n = sums.rows[0];
  if (n == 0) return {};
  double ee = 0;
  for (std::int64_t o = 0; o < n_out; ++o) ee += sums.output[o].ee;
  std::vector<Metric> out = {{"loss", sums.rows[1] / n}, {"rmse", std::sqrt(ee / (n * static_cast<double>(n_out)))}};
  for (std::int64_t o = 0; o < n_out; ++o) {
    const OutputSums& s = sums.output[o];
    const std::string& name = names[o];
    const double std = output_std[o], rmse = std::sqrt(s.ee / n), bias = s.e / n;
    const double tt = s.tt - s.t * s.t / n, pp = s.pp - s.p * s.p / n, tp = s.tp - s.t * s.p / n;
    out.push_back({"rmse." + name, rmse * std});
    out.push_back({"bias." + name, bias * std});
    out.push_back({"mae." + name, s.abs_e / n * std});
    out.push_back({"r2." + name, tt > 0 ? 1 - s.ee / tt : 0, true});  // 0 for a constant target
    out.push_back({"corr." + name, tt > 0 && pp > 0 ? tp / std::sqrt(tt * pp) : 0, true});
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
  for (std::int64_t i = 0; i < sums.layout.constraints; ++i)
    out.push_back({join("constraint.", i + 1), sums.constraint[i] / n});
  if (!sums.ensemble) return out;
  const auto members = static_cast<double>(sums.layout.members);
  EnsembleSums all{};
  for (std::int64_t o = 0; o < n_out; ++o) {
    const EnsembleSums& s = sums.ensemble[o];
    all.member_ee += s.member_ee;
    all.variance += s.variance;
    all.crps += s.crps;
    for (std::size_t i = 0; i < 3; ++i) all.covered[i] += s.covered[i];
  }
  add_ensemble_metrics(out, all, n * static_cast<double>(n_out), ee, members, 1, "");
  for (std::int64_t o = 0; o < n_out; ++o)
    add_ensemble_metrics(out, sums.ensemble[o], n, sums.output[o].ee, members, output_std[o], "." + names[o]);
  return out;
}

}  // namespace lockstep::emulator_metrics
