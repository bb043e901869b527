#pragma once
#include <string>
#include <string_view>

#include "lockstep/base/instantiate.hpp"
#include "lockstep/base/real.hpp"

/// The storage types for which a build has the kernels of ops: fp32 and those of the CMake option LOCKSTEP_CUDA_TYPES.
/// LOCKSTEP_FP64(...) is its argument if fp64 is one of them, and nothing otherwise; the same for halves.
/// Only files that are compiled per variant (has_cuda.hpp) may use these; all others ask cuda_types().
namespace lockstep {

/// The storage types of this program's kernels for GPUs: "fp32,bf16".
std::string cuda_types();
/// errors  Error (usage) if `types` lacks the type "f64", "bf16" or "f16"
void require_cuda_type(std::string_view dtype, const std::string& types = cuda_types());

template <class T>
inline constexpr bool kHasCudaType = true;

#ifdef LOCKSTEP_CUDA_OMITS_FP64
#define LOCKSTEP_FP64(...)
template <>
inline constexpr bool kHasCudaType<double> = false;
#else
#define LOCKSTEP_FP64(...) __VA_ARGS__
#endif
#ifdef LOCKSTEP_CUDA_OMITS_BF16
#define LOCKSTEP_BF16(...)
template <>
inline constexpr bool kHasCudaType<bf16> = false;
#else
#define LOCKSTEP_BF16(...) __VA_ARGS__
#endif
#ifdef LOCKSTEP_CUDA_OMITS_FP16
#define LOCKSTEP_FP16(...)
template <>
inline constexpr bool kHasCudaType<f16> = false;
#else
#define LOCKSTEP_FP16(...) __VA_ARGS__
#endif

}  // namespace lockstep

/// Instantiates function templates for the storage types of this build.
#define LOCKSTEP_EACH_STORAGE(...) LOCKSTEP_FOR_EACH(LOCKSTEP_IN_STORAGES, __VA_ARGS__)
#define LOCKSTEP_IN_STORAGES(name)                             \
  template decltype(name<float>) name<float>;                  \
  LOCKSTEP_FP64(template decltype(name<double>) name<double>;) \
  LOCKSTEP_BF16(template decltype(name<bf16>) name<bf16>;)     \
  LOCKSTEP_FP16(template decltype(name<f16>) name<f16>;)
