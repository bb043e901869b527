#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/search_range.hpp"

namespace lockstep::apps {

/// How a search chooses its configurations, and how long it trains each.
struct SearchMethod {
  std::string name;                    ///< grid | random | halving
  std::int64_t configurations = 0;     ///< of random and halving
  std::int64_t factor = 3, rungs = 3;  ///< of halving
  std::uint64_t seed = 0;              ///< of the draws
  std::int64_t epochs = 0;             ///< of a whole training
  std::int64_t eval_every = 1;         ///< epochs
  bool larger_is_better = false;
};

/// The trainings of a search, as a function of their results.
///
/// A grid has every combination of the values, the last key changing first. Random and halving draw configurations,
/// each a function of (seed, number). Values of `run.seed` repeat every configuration; the mean over them counts.
///
/// Successive halving: brackets of factor^(rungs-1) configurations train to the first rung of
/// epochs / factor^(rungs-1) epochs; when all of a bracket have, the best 1/factor of them continue to the next rung,
/// factor times as long, and so on to the end. A bracket waits for no other one. Rungs lie at multiples of eval_every.
/// source  Jamieson, Talwalkar 2016, arXiv:1502.07943; brackets: Li et al. 2018, arXiv:1603.06560
class Search {
 public:
  /// errors  Error (usage): a grid of more than a million trainings, rungs that no evaluation can separate
  Search(std::vector<SearchRange> ranges, std::vector<std::string> seeds, SearchMethod method);

  std::vector<Training> plan(const TrainingEnds& ends) const;

  std::size_t size() const { return values_.size(); }  ///< configurations
  const std::vector<SearchRange>& ranges() const { return ranges_; }
  const std::vector<std::string>& seeds() const { return seeds_; }
  /// The values of a configuration, one per range.
  const std::vector<std::string>& values(std::size_t c) const { return values_[c]; }
  const std::vector<std::int64_t>& rungs() const { return rungs_; }  ///< epochs; the last one, 0: to the end
  Training training(std::size_t c, std::size_t seed, std::int64_t until_epoch) const;
  /// "optim.lr = 0.001, model.hidden_size = 32".
  std::string text(std::size_t c) const;

  /// The results of a configuration at a rung: a value per seed; none: not all have ended, or one has failed.
  std::vector<double> results(std::size_t c, std::int64_t until_epoch, const TrainingEnds& ends) const;
  /// The last rung at which a configuration has results; none: it has none.
  std::optional<std::int64_t> last_rung(std::size_t c, const TrainingEnds& ends) const;
  /// Configurations with results, the best first: those of later rungs before those of earlier ones.
  std::vector<std::size_t> ranking(const TrainingEnds& ends) const;

 private:
  bool better(double a, double b) const { return method_.larger_is_better ? a > b : a < b; }
  void draw();

  std::vector<SearchRange> ranges_;
  std::vector<std::string> seeds_;  ///< of run.seed; {""}: that of the configuration alone
  SearchMethod method_;
  std::vector<std::vector<std::string>> values_;
  std::vector<std::int64_t> rungs_;
};

/// The share of the variance between configurations that the values of one key explain, from 0 to 1: Kelley's epsilon
/// squared of the ranks of the results, main effect alone. Intervals count in up to four bins of equal width.
///
///   1 - (S_within / (n - k)) / (S_total / (n - 1)),   k groups of n ranks;   0 where this is negative
///
/// None if k = n: then no group has a variance of its own.
///
/// places  of the key's value, in [0, 1];  results  one per place
/// source  Kelley 1935, "An unbiased correlation ratio measure"
std::optional<double> importance(const std::vector<double>& places, const std::vector<double>& results, bool in_bins);

}  // namespace lockstep::apps
