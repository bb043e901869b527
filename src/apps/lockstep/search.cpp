#include "apps/lockstep/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "apps/lockstep/describe.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/report/run_folders.hpp"

namespace lockstep::apps {

namespace {
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
}  // namespace

Search::Search(std::vector<SearchRange> ranges, std::vector<std::string> seeds, SearchMethod method)
    : ranges_(std::move(ranges)), seeds_(std::move(seeds)), method_(std::move(method)) {
  draw();
  std::int64_t divisor = 1;
  rungs_ = {0};
  if (method_.name != "halving") return;
  for (std::int64_t rung = 1; rung < method_.rungs; ++rung) {
    divisor *= method_.factor;
    const std::int64_t every = method_.eval_every, epochs = std::max<std::int64_t>(1, method_.epochs / divisor);
    rungs_.insert(rungs_.begin(), (epochs + every - 1) / every * every);
  }
  for (std::size_t r = 1; r < rungs_.size(); ++r)
    require_usage(
        rungs_[r - 1] < (rungs_[r] > 0 ? rungs_[r] : method_.epochs), "option sweep.method = halving: ", method_.rungs,
        " rungs, each ", method_.factor, " times as long, need more than train.epochs = ", method_.epochs,
        " and eval.every = ", method_.eval_every, "; train longer, evaluate more often, or choose fewer sweep.rungs");
}

void Search::draw() {
  constexpr double kMost = 1e6;
  const auto require_size = [&](double configurations) {
    const double all = configurations * static_cast<double>(seeds_.size());
    require_usage(all <= kMost, "option sweep.method = ", method_.name, ": the space has ", printed("%.0f", all),
                  " trainings; at most 1000000 are possible: choose fewer values, or random");
  };
  if (method_.name == "grid") {
    double count = 1;
    for (const SearchRange& range : ranges_) count *= range.count();
    require_size(count);
    values_.resize(count);
    for (std::size_t c = 0; c < values_.size(); ++c) {
      values_[c].resize(ranges_.size());
      std::size_t rest = c;
      for (std::size_t k = ranges_.size(); k-- > 0;) {
        const auto size = static_cast<std::size_t>(ranges_[k].count());
        values_[c][k] = ranges_[k].value(rest % size);
        rest /= size;
      }
    }
    return;
  }
  require_usage(method_.configurations > 0, "option sweep.trials: ", method_.name,
                " needs the number of configurations to draw");
  require_size(static_cast<double>(method_.configurations));
  for (std::int64_t c = 0; c < method_.configurations; ++c) {
    std::vector<std::string>& values = values_.emplace_back();
    for (const SearchRange& range : ranges_)
      values.push_back(range.at(Philox(method_.seed, static_cast<std::uint64_t>(c), Site(range.key())).uniform(0)));
  }
}

Training Search::training(std::size_t c, std::size_t seed, std::int64_t until_epoch) const {
  Training training;
  training.folder = trial_folder(static_cast<std::int64_t>(c * seeds_.size() + seed + 1));
  training.until_epoch = until_epoch;
  for (std::size_t k = 0; k < ranges_.size(); ++k) training.changes.emplace_back(ranges_[k].key(), values_[c][k]);
  if (!seeds_[seed].empty()) training.changes.emplace_back("run.seed", seeds_[seed]);
  training.title = join(training.name(), ": ",
                        listed(training.changes, ", ", [](const auto& c) { return join(c.first, " = ", c.second); }));
  return training;
}

std::string Search::text(std::size_t c) const {
  std::vector<std::string> words;
  for (std::size_t k = 0; k < ranges_.size(); ++k) words.push_back(join(ranges_[k].key(), " = ", values_[c][k]));
  return listed(words);
}

std::vector<double> Search::results(std::size_t c, std::int64_t until_epoch, const TrainingEnds& ends) const {
  std::vector<double> values;
  for (std::size_t s = 0; s < seeds_.size(); ++s) {
    const auto end = ends.find(training(c, s, until_epoch).name());
    if (end == ends.end() || end->second.code != kExitDone) return {};
    values.push_back(Json::parse(end->second.text).at("value"));
  }
  return values;
}

std::optional<std::int64_t> Search::last_rung(std::size_t c, const TrainingEnds& ends) const {
  for (std::size_t r = rungs_.size(); r-- > 0;)
    if (!results(c, rungs_[r], ends).empty()) return rungs_[r];
  return {};
}

std::vector<Training> Search::plan(const TrainingEnds& ends) const {
  std::size_t bracket = values_.size();
  if (rungs_.size() > 1)
    bracket = static_cast<std::size_t>(std::pow(static_cast<double>(method_.factor), rungs_.size() - 1));
  std::vector<Training> all;
  for (std::size_t begin = 0; begin < values_.size(); begin += bracket) {
    std::vector<std::size_t> members(std::min(bracket, values_.size() - begin));
    std::iota(members.begin(), members.end(), begin);
    for (const std::int64_t rung : rungs_) {
      bool complete = true;
      for (const std::size_t c : members) {
        for (std::size_t s = 0; s < seeds_.size(); ++s)
          complete = ends.contains(all.emplace_back(training(c, s, rung)).name()) && complete;
      }
      if (!complete || rung == 0) break;
      std::vector<std::pair<double, std::size_t>> good;
      for (const std::size_t c : members)
        if (const auto values = results(c, rung, ends); !values.empty()) good.emplace_back(mean(values), c);
      std::ranges::stable_sort(good, [&](const auto& a, const auto& b) { return better(a.first, b.first); });
      const std::size_t keep =
          (members.size() + static_cast<std::size_t>(method_.factor) - 1) / static_cast<std::size_t>(method_.factor);
      members.clear();
      for (const auto& [value, c] : good)
        if (members.size() < keep) members.push_back(c);
      std::ranges::sort(members);
    }
  }
  return all;
}

std::vector<std::size_t> Search::ranking(const TrainingEnds& ends) const {
  struct Place {
    std::size_t rung;
    double value;
    std::size_t c;
  };
  std::vector<Place> places;
  for (std::size_t c = 0; c < size(); ++c)
    if (const auto rung = last_rung(c, ends))
      places.push_back({static_cast<std::size_t>(std::ranges::find(rungs_, *rung) - rungs_.begin()),
                        mean(results(c, *rung, ends)), c});
  std::ranges::stable_sort(places, [&](const Place& a, const Place& b) {
    return a.rung != b.rung ? a.rung > b.rung : better(a.value, b.value);
  });
  std::vector<std::size_t> order;
  for (const Place& place : places) order.push_back(place.c);
  return order;
}

std::optional<double> importance(const std::vector<double>& places, const std::vector<double>& results, bool in_bins) {
  constexpr double kBins = 4;
  const std::size_t n = results.size();
  std::vector<double> ranks;  // equal results share the mean of their ranks
  for (const double value : results) {
    const auto below = std::ranges::count_if(results, [&](double other) { return other < value; });
    ranks.push_back(static_cast<double>(below) + static_cast<double>(std::ranges::count(results, value)) / 2);
  }
  std::map<double, std::vector<double>> groups;
  for (std::size_t i = 0; i < n; ++i)
    groups[in_bins ? std::min(kBins - 1, std::floor(kBins * places[i])) : places[i]].push_back(ranks[i]);
  const auto spread = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += (value - mean(values)) * (value - mean(values));
    return sum;
  };
  double within = 0;
  for (const auto& [place, group] : groups) within += spread(group);
  const std::size_t k = groups.size();
  const double total = n > 0 ? spread(ranks) : 0;
  if (n <= k) return {};
  if (total <= 0) return 0;
  return std::max(0.0, 1 - within / static_cast<double>(n - k) / (total / static_cast<double>(n - 1)));
}

}  // namespace lockstep::apps
