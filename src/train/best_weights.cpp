#include "train/best_weights.hpp"

#include <algorithm>

namespace lockstep {

namespace {

void copy_out(const Tensor& from, std::vector<std::byte>& to) {
  const HostView host(from);
  const auto* bytes = static_cast<const std::byte*>(host->raw());
  to.assign(bytes, bytes + from.size_bytes());
}

void exchange(const Tensor& tensor, std::vector<std::byte>& copy) {
  const HostView host(tensor, HostView::Access::write);
  std::swap_ranges(copy.begin(), copy.end(), static_cast<std::byte*>(host->raw()));
}

}  // namespace

void BestWeights::keep(const ParamStore& params, Ema* ema, const TrainState& state) {
  copy_out(params.values(), values_);
  if (ema != nullptr) copy_out(ema->flat(), average_);
  state_ = state;
  pending_ = true;
}

void BestWeights::write(ParamStore& params, Ema* ema, const std::function<void(const TrainState&)>& write) {
  const auto exchange_all = [&] {
    exchange(params.values(), values_);
    if (ema != nullptr) exchange(ema->flat(), average_);
  };
  exchange_all();
  try {
    write(state_);
  } catch (...) {
    exchange_all();
    throw;
  }
  exchange_all();
  pending_ = false;
}

}  // namespace lockstep
