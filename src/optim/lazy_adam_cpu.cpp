#include <cmath>

#include "lockstep/base/instantiate.hpp"
#include "optim/lazy_adam_kernels.hpp"

namespace lockstep::optim_kernels::LOCKSTEP_ISA {

namespace {

/// Elements per block of a replay: three vectors of this length fit the L1 cache.
constexpr std::int64_t kBlock = 64;

template <class T>
bool all_zero(std::int64_t n, const T* x) {
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  for (std::int64_t i = 0; i < n; ++i) largest = x[i] == x[i] ? largest : T(1);
  return largest == 0;
}

/// Whether four times this step's move, and a move of kTiny, leave every p unchanged. Rounding is monotone, so smaller
/// moves also leave p unchanged.
template <class T>
bool at_rest(std::int64_t n, const T* p, const T* m, const T* v, T rate, T root, T eps) {
  std::int64_t moving = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T move = 4 * (rate * (m[i] / (std::sqrt(v[i]) * root + eps)));
    moving += !(p[i] - move == p[i] && p[i] - kTiny<T> == p[i] && p[i] + kTiny<T> == p[i]);
  }
  return moving == 0;
}

template <class T>
void replay_block(std::int64_t n, T* __restrict__ p, T* __restrict__ m, T* __restrict__ v,
                  const MissedSteps<T>& steps) {
  const MissedSteps<T> s = steps;
  std::int64_t t = 0;
  // With a zero first moment nothing moves. A row that never had a gradient has two zero moments.
  const bool moves = !all_zero(n, m);
  if (!moves && all_zero(n, v)) return;
  for (; moves && t < s.count; ++t) {
    const T rate = static_cast<T>(s.rate[kStride * t]), root = static_cast<T>(s.root[kStride * t]);
    for (std::int64_t i = 0; i < n; ++i) {
      const T mi = s.beta1 * m[i] + T(0);
      const T vi = s.beta2 * v[i] + T(0);
      m[i] = mi;
      v[i] = vi;
      p[i] = p[i] - rate * (mi / (std::sqrt(vi) * root + s.eps));
    }
    if (t % kLook == kLook - 1 && t >= s.calm_from && at_rest(n, p, m, v, rate, root, s.eps)) {
      ++t;
      break;
    }
  }
  for (; t < s.count; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      m[i] = s.beta1 * m[i] + T(0);
      v[i] = s.beta2 * v[i] + T(0);
    }
  }
}

template <class T>
void replay(std::int64_t n, T* p, T* m, T* v, const MissedSteps<T>& steps) {
  for (std::int64_t i = 0; i < n; i += kBlock)
    replay_block(n - i < kBlock ? n - i : kBlock, p + i, m + i, v + i, steps);
}

}  // namespace

template <class T>
ReplayKernel<T> replay_kernel() {
  return replay<T>;
}
LOCKSTEP_EACH_FLOAT(replay_kernel)

}  // namespace lockstep::optim_kernels::LOCKSTEP_ISA
