#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Repeats each row n times: y_(i n + k) = x_i. y is stored, or added when y.accumulate. The gradient of sum_rows.
///
/// shapes   x (N, C); y of N n C elements
/// dtypes   f32 | f64, on a GPU also bf16 | f16, equal
/// errors   Error naming the shapes if they do not fit
void copy_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// Sums groups of n rows: y_i = sum over k of x_(i n + k). y is stored, or added when y.accumulate. The gradient of
/// copy_rows.
///
/// shapes   y (N, C); x of N n C elements
/// dtypes   as copy_rows
/// errors   Error naming the shapes if they do not fit
void sum_rows(Stream&, Target y, const Tensor& x, std::int64_t n);
/// Masks rows: y_i = x_i where ids_i is not 0, else 0. y is stored, or added when y.accumulate. It is its own gradient.
///
/// shapes   x, y (N, C); ids (N)
/// dtypes   as copy_rows
/// errors   Error naming the shapes if they do not fit
void mask_rows(Stream&, Target y, const Tensor& x, std::span<const std::int32_t> ids);

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
