#include "apps/lockstep/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "apps/lockstep/describe.hpp"
#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/report/run_folders.hpp"

namespace lockstep::apps {

namespace {
/// The sum of the squares about the mean.
double spread(const std::vector<double>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum;
}
}  // namespace

Search::Search(std::vector<SearchRange> ranges, std::vector<std::string> seeds, const SearchMethod& method,
               const RunConfig& config)
    : ranges_(std::move(ranges)), seeds_(std::move(seeds)), method_(method) {
  constexpr double kMost = 1e6;
  const bool grid = method.name == "grid";
  require_usage(!grid || method.configurations == 0, "option sweep.trials = ", method.configurations,
                ": sweep.method = grid trains all combinations; choose random or halving, or leave it out");
  double count = grid ? 1 : static_cast<double>(method.configurations);
  for (const SearchRange& range : ranges_) count *= grid ? range.count() : 1;
  require_usage(count > 0, "option sweep.trials: ", method.name, " needs the number of configurations to draw");
  const double all = count * static_cast<double>(seeds_.size());
  require_usage(all <= kMost, "option sweep.method = ", method.name, ": the space has ", printed("%.0f", all),
                " trainings; at most 1000000 are possible: choose fewer values, or random");
  configurations_.resize(static_cast<std::size_t>(count), Changes(ranges_.size()));
  for (std::size_t c = 0; c < size(); ++c) {
    std::size_t rest = c;
    for (std::size_t k = ranges_.size(); k-- > 0;) {
      const SearchRange& range = ranges_[k];
      const std::size_t values = grid ? static_cast<std::size_t>(range.count()) : 1;
      configurations_[c][k] = {range.key(), grid ? range.value(rest % values)
                                                 : range.at(Philox(config.run.seed, c, Site(range.key())).uniform(0))};
      rest /= values;
    }
  }
  if (method.name != "halving") return;
  for (std::int64_t rung = 1; rung < method.rungs; ++rung) {
    bracket_ = std::min(bracket_ * static_cast<std::size_t>(method.factor), std::size_t{1} << 40);
    const std::int64_t every = config.eval.every,
                       epochs = std::max<std::int64_t>(1, config.train.epochs / static_cast<std::int64_t>(bracket_));
    rungs_.insert(rungs_.begin(), (epochs + every - 1) / every * every);
  }
  for (std::size_t r = 1; r < rungs_.size(); ++r)
    require_usage(rungs_[r - 1] < (rungs_[r] > 0 ? rungs_[r] : config.train.epochs),
                  "option sweep.method = halving: ", method.rungs, " rungs, each ", method.factor,
                  " times as long, need more than train.epochs = ", config.train.epochs,
                  " and eval.every = ", config.eval.every,
                  "; train longer, evaluate more often, or choose fewer sweep.rungs");
}

Training Search::training(std::size_t c, std::size_t seed, std::int64_t until_epoch) const {
  Training training{trial_folder(static_cast<std::int64_t>(c * seeds_.size() + seed + 1)), "", changes(c), until_epoch};
  if (!seeds_[seed].empty()) training.changes.emplace_back("run.seed", seeds_[seed]);
  training.title = join(training.name(), ": ", text_of(training.changes));
  return training;
}

std::vector<Standing> Search::at(std::int64_t rung, const std::vector<std::size_t>& configurations,
                                 const TrainingEnds& ends) const {
  std::vector<Standing> found;
  for (const std::size_t c : configurations) {
    std::vector<double> values;
    for (std::size_t s = 0; s < seeds_.size(); ++s)
      if (const auto end = ends.find(training(c, s, rung).name()); end != ends.end() && end->second.code == kExitDone)
        values.push_back(parse_ordered_json(end->second.text).at("value"));
    if (values.size() == seeds_.size()) found.push_back({c, rung, mean_interval(values)});
  }
  std::ranges::stable_sort(found, [&](const Standing& a, const Standing& b) {
    return method_.larger_is_better ? a.score.value > b.score.value : a.score.value < b.score.value;
  });
  return found;
}

std::vector<Training> Search::plan(const TrainingEnds& ends) const {
  std::vector<Training> all;
  for (std::size_t begin = 0; begin < size(); begin += bracket_) {
    std::vector<std::size_t> members = consecutive(std::min(bracket_, size() - begin), begin);
    for (const std::int64_t rung : rungs_) {
      bool complete = true;
      for (const std::size_t c : members)
        for (std::size_t s = 0; s < seeds_.size(); ++s)
          complete = ends.contains(all.emplace_back(training(c, s, rung)).name()) && complete;
      if (!complete || rung == 0) break;
      const std::vector<Standing> good = at(rung, members, ends);
      const auto factor = static_cast<std::size_t>(method_.factor), keep = (members.size() + factor - 1) / factor;
      members.clear();
      for (std::size_t i = 0; i < std::min(keep, good.size()); ++i) members.push_back(good[i].configuration);
      std::ranges::sort(members);
    }
  }
  return all;
}

std::vector<Standing> Search::ranking(const TrainingEnds& ends) const {
  std::vector<Standing> order;
  std::set<std::size_t> placed;
  for (std::size_t r = rungs_.size(); r-- > 0;)
    for (const Standing& standing : at(rungs_[r], consecutive<std::size_t>(size()), ends))
      if (placed.insert(standing.configuration).second) order.push_back(standing);
  return order;
}

std::vector<std::optional<double>> Search::importances(const TrainingEnds& ends) const {
  constexpr double kBins = 4;
  std::vector<Standing> found = at(rungs_.front(), consecutive<std::size_t>(size()), ends);
  std::ranges::sort(found, {}, &Standing::configuration);
  std::vector<double> sorted, ranks;  // equal results share the mean of their ranks
  for (const Standing& one : found) sorted.push_back(one.score.value);
  std::ranges::sort(sorted);
  for (const Standing& one : found) {
    const auto same = std::ranges::equal_range(sorted, one.score.value);
    ranks.push_back(static_cast<double>(same.begin() - sorted.begin()) + static_cast<double>(same.size()) / 2);
  }
  std::vector<std::optional<double>> shares;
  for (std::size_t key = 0; key < ranges_.size(); ++key) {
    std::map<double, std::vector<double>> groups;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double place = ranges_[key].place(changes(found[i].configuration)[key].second);
      groups[ranges_[key].is_interval() ? std::min(kBins - 1, std::floor(kBins * place)) : place].push_back(ranks[i]);
    }
    double within = 0;
    for (const auto& [place, group] : groups) within += spread(group);
    const std::size_t n = found.size(), k = groups.size();
    const double total = n > 0 ? spread(ranks) : 0;
    const double share = total > 0 ? 1 - within / static_cast<double>(n - k) / (total / static_cast<double>(n - 1)) : 0;
    shares.push_back(n > k ? std::optional(std::max(0.0, share)) : std::nullopt);
  }
  return shares;
}

std::string text_of(const Changes& changes) {
  return listed(changes, ", ", [](const auto& change) { return join(change.first, " = ", change.second); });
}

}  // namespace lockstep::apps
