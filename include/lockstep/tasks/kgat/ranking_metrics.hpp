#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/report/metric.hpp"

namespace lockstep {

/// Metrics of a full ranking, as sums over users, which Task::evaluate adds up and Task::metrics divides.
///
/// With the hits of a user in the order of rank rho = 1, 2, ..., n test items and d(rho) = 1 / log2(rho + 1):
///
///   precision@K = hits / K              recall@K = hits / n              hit@K = 1 if there is any
///   ndcg@K = sum of d over hits, divided by d(1) + ... + d(min(K, n))
///   ndcg_retrieved@K = the same sum, divided by d(1) + ... + d(min(K, hits among the largest K)); 0 without hits
///
/// The last one measures the order of the hits alone and is larger; the tables of the KGAT paper show it.
///
/// source  Jarvelin, Kekalainen 2002 (NDCG); the authors' programs of arXiv:1905.07854 (retrieved form)
class RankingMetrics {
 public:
  /// errors  Error (usage) unless the cutoffs are positive and ascending
  explicit RankingMetrics(std::vector<std::int64_t> cutoffs);
  /// The largest cutoff: how many items a user's ranking must hold.
  std::int64_t depth() const { return cutoffs_.back(); }
  std::int64_t sum_count() const { return 1 + kMetrics * static_cast<std::int64_t>(cutoffs_.size()); }
  /// Adds one user to sums (sum_count()). `top` holds items, the best first, and -1 where no items remain;
  /// `relevant` ascending and not empty.
  void add(std::span<const std::int32_t> top, std::span<const std::int32_t> relevant, double* sums) const;
  /// Means over the users, "recall@20" and the others of the smallest cutoff first. Without users all are 0.
  std::vector<Metric> metrics(std::span<const double> sums) const;
  /// The names of recall and ndcg at each cutoff.
  std::vector<std::string> compared() const;

 private:
  static constexpr std::int64_t kMetrics = 5;
  std::vector<std::int64_t> cutoffs_;
  std::vector<double> discount_, ideal_;  ///< d(rho) at rho - 1; d(1) + ... + d(rho) at rho
};

}  // namespace lockstep
