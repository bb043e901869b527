#pragma once
// Activations of arrays. This GELU takes fewer instructions than the one of activation_functions.hpp, but its error is
// small only in absolute terms (as for a value near 1); the other one also has a small relative error far into the
// negative tail. f64 without AVX-512 uses the other one.
#include "activation_functions.hpp"
#include "activation_kernels.hpp"
#include "ops/common/gelu_tail.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

#if defined(LOCKSTEP_ISA_avx512)
/// g(u) = u Phi(-u) for u = (i + t)/kPerUnit in interval i, |t| <= 1/2: row k has the coefficients of t^k, a Chebyshev
/// fit per interval (the first one with g(0) = 0 and g'(0) = 1/2 exactly). One permutation of two registers looks a
/// coefficient up for all lanes.
template <class T>
struct GeluTable;
/// |error of g| < 2e-8, of g' < 1.1e-7.
template <>
struct GeluTable<float> {
  static constexpr int kDegree = 5;
  static constexpr float kPerUnit = 16.0f / 3, kLimit = 5.9f, kRound = 0x1.8p23f;
  alignas(64) static constexpr float kRows[kDegree + 1][32] = {
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
      {8.2466504e-05f,  7.566093e-05f,   5.8034086e-05f, 3.3038683e-05f, 5.9155695e-06f,  -1.8179966e-05f,
       -3.5434463e-05f, -4.4097153e-05f, -4.452579e-05f, -3.866292e-05f, -2.921287e-05f,  -1.8826497e-05f,
       -9.523157e-06f,  -2.4439116e-06f, 2.0987275e-06f, 4.387028e-06f,  5.008484e-06f,   4.6079685e-06f,
       3.7292855e-06f,  2.7490137e-06f,  1.8785483e-06f, 1.2023459e-06f, 7.255359e-07f,   4.1463815e-07f,
       2.2514874e-07f,  1.1644299e-07f,  5.7466313e-08f, 2.7102663e-08f, 1.22300365e-08f, 5.285507e-09f,
       2.1894935e-09f,  8.699582e-10f},
      {-5.8935944e-07f, -2.4941698e-06f, -4.4258195e-06f, -5.397028e-06f,   -5.2803e-06f,    -4.231508e-06f,
       -2.6132964e-06f, -8.652921e-07f,  6.278065e-07f,   1.6266215e-06f,   2.0652767e-06f,  2.0228429e-06f,
       1.6616335e-06f,  1.1607519e-06f,  6.6648994e-07f,  2.6877163e-07f,   1.2966104e-09f,  -1.4362216e-07f,
       -1.9563541e-07f, -1.8974363e-07f, -1.5586394e-07f, -1.14588616e-07f, -7.7314816e-08f, -4.853841e-08f,
       -2.8594648e-08f, -1.5896692e-08f, -8.372923e-09f,  -4.1905177e-09f,  -1.9973254e-09f, -9.081999e-10f,
       -3.945264e-10f,  -1.6391992e-10f},
  };
};
/// |error of g| < 4e-18, of g' < 5e-16, both without the rounding of the sums.
template <>
struct GeluTable<double> {
  static constexpr int kDegree = 13;
  static constexpr double kPerUnit = 1.8125, kLimit = 8.5, kRound = 0x1.8p52;
  alignas(64) static constexpr double kRows[kDegree + 1][16] = {
      {0.0, 0.16031375714940696, 0.14887312655959845, 0.08101202424546106, 0.030147627473296457, 0.008006326438071455,
       0.001542307879119517, 0.00021710778225228684, 2.2416559989080463e-05, 1.7011416439426785e-06,
       9.499649862679626e-08, 3.9064954220392144e-09, 1.1835372571359021e-10, 2.6425616957265218e-12,
       4.3491859324314835e-14, 5.277085064711503e-16},
      {0.27586206896551724, 0.05602091124890752, -0.057688729760845464, -0.06558930807002351, -0.03500547061517722,
       -0.011914359231894194, -0.0027832923640437055, -0.00045941315763928063, -5.43556560995077e-05,
       -4.647534226687391e-06, -2.8862806332943306e-07, -1.3063401416276656e-08, -4.3191597081193917e-10,
       -1.0449900439081192e-11, -1.852482703992489e-13, -2.4085538181075682e-15},
      {-0.12143784040757047, -0.08841949955654729, -0.025843770160744593, 0.011413603378210081, 0.015264164572706877,
       0.007582249284547041, 0.0022697135616580755, 0.00045244054404098086, 6.2450422792423e-05, 6.087701349667598e-06,
       4.2393689917558257e-07, 2.124541311930529e-08, 7.700486069707648e-10, 2.025886300733847e-11,
       3.878919317724713e-13, 5.416121252733155e-15},
      {-2.451465382300573e-18, 0.019553848766152907, 0.01865084634986377, 0.005920825025924239, -0.0018785794239697155,
       -0.0024753385680642416, -0.0010733064008465346, -0.0002715908619955773, -4.489341577398522e-05,
       -5.068532349828935e-06, -3.9990399021471173e-07, -2.2351144581387274e-08, -8.927839685414206e-10,
       -2.5641808736672964e-11, -5.319008509412614e-13, -7.995366479108464e-15},
      {0.0061609368102138766, 0.00259511011262701, -0.0025477330577710826, -0.0030032228067746972,
       -0.000859551581481824, 0.0002962874232528626, 0.00030449212737820955, 0.00010846833763289285,
       2.2397361729893597e-05, 2.9945271490905597e-06, 2.7130866395735177e-07, 1.706239656981342e-08,
       7.557545695251154e-10, 2.3804917465074757e-11, 5.368264787679414e-13, 8.710398141415306e-15},
      {-8.738140088235132e-15, -0.0011873652070413332, -0.0006212068119670121, 0.0003310420020829255,
       0.0003893843632293243, 8.138104591451493e-05, -4.1186661932814145e-05, -2.8932991128875637e-05,
       -8.087017434477658e-06, -1.3247178141423109e-06, -1.4036593571385828e-07, -1.0044869838597485e-08,
       -4.970883453152005e-10, -1.7262611612421557e-11, -4.2487427122758903e-13, -7.46379184557534e-15},
      {-0.0002813079350419347, -5.274709382911761e-05, 0.00018858651876851095, 8.8159257698235e-05,
       -4.600612487345214e-05, -4.027413320386863e-05, -4.209486299707325e-06, 4.521164999613326e-06,
       2.1119679127535602e-06, 4.4967100244791844e-07, 5.722193129721663e-08, 4.728816846734931e-09,
       2.638791339918687e-10, 1.0166907034339956e-11, 2.743352758055256e-13, 5.235191004628828e-15},
      {-1.9242796509937563e-12, 5.078048577181943e-05, 7.976102637137063e-06, -2.616643509832717e-05,
       -8.039599962324549e-06, 5.915202653298889e-06, 3.160160862095483e-06, -5.266396545145812e-08,
       -3.725091519139084e-07, -1.1720955986541448e-07, -1.8687860723411956e-08, -1.8201033453099343e-09,
       -1.1588134664141578e-10, -4.991037736188273e-12, -1.4841974880483538e-13, -3.0884797083425757e-15},
      {1.0194061737493126e-05, -1.0993185704019287e-07, -7.521758615801517e-06, -1.1140267879253841e-07,
       3.0113807328867428e-06, 3.493825375338028e-07, -6.019413788444523e-07, -1.713320568119471e-07,
       3.03760621847757e-08, 2.2680286499411582e-08, 4.902268696940836e-09, 5.799284502602934e-10,
       4.278533809415192e-11, 2.079306468783148e-12, 6.856650961959524e-14, 1.5626735703796566e-15},
      {-6.633619684997611e-11, -1.654325503864922e-06, 2.659599845144411e-07, 8.748808826904648e-07,
       -1.5558576591680278e-07, -2.6118825494577295e-07, 1.893916459141063e-08, 4.439459041604244e-08,
       4.920175390230414e-09, -2.8534508955341166e-09, -1.0170016159356297e-09, -1.5356187417743305e-10,
       -1.3414388907549832e-11, -7.443484555301963e-13, -2.7419908116913638e-14, -6.878421381813526e-16},
      {-3.014754817226599e-07, 5.49967023388505e-08, 2.067002021254953e-07, -7.885395566791086e-08,
       -7.090999007705789e-08, 3.039824315709419e-08, 1.488419787901374e-08, -4.455371121582664e-09,
       -2.2098313638940498e-09, 7.364309115000672e-11, 1.58167188391596e-10, 3.35859230537221e-11,
       3.5867119244794014e-12, 2.307152175246349e-13, 9.574916445214937e-15, 2.657091565770006e-16},
      {-4.4531764267971896e-10, 4.322833452610947e-08, -1.8908349110121753e-08, -1.7109537714589218e-08,
       1.2284911490299577e-08, 2.877941062102935e-09, -3.0587284969966976e-09, -3.5868701878764484e-10,
       3.6321823086885453e-10, 6.361584231727036e-11, -1.515921941756817e-11, -5.930045074184936e-12,
       -8.172722540431808e-13, -6.231496498715756e-14, -2.949722910808326e-15, -9.130041795273531e-17},
      {8.111478222223176e-09, -2.423563917958531e-09, -4.1270203515622135e-09, 3.228393851926738e-09,
       5.249213660125922e-10, -1.1236882041979707e-09, 8.904595654564943e-11, 1.783226979702416e-10,
       -1.7194259349205802e-11, -1.681896725117755e-11, -3.25738241053376e-13, 7.909563569722467e-13,
       1.5975898597376982e-13, 1.51320371650425e-14, 8.410530704181852e-16, 2.9708293002599885e-17},
      {-4.648436551489381e-10, -9.231885402092753e-10, 6.222970636443202e-10, 1.6201421886049628e-10,
       -3.2890478240171923e-10, 6.576286755745045e-11, 5.761674990824628e-11, -2.0934989428601777e-11,
       -5.198466421906191e-12, 2.0537683023541854e-12, 4.3310069592699845e-13, -6.207094371431911e-14,
       -2.5054123102128552e-14, -3.0650555452308094e-15, -2.011170023224573e-16, -8.064455915460255e-18},
  };
};

/// The coefficients of row k, in two registers that serve several vectors.
template <class T>
struct GeluRow {
  Vec<T> low, high;
  LOCKSTEP_INLINE explicit GeluRow(int k)
      : low(load(GeluTable<T>::kRows[k])), high(load(GeluTable<T>::kRows[k] + kLanes<T>)) {}
  LOCKSTEP_INLINE Vec<T> at(Vec<T> interval) const {
    if constexpr (sizeof(T) == 4)
      return (Vec<T>)_mm512_permutex2var_ps((__m512)low, (__m512i)interval, (__m512)high);
    else
      return (Vec<T>)_mm512_permutex2var_pd((__m512d)low, (__m512i)interval, (__m512d)high);
  }
};

/// y = max(a, 0) - g(|a|), and the derivative is g'(|a|) for a <= 0, 1 - g'(|a|) for a > 0. NaN stays NaN. Many of the
/// instructions are not multiplications, so the matrix products of the next block can proceed.
template <class T, int N>
LOCKSTEP_INLINE void fast_gelu(const Vec<T> (&a)[N], Vec<T> (&y)[N], Vec<T> (&d)[N]) {
  using Table = GeluTable<T>;
  const Vec<T> round = splat(Table::kRound), per_unit = splat(Table::kPerUnit);
  Vec<T> interval[N], t[N], g[N], dg[N];
  const auto each = [](const auto& f) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) f(v);
  };
  const GeluRow<T> last(Table::kDegree), before(Table::kDegree - 1);
  each([&](int v) {
    const Vec<T> u = min(splat(Table::kLimit), abs(a[v]));
    interval[v] = fma(u, per_unit, round);
    t[v] = fma(u, per_unit, round - interval[v]);
    dg[v] = last.at(interval[v]);
    g[v] = fma(dg[v], t[v], before.at(interval[v]));
  });
#pragma GCC unroll 16
  for (int k = Table::kDegree - 2; k >= 0; --k) {
    const GeluRow<T> row(k);
    each([&](int v) {
      dg[v] = fma(dg[v], t[v], g[v]);
      g[v] = fma(g[v], t[v], row.at(interval[v]));
    });
  }
  each([&](int v) {
    y[v] = max(a[v], Vec<T>{}) - g[v];
    dg[v] = dg[v] * per_unit;
    d[v] = a[v] > Vec<T>{} ? splat(T{1}) - dg[v] : dg[v];
  });
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
  return (F)((FBits)p + ((FBits)shifted << 23));
}
/// By Phi(-|a|) = erfc(|a|/sqrt 2)/2, from kGeluTail.
LOCKSTEP_INLINE void fast_gelu(F a, F& y, F& d) {
  const F x = min(splat(kLargestDeviation<float>), abs(a)), e = exp2_negative(x * x * splat(-0.72134752f));
  const F t = splat(1.0f) / fma(x, splat(kGeluTailScale), splat(1.0f));
  constexpr auto& c = kGeluTail;
  const F p = poly(t, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]);
  const F tail = e * (t * p);
  y = fma(-x, tail, max(a, F{}));
  d = fma(with_sign(x, a) * splat(0.3989422804014327f), e, a > F{} ? splat(1.0f) - tail : tail);
}
template <class T, int N>
LOCKSTEP_INLINE void fast_gelu(const Vec<T> (&a)[N], Vec<T> (&y)[N], Vec<T> (&d)[N]) {
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v)
    if constexpr (sizeof(T) == 4)
      fast_gelu(a[v], y[v], d[v]);
    else
      Gelu::apply<T>(a[v], y[v], d[v]);
}
#endif

struct FastGelu {};

template <class Op, class T, int N>
LOCKSTEP_INLINE void apply(const Vec<T> (&a)[N], Vec<T> (&y)[N], Vec<T> (&d)[N]) {
  if constexpr (std::is_same_v<Op, FastGelu>)
    fast_gelu<T>(a, y, d);
  else
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) Op::template apply<T>(a[v], y[v], d[v]);
}

/// Applies Op to all whole groups of N vectors from element i on. Returns the first element that is left.
template <class Op, int N, class T>
LOCKSTEP_INLINE std::int64_t activate_groups(std::int64_t n, T* y, T* derivative, const T* x, std::int64_t i) {
  constexpr std::int64_t kL = kLanes<T>;
  for (; i + N * kL <= n; i += N * kL) {
    Vec<T> a[N], value[N], slope[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) a[v] = load(x + i + v * kL);
    apply<Op, T>(a, value, slope);
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      store(y + i + v * kL, value[v]);
      if (derivative) store(derivative + i + v * kL, slope[v]);
    }
  }
  return i;
}

/// y_i = f(x_i) and, unless derivative is null, derivative_i = f'(x_i). y may be x.
template <class Op, class T>
void activate(std::int64_t n, T* y, T* derivative, const T* x) {
  constexpr int kGroup = kVectorRegisters < 32 ? 1 : 4;
  std::int64_t i = 0;
  if (derivative) {
    i = activate_groups<Op, kGroup>(n, y, derivative, x, i);
    i = activate_groups<Op, 1>(n, y, derivative, x, i);
  } else {  // the compiler then omits the instructions that compute slopes
    i = activate_groups<Op, kGroup>(n, y, static_cast<T*>(nullptr), x, i);
    i = activate_groups<Op, 1>(n, y, static_cast<T*>(nullptr), x, i);
  }
  if (i == n) return;
  const Lanes<T> lanes(n - i);
  const Vec<T> a[1] = {load(x + i, lanes)};
  Vec<T> value[1], slope[1];
  apply<Op, T>(a, value, slope);
  store(y + i, value[0], lanes);
  if (derivative) store(derivative + i, slope[0], lanes);
}

/// f.template operator()<Op>() with the activation's Op, or null for Activation::none.
template <class Kernel, class F>
Kernel visit_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::none:
      return nullptr;
    case Activation::gelu:
      return f.template operator()<FastGelu>();
    case Activation::relu:
      return f.template operator()<Relu>();
    case Activation::tanh:
      return f.template operator()<Tanh>();
    case Activation::sigmoid:
      return f.template operator()<Sigmoid>();
    case Activation::leaky_relu:
      return f.template operator()<LeakyRelu>();
    case Activation::elu:
      return f.template operator()<Elu>();
    case Activation::silu:
      return f.template operator()<Silu>();
  }
  return nullptr;
}

struct Identity {
  template <class T>
  LOCKSTEP_INLINE static void apply(Vec<T> a, Vec<T>& y, Vec<T>& d) {
    y = a;
    d = splat(T{1});
  }
};

/// The activation's kernel, also for Activation::none.
template <class T>
ActivationKernel<T> kernel_of(Activation activation) {
  const ActivationKernel<T> kernel = activation_kernel<T>(activation);
  return kernel ? kernel : activate<Identity, T>;
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
