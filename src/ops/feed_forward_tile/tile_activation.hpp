#pragma once
// Activations of a tile. GELU of f32 takes fewer instructions than that of activation_functions.hpp, which has a small relative error far into the negative tail
// too. Here the f32 error is absolute: that of a value near 1.
#include "lockstep/ops/activation.hpp"
#include "ops/activation/activation_functions.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

#if defined(LOCKSTEP_ISA_avx512)
/// g(u) = u Phi(-u) for u = (i + t) 3/16 in interval i, |t| <= 1/2: coefficients of t^d, a Chebyshev fit per interval
/// (the first one with g(0) = 0 and g'(0) = 1/2 exactly). |error of g| < 2e-8, of g' < 1.1e-7. One permutation of two
/// registers looks a coefficient up for 16 lanes.
alignas(64) constexpr float kGeluTable[6][32] = {
    {0.0f,           7.980643e-02f,   1.3268633e-01f, 1.6137433e-01f, 1.6997051e-01f, 1.6336004e-01f,
     1.4658134e-01f, 1.24261916e-01f, 1.002108e-01f,  7.720924e-02f,  5.699318e-02f,  4.0383913e-02f,
     2.7505063e-02f, 1.8024355e-02f,  1.1372677e-02f, 6.912847e-03f,  4.049694e-03f,  2.287166e-03f,
     1.2456398e-03f, 6.543242e-04f,   3.3156484e-04f, 1.620969e-04f,  7.646405e-05f,  3.4805948e-05f,
     1.528953e-05f,  6.481939e-06f,   2.6522066e-06f, 1.0474165e-06f, 3.9926056e-07f, 1.4690323e-07f,
     5.2174144e-08f, 1.7887016e-08f},
    {9.375e-02f,      6.60255e-02f,    4.0197108e-02f,  1.7872205e-02f,  1.4517721e-04f,  -1.2516764e-02f,
     -2.0262508e-02f, -2.3738027e-02f, -2.3900473e-02f, -2.1815654e-02f, -1.8483358e-02f, -1.4718717e-02f,
     -1.1098077e-02f, -7.961023e-03f,  -5.450349e-03f,  -3.569424e-03f,  -2.239809e-03f,  -1.34836e-03f,
     -7.7947456e-04f, -4.3304116e-04f, -2.313406e-04f,  -1.1890085e-04f, -5.8817364e-05f, -2.8013112e-05f,
     -1.2849218e-05f, -5.6775025e-06f, -2.417096e-06f,  -9.916644e-07f,  -3.921371e-07f,  -1.4947659e-07f,
     -5.4931686e-08f, -1.9464071e-08f},
    {-1.402531e-02f,  -1.35386735e-02f, -1.2153825e-02f, -1.0078899e-02f, -7.6093115e-03f, -5.0660935e-03f,
     -2.7351123e-03f, -8.2193245e-04f,  5.6916167e-04f,  1.4313321e-03f,  1.8325923e-03f,  1.8840602e-03f,
     1.7086436e-03f,  1.417016e-03f,    1.0938754e-03f,  7.939882e-04f,   5.453263e-04f,   3.5590318e-04f,
     2.2137802e-04f,  1.3152645e-04f,   7.4762786e-05f,  4.0710744e-05f,  2.1258176e-05f,  1.0653538e-05f,
     5.127503e-06f,   2.371408e-06f,    1.0543879e-06f,  4.508821e-07f,   1.8550011e-07f,  7.344695e-08f,
     2.7993996e-08f,  1.0273467e-08f},
    {-5.8399777e-08f, 3.20151e-04f,    5.9125334e-04f,   7.7526347e-04f,  8.529443e-04f,   8.263961e-04f,
     7.1605464e-04f,  5.5363146e-04f,  3.735179e-04f,    2.0522457e-04f,  6.863433e-05f,   -2.7358947e-05f,
     -8.336145e-05f,  -1.0633195e-04f, -1.06072795e-04f, -9.233822e-05f,  -7.3034775e-05f, -5.3524873e-05f,
     -3.675155e-05f,  -2.3806982e-05f, -1.4617293e-05f,  -8.534887e-06f,  -4.7506664e-06f, -2.5254753e-06f,
     -1.2840848e-06f, -6.251869e-07f,  -2.9174373e-07f,  -1.3058927e-07f, -5.6106305e-08f, -2.3150186e-08f,
     -9.17787e-09f,   -3.4974519e-09f},
    {8.2466504e-05f,  7.566093e-05f,  5.8034086e-05f, 3.3038683e-05f, 5.9155695e-06f,  -1.8179966e-05f, -3.5434463e-05f,
     -4.4097153e-05f, -4.452579e-05f, -3.866292e-05f, -2.921287e-05f, -1.8826497e-05f, -9.523157e-06f,  -2.4439116e-06f,
     2.0987275e-06f,  4.387028e-06f,  5.008484e-06f,  4.6079685e-06f, 3.7292855e-06f,  2.7490137e-06f,  1.8785483e-06f,
     1.2023459e-06f,  7.255359e-07f,  4.1463815e-07f, 2.2514874e-07f, 1.1644299e-07f,  5.7466313e-08f,  2.7102663e-08f,
     1.22300365e-08f, 5.285507e-09f,  2.1894935e-09f, 8.699582e-10f},
    {-5.8935944e-07f, -2.4941698e-06f, -4.4258195e-06f, -5.397028e-06f,   -5.2803e-06f,    -4.231508e-06f,
     -2.6132964e-06f, -8.652921e-07f,  6.278065e-07f,   1.6266215e-06f,   2.0652767e-06f,  2.0228429e-06f,
     1.6616335e-06f,  1.1607519e-06f,  6.6648994e-07f,  2.6877163e-07f,   1.2966104e-09f,  -1.4362216e-07f,
     -1.9563541e-07f, -1.8974363e-07f, -1.5586394e-07f, -1.14588616e-07f, -7.7314816e-08f, -4.853841e-08f,
     -2.8594648e-08f, -1.5896692e-08f, -8.372923e-09f,  -4.1905177e-09f,  -1.9973254e-09f, -9.081999e-10f,
     -3.945264e-10f,  -1.6391992e-10f},
};

/// y = max(a, 0) - g(|a|), and the derivative is g'(|a|) for a <= 0, 1 - g'(|a|) for a > 0. NaN stays NaN. Many of the
/// instructions are not multiplications, so the matrix products of the next block can proceed.
LOCKSTEP_INLINE void fast_gelu(F a, F& y, F& d) {
  const F magic = splat(0x1.8p23f), per_interval = splat(16.0f / 3);
  const F u = min(splat(5.9f), abs(a));
  const F shifted = fma(u, per_interval, magic);
  const F t = fma(u, per_interval, magic - shifted);
  const auto coefficient = [&](int k) {
    return (F)_mm512_permutex2var_ps(_mm512_load_ps(kGeluTable[k]), (__m512i)shifted,
                                     _mm512_load_ps(kGeluTable[k] + 16));
  };
  F dg = coefficient(5);
  F g = fma(dg, t, coefficient(4));
#pragma GCC unroll 8
  for (int k = 3; k >= 0; --k) {
    dg = fma(dg, t, g);
    g = fma(g, t, coefficient(k));
  }
  y = max(a, F{}) - g;
  dg = dg * per_interval;
  d = a > F{} ? splat(1.0f) - dg : dg;
}
#else
/// 2^x for x <= 0, relative error 2e-7 + 6e-8 |x|; not below 2^-126.
LOCKSTEP_INLINE F exp2_negative(F x) {
  const F magic = splat(0x1.8p23f);
  x = max(x, splat(-126.0f));
  const F shifted = x + magic;
  const F r = x - (shifted - magic);
  const F p = poly(r, 1.0000000716549844f, 0.6931469673685502f, 0.2402211976777794f, 0.055507130726960625f,
                   0.009675539146877798f, 0.001327650339029385f);
  return (F)((I)p + ((I)shifted << 23));
}
/// Phi(-x) = erfc(x/sqrt 2)/2 = exp(-x^2/2) t P(t), x = |a|, t = 1/(1 + 0.26 x): relative error 2e-8 of t P(t).
LOCKSTEP_INLINE void fast_gelu(F a, F& y, F& d) {
  const F x = abs(a), e = exp2_negative(a * a * splat(-0.72134752f));
  const F t = splat(1.0f) / fma(x, splat(0.26f), splat(1.0f));
  const F p = poly(t, 0.10376219056055007f, 0.10296493714452598f, 0.10339131109658106f, 0.049642581740522246f,
                   0.16415226352041468f, -0.15553568581858232f, 0.2554664777589194f, -0.154740171773511f,
                   0.030896085597801014f);
  const F tail = e * (t * p);
  y = fma(-x, tail, max(a, F{}));
  d = fma(a * splat(0.3989422804014327f), e, a > F{} ? splat(1.0f) - tail : tail);
}
#endif

struct FastGelu {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    if constexpr (sizeof(T) == 4)
      fast_gelu(a, y, d);
    else
      Gelu::apply<T>(a, y, d);
  }
};

namespace {

struct Identity {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    y = a;
    d = splat(T{1});
  }
};

/// f(value) in place, and f' into slope unless null, for `count` values.
template <class T>
using Act = void (*)(T* values, T* slopes, std::int64_t count);

template <class Op, class T>
void activate(T* values, T* slopes, std::int64_t count) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> value, slope;
  std::int64_t i = 0;
  if (slopes)
    for (; i + kL <= count; i += kL) {
      Op::template apply<T>(load(values + i), value, slope);
      store(values + i, value);
      store(slopes + i, slope);
    }
  else
#pragma GCC unroll 3
    for (; i + kL <= count; i += kL) {
      Op::template apply<T>(load(values + i), value, slope);
      store(values + i, value);
    }
  if (i == count) return;
  const Lanes<T> lanes(count - i);
  Op::template apply<T>(load(values + i, lanes), value, slope);
  store(values + i, value, lanes);
  if (slopes) store(slopes + i, slope, lanes);
}

template <class T>
Act<T> activation_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return activate<Identity, T>;
    case Activation::gelu:
      return activate<FastGelu, T>;
    case Activation::relu:
      return activate<Relu, T>;
    case Activation::tanh:
      return activate<Tanh, T>;
    case Activation::sigmoid:
      return activate<Sigmoid, T>;
    case Activation::leaky_relu:
      return activate<LeakyRelu, T>;
    case Activation::elu:
      return activate<Elu, T>;
    case Activation::silu:
      return activate<Silu, T>;
  }
  return nullptr;
}

}  // namespace
}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
