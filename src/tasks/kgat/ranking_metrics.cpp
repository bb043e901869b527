#include "lockstep/tasks/kgat/ranking_metrics.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
constexpr const char* kNames[] = {"recall", "ndcg", "precision", "hit", "ndcg_retrieved"};
}  // namespace

RankingMetrics::RankingMetrics(std::vector<std::int64_t> cutoffs) : cutoffs_(std::move(cutoffs)) {
  require_usage(!cutoffs_.empty(), "option eval.k: a ranking needs at least one cutoff");
  for (std::size_t i = 0; i < cutoffs_.size(); ++i) {
    require_usage(cutoffs_[i] > (i == 0 ? 0 : cutoffs_[i - 1]), "option eval.k: cutoff ", cutoffs_[i],
                  " of the ranking: cutoffs must be positive and ascending");
  }
  ideal_.push_back(0);
  for (std::int64_t rho = 1; rho <= depth(); ++rho) {
    discount_.push_back(1 / std::log2(static_cast<double>(rho + 1)));
    ideal_.push_back(ideal_.back() + discount_.back());
  }
}

void RankingMetrics::add(std::span<const std::int32_t> top, std::span<const std::int32_t> relevant,
                         double* sums) const {
  thread_local std::vector<std::int64_t> hit;          // indices in the ranking
  thread_local std::vector<std::uint8_t> is_relevant;  // by item; zeros between calls
  hit.resize(top.size());
  std::size_t found = 0;
  if (!relevant.empty() && is_relevant.size() <= static_cast<std::size_t>(relevant.back()))
    is_relevant.resize(static_cast<std::size_t>(relevant.back()) + 1);
  for (const std::int32_t item : relevant) is_relevant[item] = 1;
  for (std::size_t i = 0; i < top.size(); ++i) {
    hit[found] = static_cast<std::int64_t>(i);
    const auto item = static_cast<std::size_t>(top[i]);  // -1 becomes the largest number
    found += item < is_relevant.size() ? is_relevant[item] : 0;
  }
  hit.resize(found);
  for (const std::int32_t item : relevant) is_relevant[item] = 0;
  const auto n = std::ssize(relevant), all_hits = std::ssize(hit);
  double* out = sums;
  *out++ += 1;
  std::int64_t hits = 0;
  double gain = 0;
  for (const std::int64_t k : cutoffs_) {
    for (; hits < all_hits && hit[hits] < k; ++hits) gain += discount_[hit[hits]];
    const double found = static_cast<double>(hits);
    out[0] += found / static_cast<double>(n);
    out[1] += gain / ideal_[std::min(k, n)];
    out[2] += found / static_cast<double>(k);
    out[3] += hits > 0 ? 1 : 0;
    out[4] += hits > 0 ? gain / ideal_[std::min(k, all_hits)] : 0;
    out += kMetrics;
  }
}

std::vector<Metric> RankingMetrics::metrics(std::span<const double> sums) const {
  std::vector<Metric> metrics;
  const double users = sums[0];
  for (std::size_t i = 0; i < cutoffs_.size(); ++i) {
    for (std::int64_t f = 0; f < kMetrics; ++f) {
      const double sum = sums[1 + i * kMetrics + static_cast<std::size_t>(f)];
      metrics.push_back({join(kNames[f], "@", cutoffs_[i]), users > 0 ? sum / users : 0, true});
    }
  }
  return metrics;
}

std::vector<std::string> RankingMetrics::compared() const {
  std::vector<std::string> names;
  for (const std::int64_t k : cutoffs_)
    for (const char* metric : {kNames[0], kNames[1]}) names.push_back(join(metric, "@", k));
  return names;
}

}  // namespace lockstep
