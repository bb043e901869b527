#include <algorithm>

#include "lockstep/base/hash.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/cuda_kernels.hpp"

namespace lockstep {

Ema::Ema(const ParamStore& params, double decay)
    : decay_(decay), shadow_(params.dtype(), Shape{params.flat_size()}, params.device(), MemoryUse::optimizer) {
  require_usage(decay >= 0 && decay < 1, "option optim.ema = ", decay, ": must be >= 0 and < 1");
  copy(Stream(params.device()), shadow_, params.values());
  for (const Param& p : params.all()) {
    views_.push_back({p.name, shadow_->slice(p.offset, p.shape.size()).reshaped(p.shape)});
  }
}

void Ema::update(const Tensor& values, std::int64_t begin, std::int64_t end) {
  visit_float(shadow_->dtype(), [&]<class T>() {
    optim_kernels::active_sweep<T>().ema(end - begin, shadow_->data<T>() + begin, values.data<T>() + begin,
                                         static_cast<T>(decay_));
  });
}

void Ema::exchange(ParamStore& params) {
  exchanged_ = !exchanged_;
  visit_float(shadow_->dtype(), [&]<class T>() {
    T *values = params.values().data<T>(), *shadow = shadow_->data<T>();
    const std::int64_t n = shadow_->size();
    if constexpr (kHasCuda) {
      if (shadow_->device().is_cuda())
        return optim_kernels::cuda::exchange(Stream(shadow_->device()), n, values, shadow);
    }
    std::swap_ranges(values, values + n, shadow);
  });
}

std::uint64_t Ema::hash() const {
  const HostView host(shadow_);
  return hash64(host->raw(), host->size_bytes());
}

}  // namespace lockstep
