#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/campaign.hpp"
#include "apps/lockstep/search_range.hpp"
#include "lockstep/report/statistics.hpp"

namespace lockstep::apps {

/// How a search chooses its configurations, and how long it trains each.
struct SearchMethod {
  std::string name;                    ///< grid | random | halving
  std::int64_t configurations = 0;     ///< of random and halving
  std::int64_t factor = 3, rungs = 3;  ///< of halving
  bool larger_is_better = false;
};

/// The results of a configuration over the seeds, none of which has failed.
struct Standing {
  std::size_t configuration = 0;
  std::int64_t rung = 0;  ///< of Search::rungs()
  MeanInterval score;
};

/// The trainings that a search asks for next, given the results so far.
///
/// A grid has every combination of the values, the last key changing first. Random and halving draw configurations,
/// each a function of (seed, number). Values of `run.seed` repeat every configuration; the mean over them counts.
///
/// Successive halving: brackets of factor^(rungs-1) configurations train to the first rung of
/// epochs / factor^(rungs-1) epochs; when all of a bracket have, the best 1/factor of them continue to the next rung,
/// factor times as long, and so on to the end. A bracket waits for no other one. Rungs lie at multiples of eval.every.
/// source  Jamieson, Talwalkar 2016, arXiv:1502.07943; brackets: Li et al. 2018, arXiv:1603.06560
class Search {
 public:
  /// seeds   of run.seed; {""}: that of the configuration alone
  /// method  must outlive this object, and may get larger_is_better later
  /// config  has the seed of the draws, and the epochs and evaluations of a whole training
  /// errors  Error (usage): a grid of more than a million trainings, rungs that no evaluation can separate
  Search(std::vector<SearchRange> ranges, std::vector<std::string> seeds, const SearchMethod& method,
         const RunConfig& config);

  std::vector<Training> plan(const TrainingEnds& ends) const;

  std::size_t size() const { return configurations_.size(); }
  const std::vector<SearchRange>& ranges() const { return ranges_; }
  const std::vector<std::string>& seeds() const { return seeds_; }
  /// The values of a configuration, one per range.
  const Changes& changes(std::size_t c) const { return configurations_[c]; }
  const std::vector<std::int64_t>& rungs() const { return rungs_; }  ///< epochs; the last one, 0: to the end
  Training training(std::size_t c, std::size_t seed, std::int64_t until_epoch) const;

  /// Of all configurations with results, each at its last rung: those of later rungs first, and of one the best.
  std::vector<Standing> ranking(const TrainingEnds& ends) const;
  /// The share of the variance between configurations that the values of each key explain, from 0 to 1: Kelley's
  /// epsilon squared of the ranks of the results, main effect alone. Intervals count in up to four bins of equal width.
  /// The results are those of the first rung, which all configurations have in common.
  ///
  ///   1 - (S_within / (n - k)) / (S_total / (n - 1)),   k groups of n ranks;   0 where this is negative
  ///
  /// None if k = n: then no group has a variance of its own.
  ///
  /// source  Kelley 1935, "An unbiased correlation ratio measure"
  std::vector<std::optional<double>> importances(const TrainingEnds& ends) const;

 private:
  /// Of those configurations that have results at a rung, the best first.
  std::vector<Standing> at(std::int64_t rung, const std::vector<std::size_t>& configurations,
                           const TrainingEnds& ends) const;

  std::vector<SearchRange> ranges_;
  std::vector<std::string> seeds_;
  const SearchMethod& method_;
  std::vector<Changes> configurations_;
  std::vector<std::int64_t> rungs_ = {0};
  std::size_t bracket_ = 1;  ///< configurations
};

/// "optim.lr = 0.001, model.hidden_size = 32".
std::string text_of(const Changes& changes);

}  // namespace lockstep::apps
