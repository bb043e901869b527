#pragma once
// GELU by a table in registers, for AVX-512; included by emulator_tile_simd.hpp inside its namespace.

/// g(u) = u Phi(-u) for u = (i + t) 3/8 in interval i, |t| <= 1/2: coefficients of t^d, a Chebyshev fit per interval
/// (the first one with g(0) = 0 and g'(0) = 1/2 exactly). |error of g| < 2e-8, of g' < 1e-7. One permutation looks a
/// coefficient up for 16 lanes.
alignas(64) constexpr float kGeluTable[7][16] = {
    {0.0f, 1.3268633e-01f, 1.6997051e-01f, 1.4658134e-01f, 1.002108e-01f, 5.699318e-02f, 2.7505064e-02f, 1.1372677e-02f,
     4.049694e-03f, 1.2456398e-03f, 3.315648e-04f, 7.646404e-05f, 1.5289528e-05f, 2.6522061e-06f, 3.9926041e-07f,
     5.2174112e-08f},
    {1.875e-01f, 8.039422e-02f, 2.9035928e-04f, -4.0525015e-02f, -4.780095e-02f, -3.696672e-02f, -2.2196155e-02f,
     -1.0900698e-02f, -4.479617e-03f, -1.5589489e-03f, -4.6268117e-04f, -1.1763477e-04f, -2.5698473e-05f,
     -4.834209e-06f, -7.8427973e-07f, -1.0986478e-07f},
    {-5.6101255e-02f, -4.8615333e-02f, -3.0437231e-02f, -1.0940409e-02f, 2.276676e-03f, 7.330374e-03f, 6.8345643e-03f,
     4.375491e-03f, 2.1813004e-03f, 8.8551163e-04f, 2.9905204e-04f, 8.503348e-05f, 2.0510393e-05f, 4.217687e-06f,
     7.4203825e-07f, 1.1198449e-07f},
    {-3.1026794e-08f, 4.7298735e-03f, 6.823406e-03f, 5.7284175e-03f, 2.9882223e-03f, 5.491507e-04f, -6.6687015e-04f,
     -8.485981e-04f, -5.842976e-04f, -2.940214e-04f, -1.169394e-04f, -3.800396e-05f, -1.0271541e-05f, -2.3334333e-06f,
     -4.4868176e-07f, -7.33802e-08f},
    {1.315085e-03f, 9.3002757e-04f, 9.403492e-05f, -5.6868326e-04f, -7.136757e-04f, -4.6758904e-04f, -1.5192044e-04f,
     3.4032375e-05f, 8.033946e-05f, 5.9687838e-05f, 3.0017432e-05f, 1.1575331e-05f, 3.5862856e-06f, 9.1378837e-07f,
     1.9411627e-07f, 3.4683065e-08f},
    {-6.376186e-07f, -1.4064556e-04f, -1.6802225e-04f, -8.350003e-05f, 1.9582581e-05f, 6.560179e-05f, 5.30352e-05f,
     2.1428374e-05f, 1.6558438e-07f, -6.2028507e-06f, -4.9809264e-06f, -2.4828632e-06f, -9.2230243e-07f,
     -2.7123832e-07f, -6.4992996e-08f, -1.28981315e-08f},
    {-2.6969234e-05f, -1.5896323e-05f, 6.640042e-06f, 1.8609087e-05f, 1.3519247e-05f, 1.910897e-06f, -4.8539514e-06f,
     -4.8476045e-06f, -2.1657122e-06f, -1.9497983e-07f, 4.2446575e-07f, 3.5515137e-07f, 1.710292e-07f, 6.0010514e-08f,
     1.6476722e-08f, 3.65795e-09f},
};

/// value = x Phi(x) = max(x, 0) - g(|x|), and where wanted slope = Phi(x) + x phi(x): g'(|x|) for x <= 0, 1 - g'(|x|)
/// for x > 0, from the same polynomial. NaN stays NaN. Half the instructions of an exponential and a rational function,
/// and a good part of them not in the multipliers that the matrix products of the next block are waiting for.
template <bool WithSlope>
[[gnu::always_inline]] inline void gelu_by_table(Vec<float> x, Vec<float>& value, Vec<float>& slope) {
  const Vec<float> magic = all(12582912.0f), per_interval = all(8.0f / 3);
  // The minimum's second operand is the one that it gives when one is NaN.
  const Vec<float> u = (Vec<float>)_mm512_maskz_min_ps(0xFFFF, (__m512)all(5.8f), (__m512)absolute(x));
  const Vec<float> shifted = fma(u, per_interval, magic);
  const Vec<float> t = fma(u, per_interval, magic - shifted);
  const auto coefficient = [&](int d) {
    return (Vec<float>)_mm512_maskz_permutexvar_ps(0xFFFF, (__m512i)shifted, _mm512_load_ps(kGeluTable[d]));
  };
  Vec<float> g = coefficient(6), dg = g;
  g = fma(g, t, coefficient(5));
#pragma GCC unroll 8
  for (int d = 4; d >= 0; --d) {
    if constexpr (WithSlope) dg = fma(dg, t, g);
    g = fma(g, t, coefficient(d));
  }
  value = larger(x, Vec<float>{}) - g;
  if constexpr (WithSlope) {
    dg = dg * per_interval;
    slope = x > Vec<float>{} ? all(1.0f) - dg : dg;
  }
}
