#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/train_state.hpp"

namespace lockstep {

/// A copy of the weights of the best evaluation. It delays writing best.h5, because small models improve many times a
/// second.
class BestWeights {
 public:
  /// Copies weights, average and state.
  void keep(const ParamStore& params, Ema* ema, const TrainState& state);
  /// Whether the copy has not been written yet.
  bool pending() const { return pending_; }
  /// Calls write(state) with the weights and the average replaced by the copy, then restores them.
  void write(ParamStore& params, Ema* ema, const std::function<void(const TrainState&)>& write);

 private:
  std::vector<std::byte> values_, average_;
  TrainState state_;
  bool pending_ = false;
};

}  // namespace lockstep
