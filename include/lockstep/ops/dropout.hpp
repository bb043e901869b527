#pragma once
#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Drops elements at random and scales up the rest to keep the expectation.
///
///   y_i = x_i keep_i / (1 - p),   keep_i = [u_i >= 65536 p]
///
/// p is the rate rounded to a multiple of 1/65536. u_i is uniform on 0..65535: 16 bits of Philox(seed, step, site,
/// sample) at the element's index within its sample, the same on every instruction set. The backward is the same call
/// on dy.
///
/// shapes   x, y (rows.rows(), ...); y may be x. Rows after the samples become 0. y is stored, or added to if
///          y.accumulate
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error if the shapes do not fit or the rate is not in [0, 1)
/// source   Srivastava et al. 2014 (inverted form)
void dropout(Stream&, Target y, const Tensor& x, const Dropout& dropout, const SampleRows& rows);
/// Drops the same elements of an activation y and of its derivative, in place, with one draw for both; then adds `base`
/// to y. derivative and base may be empty.
///
/// errors   Error if the shapes do not fit, the rate is not in [0, 1), or there is a derivative on a GPU
void dropout_both(Stream&, const Tensor& y, const Tensor& derivative, const Tensor& base, const Dropout& dropout,
                  const SampleRows& rows);

}  // namespace lockstep::ops
