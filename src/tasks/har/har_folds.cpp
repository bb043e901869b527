#include "lockstep/tasks/har/har_folds.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

using Shares = std::vector<double>;  // of all windows, then of each class

double product(const Shares& a, const Shares& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

void add(Shares& sum, const Shares& more, double sign) {
  for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += sign * more[k];
}

/// The fold of each subject.
std::vector<std::size_t> distribute(const std::vector<Shares>& subjects, std::size_t folds) {
  std::vector<std::size_t> fold_of(subjects.size());
  const auto order = indices_by<std::size_t>(
      std::ssize(subjects), [&](std::size_t s) { return subjects[s][0]; }, std::greater<>());
  std::vector<Shares> sums(folds, Shares(subjects.front().size(), 0.0));
  for (const std::size_t s : order) {
    const auto least = std::ranges::min_element(
        sums, {}, [&](const Shares& sum) { return product(sum, subjects[s]); });  // an empty fold wins
    fold_of[s] = static_cast<std::size_t>(least - sums.begin());
    add(*least, subjects[s], 1);
  }
  constexpr std::size_t kMost = 512;  // subjects whose pairs are tried
  constexpr double kLeast = 1e-9;     // least gain of a swap
  const std::size_t tried = std::min(kMost, order.size());
  for (bool improved = true; improved;) {
    improved = false;
    for (std::size_t a = 0; a < tried; ++a)
      for (std::size_t b = 0; b < a; ++b) {
        if (fold_of[a] == fold_of[b]) continue;
        Shares& of_a = sums[fold_of[a]];
        Shares& of_b = sums[fold_of[b]];
        Shares moved = subjects[a];
        add(moved, subjects[b], -1);
        // |of_a - moved|^2 + |of_b + moved|^2 - |of_a|^2 - |of_b|^2
        if (2 * (product(of_b, moved) - product(of_a, moved) + product(moved, moved)) > -kLeast) continue;
        add(of_a, moved, -1);
        add(of_b, moved, 1);
        std::swap(fold_of[a], fold_of[b]);
        improved = true;
      }
  }
  return fold_of;
}

}  // namespace

std::vector<std::vector<std::int32_t>> stratified_folds(const std::string& how, std::span<const std::int32_t> subject,
                                                        std::span<const std::int32_t> label,
                                                        const std::string& source) {
  std::map<std::int32_t, std::map<std::int32_t, double>> counts;  // windows of each subject, by class
  std::map<std::int32_t, double> classes;
  for (std::size_t n = 0; n < subject.size(); ++n) {
    require_data(subject[n] >= 0, "making folds of '", source, "': window ", n,
                 " has no known subject; folds are made of whole subjects");
    require_data(label[n] >= 0, "making folds of '", source, "': window ", n,
                 " has no label; to apply a trained model to such windows, use --data.folds none");
    ++counts[subject[n]][label[n]];
    ++classes[label[n]];
  }
  const std::size_t folds = how == "subjects" ? counts.size() : std::stoull(how);
  require_usage(folds <= counts.size() && counts.size() >= 2, "option data.folds = ", how, ": '", source, "' has ",
                counts.size(), counts.size() == 1 ? " subject" : " subjects",
                counts.size() < 2 ? ", but each fold needs one, and there are at least 2 folds"
                                  : "; there must be at least as many as folds");
  std::vector<Shares> shares;
  for (const auto& [id, of] : counts) {
    Shares& share = shares.emplace_back(1, 0.0);
    for (const auto& [k, all] : classes) {
      const auto found = of.find(k);
      const double windows = found == of.end() ? 0 : found->second;
      share[0] += windows / static_cast<double>(subject.size());
      share.push_back(windows / all);
    }
  }
  std::vector<std::vector<std::int32_t>> out(folds);
  auto fold_of = consecutive<std::size_t>(std::ssize(counts));
  if (how != "subjects") fold_of = distribute(shares, folds);
  std::size_t s = 0;
  for (const auto& [id, of] : counts) out[fold_of[s++]].push_back(id);
  return out;
}

}  // namespace lockstep
