#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Cross-validation over subjects: the windows of all parts of a data set, tested on one fold and trained on the
/// others.
struct HarFolds {
  std::string how = "none";  ///< data.folds: none | subjects | a number of folds
  std::int64_t number = 0;   ///< data.fold: the fold that tests, from 1; 0: not chosen
  bool given() const { return how != "none"; }
};

/// The subjects of each fold, ascending. `subjects`: a fold for each. A number: whole subjects are distributed so that
/// the folds have nearly equal shares of all windows and of each class. Subjects are placed in descending size, each
/// into the fold where the sum of squared shares grows least; then pairs of subjects are swapped while that lowers it.
///
/// shapes  subject, label (n): of each window
/// errors  usage: more folds than subjects, fewer than 2; data: a window without subject or label. `source` names the
///         data set
std::vector<std::vector<std::int32_t>> stratified_folds(const std::string& how, std::span<const std::int32_t> subject,
                                                        std::span<const std::int32_t> label, const std::string& source);

}  // namespace lockstep
