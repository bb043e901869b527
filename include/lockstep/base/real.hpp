#pragma once
#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"

namespace lockstep {

/// The type in which an operation computes on values stored as T: double for f64, float for f32, bf16 and f16.
template <class T>
struct real_of;
template <> struct real_of<float> { using type = float; };
template <> struct real_of<double> { using type = double; };
template <> struct real_of<bf16> { using type = float; };
template <> struct real_of<f16> { using type = float; };
template <class T>
using real_t = typename real_of<T>::type;

}  // namespace lockstep
