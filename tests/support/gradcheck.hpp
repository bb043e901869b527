#pragma once
#include <functional>
#include <vector>

#include "lockstep/nn/tape.hpp"

namespace lockstep::test {

/// Where a check runs: functions whose own code touches elements are for the CPU.
enum class Where : std::uint8_t { every_device, cpu };

/// How far results in halves may be from those in f64, relative to the largest element (at least 1) of each result and
/// gradient. 0: not checked; say why at the call.
struct Halves {
  double bf16 = 0x1p-5;  ///< of 8 bits: some roundings one after another
  double f16 = 0x1p-8;   ///< of 11 bits
};

/// The largest difference between the gradients that a tape finds and 4th-order central differences, relative to the
/// largest gradient (at least 1).
///
/// The scalar that is differentiated is sum_i c_i y_i with c, the inputs and the parameters drawn from N(0, 1) by
/// `seed`. All in f64. An operation that adds to a gradient instead of storing it first, or the other way round, shows
/// up: the function runs twice on one tape, and the two results are added. Non-finite values give infinity.
///
/// `params`, if given, is an f64 store that the function reads; its gradients are checked as well.
///
/// Where there is a GPU the function also runs there (with the fastest instruction set chosen, so once for each case): its
/// result and gradients are compared with those of the CPU in the same way. What the function captures beside parameters
/// must be readable there: PinnedVector for indices. And it runs there in bf16 and f16, with inputs and parameters rounded:
/// results and gradients must be those in f64 of the same numbers, within `halves`, or the returned difference is at least
/// what was found.
double gradcheck(const std::function<Var(Tape&, const std::vector<Var>&)>& f, const std::vector<Shape>& inputs,
                 ParamStore* params = nullptr, std::uint64_t seed = 1, Where where = Where::every_device,
                 const Halves& halves = {});

}  // namespace lockstep::test
