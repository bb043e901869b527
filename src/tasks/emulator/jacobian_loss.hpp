#pragma once
#include "lockstep/tasks/emulator/emulator_task.hpp"

namespace lockstep {

/// The number of directions per row of jacobian_loss(): `directions`, but at most the smaller side of the Jacobian, and
/// all of that side if `directions` is 0.
std::int64_t jacobian_directions(std::int64_t directions, std::int64_t n_in, std::int64_t n_out);

/// The directions v of jacobian_loss() and the data set's products with them, in host memory that kernels can read.
struct JacobianTargets {
  Tensor directions;        ///< (K rows, shorter side of the Jacobian)
  Tensor products;          ///< (K rows, longer side), normalised
  JacobianSide side = {};   ///< the shorter side
  std::int64_t values = 1;  ///< divisor of the sum over directions, per row: n_in n_out, times K for an estimate
};
/// shard  keys of the random directions
JacobianTargets jacobian_targets(Arena& host, DType dtype, const EmulatorData& data, std::span<const std::int64_t> rows,
                                 const Shard& shard, std::int64_t directions);

/// `scale` times the mean over the elements of (J - J*)^2 in normalised units, summed over rows and recorded on the
/// tape. J is the Jacobian at a traced forward pass of these rows, J* that of the data set. With K random directions v
/// of signs +-1, functions of (seed, step, row), the mean is replaced by its unbiased estimate
///
///   1/(n_in n_out) 1/K sum_k |(J - J*) v_k|^2          (J^T, J*^T if n_out <= n_in)
///
/// source  Czarnecki et al. 2017, "Sobolev Training for Neural Networks", arXiv:1706.04859, sec. 2: the loss on
///         derivatives, and its projection onto random vectors for large Jacobians; signs: Hutchinson 1990
Var jacobian_loss(Tape& tape, const Emulator& emulator, const EmulatorTrace& trace, const JacobianTargets& targets,
                  double scale);

}  // namespace lockstep
