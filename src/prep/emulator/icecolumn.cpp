#include "lockstep/prep/emulator/icecolumn.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/prep/draw.hpp"

namespace lockstep::prep::icecolumn {

namespace {

constexpr double kIceConductivity = 2.03, kSnowConductivity = 0.31, kAirDensity = 1.3, kAirHeat = 1005.0,
                 kSublimation = 2.835e6, kTransfer = 1.75e-3, kEmissivity = 0.97, kStefanBoltzmann = 5.670374419e-8,
                 kAlbedo = 0.75, kGamma = 2.5, kShift = 0.8, kThickness = 0.35, kThinnest = 0.2, kPressure = 1e5,
                 kKelvin = 273.15;

struct WithSlope {
  double value, slope;
};

WithSlope freezing_point(double s) {
  const double root = std::sqrt(s);
  return {-0.0575 * s + 1.710523e-3 * s * root - 2.154996e-4 * s * s,
          -0.0575 + 1.5 * 1.710523e-3 * root - 2 * 2.154996e-4 * s};
}

/// Saturation specific humidity over ice; temperature in degC.
WithSlope saturation(double t) {
  const double e = 611.2 * std::exp(22.46 * t / (272.62 + t));
  const double de = e * 22.46 * 272.62 / ((272.62 + t) * (272.62 + t));
  const double below = kPressure - 0.378 * e;
  return {0.622 * e / below, 0.622 * de * kPressure / (below * below)};
}

double longwave(double t) {
  const double kelvin = t + kKelvin;
  return kStefanBoltzmann * kelvin * kelvin * kelvin * kelvin;
}

/// Net heat flux into the surface, and its derivative by the surface temperature.
WithSlope balance(double t, const Input& x, double tf, double k) {
  const auto& [sst, sss, tair, wind, qref, flwdn, fswdn, hi, hs] = x;
  static_cast<void>(sst), static_cast<void>(sss), static_cast<void>(hi), static_cast<void>(hs);
  const WithSlope q = saturation(t);
  const double sensible = kAirDensity * kAirHeat * kTransfer * wind,
               latent = kAirDensity * kSublimation * kTransfer * wind;
  const double kelvin = t + kKelvin;
  return {(1 - kAlbedo) * fswdn + kEmissivity * (flwdn - longwave(t)) + sensible * (tair - t) +
              latent * (qref - q.value) + k * (tf - t),
          -4 * kEmissivity * kStefanBoltzmann * kelvin * kelvin * kelvin - sensible - latent * q.slope - k};
}

double surface_temperature(const Input& x, double tf, double k) {
  double t = std::clamp(x[2], -60.0, 20.0);
  for (int i = 0; i < 100; ++i) {
    const WithSlope f = balance(t, x, tf, k);
    const double step = std::clamp(f.value / f.slope, -20.0, 20.0);
    t -= step;
    if (std::abs(step) < 1e-13 * (1 + std::abs(t))) break;
  }
  return t;
}

}  // namespace

Output evaluate(const Input& x, Jacobian* jacobian) {
  const auto& [sst, sss, tair, wind, qref, flwdn, fswdn, hi, hs] = x;
  static_cast<void>(flwdn), static_cast<void>(fswdn);
  const WithSlope tf = freezing_point(sss);
  const double k =
      kIceConductivity * kSnowConductivity / (kSnowConductivity * (hi + kThinnest) + kIceConductivity * hs);
  const double ts = surface_temperature(x, tf.value, k);
  const double tsfc = std::min(ts, 0.0);
  const double cold = 1 / (1 + std::exp(-kGamma * (tf.value + kShift - sst))), cover = 1 - std::exp(-hi / kThickness);
  const Output y = {cold * cover, tsfc, k * (tf.value - tsfc)};
  if (jacobian == nullptr) return y;

  const double slope = balance(ts, x, tf.value, k).slope;
  const double sensible = kAirDensity * kAirHeat * kTransfer, latent = kAirDensity * kSublimation * kTransfer;
  const double k_hi = -k * k / kIceConductivity, k_hs = -k * k / kSnowConductivity;
  const Input flux = {0,
                      k * tf.slope,
                      sensible * wind,
                      sensible * (tair - ts) + latent * (qref - saturation(ts).value),
                      latent * wind,
                      kEmissivity,
                      1 - kAlbedo,
                      k_hi * (tf.value - ts),
                      k_hs * (tf.value - ts)};
  const double sharp = kGamma * cold * (1 - cold) * cover;
  auto& [aice, surface, conduction] = *jacobian;
  aice = {-sharp, sharp * tf.slope, 0, 0, 0, 0, 0, cold * std::exp(-hi / kThickness) / kThickness, 0};
  for (std::size_t i = 0; i < kInputs; ++i) {
    surface[i] = ts <= 0 ? -flux[i] / slope : 0.0;
    conduction[i] = -k * surface[i];
  }
  conduction[1] += k * tf.slope;
  conduction[7] += k_hi * (tf.value - tsfc);
  conduction[8] += k_hs * (tf.value - tsfc);
  return y;
}

Input draw(std::uint64_t seed, std::uint64_t row) {
  Draws d(seed, row, "icecolumn");
  const double winter = std::pow(d.uniform(), 0.7);
  const double sss = std::clamp(33.5 + 1.2 * d.normal(), 26.0, 37.0);
  const double tair = std::clamp(4 - 32 * winter + 4 * d.normal(), -45.0, 8.0);
  const double tf = freezing_point(sss).value;
  const bool ice = d.uniform() < 0.6;
  const double sst = ice ? tf + 0.35 * std::abs(d.normal()) : tf + 0.4 + 3.5 * d.uniform();
  const double wind = 8 * std::sqrt(-std::log1p(-d.uniform()));
  const double qref = (0.6 + 0.4 * d.uniform()) * saturation(tair).value;
  const double cloud = d.uniform();
  const double flwdn = (0.68 + 0.25 * cloud) * longwave(tair);
  const double fswdn = (1 - winter) * (1 - 0.6 * cloud) * 450 * d.uniform();
  const bool thick = ice || d.uniform() < 0.3;
  const double hi = thick ? d.gamma(2, 0.75) : 0;
  const double hs = hi * d.gamma(1.5, 0.08);
  return {sst, sss, tair, wind, qref, flwdn, fswdn, hi, hs};
}

}  // namespace lockstep::prep::icecolumn
