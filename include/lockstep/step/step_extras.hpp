#pragma once
#include <cstdint>

namespace lockstep {

/// Number of elements in front of a gradient that carry StepExtras, so that a step needs one reduction; 64 bytes of
/// f32.
inline constexpr std::int64_t kExtras = 16;

/// The scalars that a thread, shard or rank adds to a step. In a message, loss and weight take two elements each, a
/// coarse and a fine one, so that a sum in f32 keeps integral weights below 2^36 exact and the loss to 2^-40.
struct alignas(64) StepExtras {
  double loss = 0, weight = 0;
  unsigned flags = 0;  ///< StepFlag
  StepExtras& operator+=(const StepExtras& other) {
    loss += other.loss;
    weight += other.weight;
    flags |= other.flags;
    return *this;
  }
};
/// shapes  out, in (kExtras)
template <class T>
void encode(const StepExtras& extras, T* out);
template <class T>
StepExtras decode(const T* in);

}  // namespace lockstep
