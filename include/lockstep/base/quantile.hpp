#pragma once

namespace lockstep {

/// The inverse of erf on (-1, 1), to 4 ulp; infinite at the ends.
double erf_inverse(double y);

/// The value of a truncated normal variable of standard deviation `std` at cumulative probability u in [0, 1]: a normal
/// one cut off at two of its own deviations and scaled so that the rest has this deviation.
double truncated_normal(double u, double std);

}  // namespace lockstep
