#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/train_state.hpp"

namespace lockstep {

/// The weights of the best evaluation, kept in memory until it is worth writing them: small models improve many times a second.
class BestWeights {
 public:
  /// Takes a copy of weights, average and state.
  void keep(const ParamStore& params, Ema* ema, const TrainState& state);
  /// Whether there is a copy that has not been written.
  bool pending() const { return pending_; }
  /// Calls write(state) while the weights (and the average) are those of the copy.
  void write(ParamStore& params, Ema* ema, const std::function<void(const TrainState&)>& write);

 private:
  std::vector<std::byte> values_, average_;
  TrainState state_;
  bool pending_ = false;
};

}  // namespace lockstep
