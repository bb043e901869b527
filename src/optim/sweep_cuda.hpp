#pragma once
#include "lockstep/device/cuda_launch.hpp"
#include "optim/ema_rule.hpp"
#include "optim/sweep_kernels.hpp"

/// The update of one element, for the kernels that contain it. Compiled with -fmad=false, for the same bits as on the
/// CPU.
namespace lockstep::optim_kernels::cuda {

template <class T>
struct AdamRule {
  AdamStep<T> step;
  __device__ void operator()(T& p, T& m, T& v, T g) const { adam_rule(p, m, v, g, step); }
};
/// The flat vectors and the state vectors of the rule. `shadow` is null without an average.
template <class T>
struct Vectors {
  T* p;
  const T* g;
  T* state[2];
  T* shadow;
  T decay;
};

/// Updates element `at` of the flat vectors, with its state at `state`. Updates only the average unless `moves`.
template <int States, class T, class Rule>
__device__ void update_element(const Vectors<T>& x, std::int64_t at, std::int64_t state, bool moves, const Rule& rule) {
  T p = x.p[at];
  if (moves) {
    T a = States > 0 ? x.state[0][state] : T{}, b = States > 1 ? x.state[1][state] : T{};
    rule(p, a, b, x.g[at]);
    if (States > 0) x.state[0][state] = a;
    if (States > 1) x.state[1][state] = b;
    x.p[at] = p;
  }
  if (x.shadow) {
    T shadow = x.shadow[at];
    ema_rule(shadow, p, x.decay, 1 - x.decay);
    x.shadow[at] = shadow;
  }
}

}  // namespace lockstep::optim_kernels::cuda
