#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep {

Ema::Ema(const ParamStore& params, double decay) : decay_(decay), shadow_(params.dtype(), Shape{params.flat_size()}) {
  require_usage(decay >= 0 && decay < 1, "option optim.ema = ", decay, ": must be >= 0 and < 1");
  const auto* values = static_cast<const std::byte*>(params.values().raw());
  std::copy_n(values, params.values().size_bytes(), static_cast<std::byte*>(shadow_->raw()));
  for (const Param& p : params.all()) {
    views_.push_back({p.name, shadow_->slice(p.offset, p.shape.size()).reshaped(p.shape)});
  }
}

void Ema::update(const Tensor& values, std::int64_t begin, std::int64_t end) {
  visit_float(shadow_->dtype(), [&]<class T>() {
    optim_kernels::active<T>().ema(end - begin, shadow_->data<T>() + begin, values.data<T>() + begin,
                                   static_cast<T>(decay_));
  });
}

void Ema::exchange(ParamStore& params) {
  auto* values = static_cast<std::byte*>(params.values().raw());
  std::swap_ranges(values, values + shadow_->size_bytes(), static_cast<std::byte*>(shadow_->raw()));
}

std::uint64_t Ema::hash() const { return hash64(shadow_->raw(), shadow_->size_bytes()); }

}  // namespace lockstep
