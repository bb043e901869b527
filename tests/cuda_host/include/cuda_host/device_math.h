#pragma once
#include <math.h>
#include <stdlib.h>

// Mathematical functions that CUDA offers in the global namespace besides <math.h>. The fast versions are exact here.
// Tolerances on a GPU must cover their errors.

#define CUDA_HOST_MIN_MAX(T)                          \
  constexpr T min(T a, T b) { return b < a ? b : a; } \
  constexpr T max(T a, T b) { return a < b ? b : a; }
CUDA_HOST_MIN_MAX(int)
CUDA_HOST_MIN_MAX(unsigned)
CUDA_HOST_MIN_MAX(long)
CUDA_HOST_MIN_MAX(unsigned long)
CUDA_HOST_MIN_MAX(long long)
CUDA_HOST_MIN_MAX(unsigned long long)
#undef CUDA_HOST_MIN_MAX
// As fmin and fmax: if one argument is NaN, the result is the other.
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
inline float normcdff(float x) { return 0.5f * ::erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752440); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(::sin(3.14159265358979323846 * x));
  *cosine = static_cast<float>(::cos(3.14159265358979323846 * x));
}

inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
// The C library's header already declares these names, so they are macros here.
namespace cuda_host {
inline float fast_expf(float x) { return ::expf(x); }
inline float fast_exp10f(float x) { return ::powf(10.0f, x); }
inline float fast_logf(float x) { return ::logf(x); }
inline float fast_log2f(float x) { return ::log2f(x); }
inline float fast_log10f(float x) { return ::log10f(x); }
inline float fast_sinf(float x) { return ::sinf(x); }
inline float fast_cosf(float x) { return ::cosf(x); }
inline float fast_tanf(float x) { return ::tanf(x); }
inline void fast_sincosf(float x, float* sine, float* cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}
inline float fast_powf(float x, float y) { return ::powf(x, y); }
}  // namespace cuda_host
#define __expf cuda_host::fast_expf
#define __exp10f cuda_host::fast_exp10f
#define __logf cuda_host::fast_logf
#define __log2f cuda_host::fast_log2f
#define __log10f cuda_host::fast_log10f
#define __sinf cuda_host::fast_sinf
#define __cosf cuda_host::fast_cosf
#define __tanf cuda_host::fast_tanf
#define __sincosf cuda_host::fast_sincosf
#define __powf cuda_host::fast_powf
inline float __fdividef(float a, float b) { return a / b; }

// Rounded to nearest, never contracted with neighbouring operations.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return ::sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))); }
inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return ::sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }

inline int __float2int_rn(float x) { return static_cast<int>(::nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(::floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(::ceilf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
