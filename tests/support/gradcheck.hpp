#pragma once
#include <functional>
#include <vector>

#include "lockstep/nn/tape.hpp"

namespace lockstep::test {

/// Where a check runs. Functions that access elements directly run on the CPU only.
enum class Where : std::uint8_t { every_device, cpu };

/// Tolerances of results in bf16 and f16 against f64, relative to the largest element (at least 1) of each result and
/// gradient. 0: not checked; state the reason at the call.
struct Halves {
  double bf16 = 0x1p-5;  ///< 8 significant bits, several roundings
  double f16 = 0x1p-8;   ///< 11 significant bits, several roundings
};

/// The largest difference between the tape's gradients and 4th-order central differences, relative to the largest
/// gradient (at least 1).
///
/// The differentiated scalar is sum_i c_i y_i, with c, inputs and parameters drawn from N(0, 1) by `seed`, all in f64.
/// The function runs twice on one tape and the results are added, which exposes an operation that adds to a gradient
/// instead of storing it, or vice versa. Non-finite values give infinity.
///
/// `params`, if given, is an f64 store that the function reads; its gradients are checked too.
///
/// If there is a GPU, the function also runs there (only while the fastest instruction set is active, so once per
/// case), and its result and gradients are compared with the CPU's in the same way. Values that it captures must be
/// readable there: use PinnedVector for indices. It then runs there in bf16 and f16 with rounded inputs and parameters;
/// if results or gradients differ from f64 with the same numbers by more than `halves`, the returned difference is at
/// least that.
double gradcheck(const std::function<Var(Tape&, const std::vector<Var>&)>& f, const std::vector<Shape>& inputs,
                 ParamStore* params = nullptr, std::uint64_t seed = 1, Where where = Where::every_device,
                 const Halves& halves = {});

/// The gradient of a parameter in host memory, with packed rows of a table in their places.
OwnedTensor unpacked(const Gradients& gradients, const Param& param);

}  // namespace lockstep::test
