#pragma once
#include "lockstep/base/instantiate.hpp"
#include "lockstep/ops/isa.hpp"

/// Declares something in the namespace of each instruction set that kernels are compiled for (see lockstep_layer in
/// src/CMakeLists.txt).
#if defined(__x86_64__)
#define LOCKSTEP_EACH_ISA(...) \
  namespace generic {          \
  __VA_ARGS__                  \
  }                            \
  namespace avx2 {             \
  __VA_ARGS__                  \
  }                            \
  namespace avx512 {           \
  __VA_ARGS__                  \
  }
/// Evaluates an expression in the namespace of the active instruction set.
#define LOCKSTEP_ACTIVE(expression)                                                   \
  (::lockstep::ops::active_isa() == ::lockstep::ops::Isa::avx512 ? avx512::expression \
   : ::lockstep::ops::active_isa() == ::lockstep::ops::Isa::avx2 ? avx2::expression   \
                                                                 : generic::expression)
#elif defined(__aarch64__)
#define LOCKSTEP_EACH_ISA(...) \
  namespace generic {          \
  __VA_ARGS__                  \
  }                            \
  namespace asimd {            \
  __VA_ARGS__                  \
  }
#define LOCKSTEP_ACTIVE(expression) \
  (::lockstep::ops::active_isa() == ::lockstep::ops::Isa::asimd ? asimd::expression : generic::expression)
#else
#define LOCKSTEP_EACH_ISA(...) \
  namespace generic {          \
  __VA_ARGS__                  \
  }
#define LOCKSTEP_ACTIVE(expression) (generic::expression)
#endif

/// Declares `template <class T> const KERNELS<T>& name()` for each instruction set, and active_name<T>(), which calls
/// the one for the active instruction set.
#define LOCKSTEP_KERNELS(KERNELS, name)                           \
  LOCKSTEP_EACH_ISA(template <class T> const KERNELS<T>& name();) \
  template <class T>                                              \
  const KERNELS<T>& active_##name() {                             \
    return LOCKSTEP_ACTIVE(name<T>());                            \
  }
/// Defines name() for the instruction set of this file and instantiates it. The members of KERNELS<T> follow.
#define LOCKSTEP_KERNEL_TABLE(KERNELS, name, ...)         \
  template <class T>                                      \
  const KERNELS<T>& name() {                              \
    static constexpr KERNELS<T> kKernels = {__VA_ARGS__}; \
    return kKernels;                                      \
  }                                                       \
  LOCKSTEP_EACH_FLOAT(name)
