#pragma once
#include <functional>
#include <vector>

#include "lockstep/nn/tape.hpp"

namespace lockstep::test {

/// Where a check runs: functions whose own code touches elements are for the CPU.
enum class Where : std::uint8_t { every_device, cpu };

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
/// must be readable there: PinnedVector for indices.
double gradcheck(const std::function<Var(Tape&, const std::vector<Var>&)>& f, const std::vector<Shape>& inputs,
                 ParamStore* params = nullptr, std::uint64_t seed = 1, Where where = Where::every_device);

}  // namespace lockstep::test
