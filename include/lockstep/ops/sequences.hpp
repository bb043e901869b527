#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Sums and means over whole sequences. The outermost axis of an array is the sequence n; e is an element of a
/// sequence.
///
///   add_to_each    y_ne = x_ne + table_e                 sum_of_all      table_e (+)= sum_n x_ne
///   mean_of_groups y_be (+)= sum_i x_(b G + i)e / G      spread_mean     x_(b G + i)e (+)= y_be / G,   i < G
///
/// The two functions of a row are each other's gradient. Sums run in an order that depends on the shapes alone.
///
/// shapes   x (N, ...); y as x, or (N / G, ...) for groups; table: as many elements as one sequence
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal; the table of sum_of_all is f32 for halves
/// errors   Error naming the shapes if they do not fit
void add_to_each(Stream&, const Tensor& y, const Tensor& x, const Tensor& table);
void sum_of_all(Stream&, Target table, const Tensor& x);
void mean_of_groups(Stream&, Target y, const Tensor& x);
void spread_mean(Stream&, Target x, const Tensor& y);

}  // namespace lockstep::ops
