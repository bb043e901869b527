#include "lockstep/base/instantiate.hpp"
#include "ops/common/simd.hpp"
#include "optim/lazy_adam_kernels.hpp"

namespace lockstep::optim_kernels::LOCKSTEP_ISA {

namespace {

using ops::cpu::LOCKSTEP_ISA::any;
using ops::cpu::LOCKSTEP_ISA::kLanes;
using ops::cpu::LOCKSTEP_ISA::load;
using ops::cpu::LOCKSTEP_ISA::splat;
using ops::cpu::LOCKSTEP_ISA::sqrt;
using ops::cpu::LOCKSTEP_ISA::store;
using ops::cpu::LOCKSTEP_ISA::Vec;

/// Vectors of a block. p, m and v stay in registers for all steps, and the vectors' roots and divisions overlap.
constexpr int kVectors = 4;
template <class T>
constexpr std::int64_t kBlock = kVectors* kLanes<T>;

template <class T>
LOCKSTEP_INLINE bool all_zero(const Vec<T> (&x)[kVectors]) {
  bool found = false;  // a NaN is not 0
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) found |= any(x[i] != Vec<T>{});
  return !found;
}

/// Whether four times this step's move, and a move of kTiny, leave every p unchanged. Rounding is monotone, so smaller
/// moves also leave p unchanged.
template <class T>
LOCKSTEP_INLINE bool at_rest(const Vec<T> (&p)[kVectors], const Vec<T> (&m)[kVectors], const Vec<T> (&v)[kVectors],
                             Vec<T> rate, Vec<T> root, Vec<T> eps) {
  bool moving = false;
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    const Vec<T> move = T{4} * (rate * (m[i] / (sqrt(v[i]) * root + eps)));
    moving |= any(!((p[i] - move == p[i]) & (p[i] - kTiny<T> == p[i]) & (p[i] + kTiny<T> == p[i])));
  }
  return !moving;
}

template <class T>
void replay_block(T* to_p, T* to_m, T* to_v, const MissedSteps<T>& s) {
  const auto each = [](const auto& work) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) work(i, i * kLanes<T>);
  };
  Vec<T> p[kVectors], m[kVectors], v[kVectors];
  each([&](int i, std::int64_t at) {
    m[i] = load(to_m + at);
    v[i] = load(to_v + at);
  });
  // With a zero first moment nothing moves. A row that never had a gradient has two zero moments.
  const bool moves = !all_zero<T>(m);
  if (!moves && all_zero<T>(v)) return;
  each([&](int i, std::int64_t at) { p[i] = load(to_p + at); });
  const Vec<T> beta1 = splat(s.beta1), beta2 = splat(s.beta2), eps = splat(s.eps), zero{};
  std::int64_t t = 0;
  for (; moves && t < s.count; ++t) {
    const Vec<T> rate = splat(static_cast<T>(s.rate[kStride * t])), root = splat(static_cast<T>(s.root[kStride * t]));
    each([&](int i, std::int64_t) {
      m[i] = beta1 * m[i] + zero;
      v[i] = beta2 * v[i] + zero;
      p[i] = p[i] - rate * (m[i] / (sqrt(v[i]) * root + eps));
    });
    if (t % kLook == kLook - 1 && t >= s.calm_from && at_rest<T>(p, m, v, rate, root, eps)) {
      ++t;
      break;
    }
  }
  for (; t < s.count; ++t)
    each([&](int i, std::int64_t) {
      m[i] = beta1 * m[i] + zero;
      v[i] = beta2 * v[i] + zero;
    });
  each([&](int i, std::int64_t at) {
    store(to_p + at, p[i]);
    store(to_m + at, m[i]);
    store(to_v + at, v[i]);
  });
}

template <class T>
void replay(std::int64_t n, T* p, T* m, T* v, const MissedSteps<T>& steps) {
  std::int64_t i = 0;
  for (; i + kBlock<T> <= n; i += kBlock<T>) replay_block(p + i, m + i, v + i, steps);
  if (i == n) return;
  T rest[3][kBlock<T>] = {};
  for (T& x : rest[0]) x = 1;  // the padding of the block is at rest
  T* const from[] = {p + i, m + i, v + i};
  for (int a = 0; a < 3; ++a)
    for (std::int64_t c = 0; c < n - i; ++c) rest[a][c] = from[a][c];
  replay_block(rest[0], rest[1], rest[2], steps);
  for (int a = 0; a < 3; ++a)
    for (std::int64_t c = 0; c < n - i; ++c) from[a][c] = rest[a][c];
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(ReplayKernel, replay_kernel, replay<T>)

}  // namespace lockstep::optim_kernels::LOCKSTEP_ISA
