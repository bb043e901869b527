#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::prep {

/// A sea-ice column whose surface temperature balances the heat fluxes; its exact Jacobian is known.
///
/// Inputs sst [degC], sss, tair [degC], wind [m/s], qref [kg/kg], flwdn, fswdn [W/m2], hi, hs [m];
/// outputs aice, tsfc [degC], fcond [W/m2].
///
///   aice  = sigmoid(gamma (Tf + dT0 - sst)) (1 - exp(-hi/h0)),
///           Tf(S) = -0.0575 S + 1.710523e-3 S^1.5 - 2.154996e-4 S^2
///   tsfc  = min(Ts, 0) with Ts the root of
///           (1-albedo) fswdn + emis (flwdn - sigma (Ts+273.15)^4) + rho cp CH U (tair-Ts)
///           + rho Ls CH U (qref-qs(Ts)) + k (Tf-Ts)
///   fcond = k (Tf - tsfc),   k = ki ks / (ks (hi + hmin) + ki hs)
namespace icecolumn {

inline constexpr std::size_t kInputs = 9, kOutputs = 3;
inline constexpr std::array<const char*, kInputs> kInputNames = {"sst",   "sss",   "tair", "wind", "qref",
                                                                 "flwdn", "fswdn", "hi",   "hs"};
inline constexpr std::array<const char*, kOutputs> kOutputNames = {"aice", "tsfc", "fcond"};
inline constexpr std::array<const char*, kInputs> kInputUnits = {"degC",  "1e-3",  "degC", "m s-1", "kg kg-1",
                                                                 "W m-2", "W m-2", "m",    "m"};
inline constexpr std::array<const char*, kOutputs> kOutputUnits = {"1", "degC", "W m-2"};

using Input = std::array<double, kInputs>;
using Output = std::array<double, kOutputs>;
using Jacobian = std::array<std::array<double, kInputs>, kOutputs>;

/// Outputs and, unless `jacobian` is null, dy/dx by the implicit function theorem. At Ts = 0 the derivative of the
/// frozen side applies.
Output evaluate(const Input& x, Jacobian* jacobian = nullptr);
/// Input number `row` of the random sequence of a seed.
Input draw(std::uint64_t seed, std::uint64_t row);

/// Writes columns as a NetCDF-4 sea-ice history file with one time step, as input for the reader. Land fills the last
/// row; wind becomes uatm_h with vatm_h = 0. errors  internal: not writable, disk full
void write_history(const std::filesystem::path& path, const std::vector<Input>& inputs,
                   const std::vector<Output>& outputs);

}  // namespace icecolumn
}  // namespace lockstep::prep
