#pragma once
#include <string>

#include "lockstep/checkpoint/train_state.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

/// Series of the history that the rules read.
inline constexpr const char* kValidationLoss = "val_loss";
inline constexpr const char* kMeanAbsGradient = "jacobian.mean_abs_gradient";
inline constexpr const char* kFrobeniusNorm = "jacobian.frobenius_norm";

/// Updates the state after an evaluation. If `value` (eval.best) improves on state.stop_best by more than `least`, it
/// becomes stop_best and since_best is set to 0; otherwise since_best grows by one.
void note_score(TrainState& state, double value, bool larger_is_better, double least);

/// Why the run must stop after the last evaluation, or "". With stop.rule = valid:
///
///   patience          since_best >= patience
///   loss plateau      epoch >= min_epochs and (max - min) / max of the last `window` validation losses < tolerance
///   jacobian plateau  as above, for the mean absolute sensitivity, else the Frobenius norm, with the jacobian_* fields
std::string stop_reason(const RunConfig::Stop& rules, const TrainState& state);
/// Why the run must stop after an epoch, or "", with stop.rule = train_loss. With l_k the mean training loss of epoch
/// 10 k and c_k = (l_k - l_{k-2}) / l_{k-2}, the run stops after 3 consecutive k with |c_k| < 0.005 or c_k > 0.
///
/// source  baka-world/SASRec.pytorch, the early stop of main.py
std::string stop_reason_of_epoch(const RunConfig::Stop& rules, const TrainState& state);

/// The reason of a run that no rule has ended: it has done its epochs or steps. More of them continue it.
std::string all_done(std::int64_t steps);

/// Whether work of `work_s` seconds would end after `limit_s` minus the time reserved for a checkpoint. The reserve is
/// twice the time of the slowest checkpoint so far, or a twentieth of the limit before the first one (0). Never true in
/// the first half of the limit, so that each start of a run makes progress.
///
/// limit_s  0: no limit
bool too_late(double used_s, double limit_s, double slowest_checkpoint_s, double work_s);

}  // namespace lockstep
