#pragma once
#include "lockstep/device/cuda_launch.hpp"
#include "optim/sweep_kernels.hpp"

/// A device function for the update of one element. Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

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
template <class T, class Step>
__device__ void update_element(const Vectors<T>& x, std::int64_t at, std::int64_t state, bool moves, const Step& rule) {
  constexpr int kStates = Step::kStates;
  T p = x.p[at];
  if (moves) {
    T a = kStates > 0 ? x.state[0][state] : T{}, b = kStates > 1 ? x.state[1][state] : T{};
    rule(p, a, b, x.g[at]);
    if (kStates > 0) x.state[0][state] = a;
    if (kStates > 1) x.state[1][state] = b;
    x.p[at] = p;
  }
  if (x.shadow) {
    T shadow = x.shadow[at];
    ema_rule(shadow, p, x.decay, 1 - x.decay);
    x.shadow[at] = shadow;
  }
}

}  // namespace lockstep::optim_kernels::cuda
