#pragma once
// The Sinkhorn-Knopp iteration on vectors; sinkhorn_cuda.hpp is the same for a GPU.
#include "lockstep/ops/hyper_connections.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// One positive matrix K for each of kLanes tokens, and its iterates M_ab = row_a k_ab column_b, whose columns and rows
/// are divided alternately by their sums. Only the factors change, so half a step is a product of K with a vector and n
/// divisions, and the way back needs no division. kN is the extent if known at compile time; 0 means n.
template <class T, int kN>
struct Sinkhorn {
  static constexpr int kMost = kN > 0 ? kN : static_cast<int>(HyperConnection::kMostStreams);
  using Factor = Vec<T>[kMost];
  /// The factors after a step.
  struct Factors {
    Factor row, column;
  };
  Vec<T> k[kMost][kMost];

  /// One step: next.column_b = 1 / sum_a k_ab row_a, then next.row_a = 1 / sum_b k_ab next.column_b.
  LOCKSTEP_INLINE void step(int n, Factors& next, const Factor& row) const {
    Factor sums;
    multiply<true>(n, sums, row);
    invert(n, next.column, sums);
    multiply<false>(n, sums, next.column);
    invert(n, next.row, sums);
  }

  /// The gradient through a step with the result f. drow is the gradient of the step's row factors and becomes the
  /// gradient of the row factors before the step; dcolumn is the gradient of the column factors except the part through
  /// the rows. row_sums and column_sums receive the gradients of the step's sums, from which follows that of k_ab:
  /// row_sums_a column_b + row_a column_sums_b, where row_a is from before the step.
  LOCKSTEP_INLINE void undo(int n, Factor& drow, const Factor& dcolumn, const Factors& f, Factor& row_sums,
                            Factor& column_sums) const {
    for (int a = 0; a < n; ++a) row_sums[a] = -drow[a] * (f.row[a] * f.row[a]);
    multiply<true>(n, column_sums, row_sums);
    for (int b = 0; b < n; ++b) column_sums[b] = -(column_sums[b] + dcolumn[b]) * (f.column[b] * f.column[b]);
    multiply<false>(n, drow, column_sums);
  }

 private:
  /// out_a = 1 / v_a. Four reciprocals share a division, which takes as long as ten products. The product of the four
  /// sums of a step is between 1e-37 and 1e20, because K has elements from e^-10 to e^10.
  LOCKSTEP_INLINE static void invert(int n, Factor& out, const Factor& v) {
    if constexpr (kN == 4) {
      const Vec<T> low = v[0] * v[1], high = v[2] * v[3], all = splat(T{1}) / (low * high);
      const Vec<T> of_low = all * high, of_high = all * low;
      out[0] = of_low * v[1];
      out[1] = of_low * v[0];
      out[2] = of_high * v[3];
      out[3] = of_high * v[2];
    } else {
      for (int a = 0; a < n; ++a) out[a] = splat(T{1}) / v[a];
    }
  }
  /// out_a = sum_b k_ab v_b, or (kTransposed) sum_b k_ba v_b
  template <bool kTransposed>
  LOCKSTEP_INLINE void multiply(int n, Factor& out, const Factor& v) const {
    const auto at = [&](int a, int b) { return kTransposed ? k[b][a] : k[a][b]; };
#pragma GCC unroll 4
    for (int a = 0; a < n; ++a) {
      if constexpr (kN == 4) {  // two short chains instead of one long one: each step waits for the one before it
        out[a] = fma(at(a, 1), v[1], at(a, 0) * v[0]) + fma(at(a, 3), v[3], at(a, 2) * v[2]);
      } else {
        Vec<T> sum = at(a, 0) * v[0];
        for (int b = 1; b < n; ++b) sum = fma(at(a, b), v[b], sum);
        out[a] = sum;
      }
    }
  }
};

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
