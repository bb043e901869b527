#pragma once
#include <string>

#include "lockstep/train/run_config.hpp"
#include "lockstep/train/train_state.hpp"

namespace lockstep {

/// Names of the history's series that the rules read.
inline constexpr const char* kValidationLoss = "val_loss";
inline constexpr const char* kMeanAbsGradient = "jacobian.mean_abs_gradient";
inline constexpr const char* kFrobeniusNorm = "jacobian.frobenius_norm";

/// Counts an evaluation: since_best is 0 when the deciding figure is better than the last one that counted by more than
/// `least`, else one more.
void note_score(TrainState& state, double value, bool larger_is_better, double least);

/// Why the run should end after the epoch that the state has just completed, or "".
///   patience          since_best >= patience
///   loss plateau      epoch >= min_epochs and (max - min) / max of the last `window` validation losses < tolerance
///   jacobian plateau  the same for the mean absolute sensitivity, or else the Frobenius norm, with its own window, epochs and tolerance
std::string stop_reason(const RunConfig::Stop& rules, const TrainState& state);
/// The same by the mean training losses alone, asked after every epoch: with l_k the loss of epoch 10 k and c = (l_k - l_{k-2}) / l_{k-2},
/// a k with |c| < 0.005 or c > 0 counts, any other one starts the count again; 3 end the run.
/// source  baka-world/SASRec.pytorch, the early stop of main.py
std::string stop_reason_of_epoch(const RunConfig::Stop& rules, const TrainState& state);

}  // namespace lockstep
