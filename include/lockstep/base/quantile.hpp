#pragma once

namespace lockstep {

/// Inverse of erf on (-1, 1), accurate to 4 ulp; infinite at -1 and 1.
double erf_inverse(double y);

/// Quantile function of a truncated normal variable at cumulative probability u in [0, 1]. The variable is a normal one
/// cut off at two of its own standard deviations and rescaled to standard deviation `std`.
double truncated_normal(double u, double std);

}  // namespace lockstep
