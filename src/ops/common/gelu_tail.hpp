#pragma once

namespace lockstep::ops {

/// erfc(x/sqrt 2)/2 = exp(-x^2/2) t P(t) for x >= 0, with t = 1/(1 + 0.26 x): P's coefficients, the lowest power first.
/// |relative error of t P(t)| < 2e-8. The same exponential gives the derivative of GELU.
///
/// source   the form: Hastings 1955, "Approximations for Digital Computers", sheet 43; the coefficients: a fit of the
///          least relative error
inline constexpr float kGeluTail[] = {0.10376219056055007f,  0.10296493714452598f, 0.10339131109658106f,
                                      0.049642581740522246f, 0.16415226352041468f, -0.15553568581858232f,
                                      0.2554664777589194f,   -0.154740171773511f,  0.030896085597801014f};
inline constexpr float kGeluTailScale = 0.26f;

}  // namespace lockstep::ops
