#pragma once
#include <cstdint>

#include "lockstep/base/named.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/ops/spmm.hpp"

namespace lockstep::ops {

/// How a node's embedding x and the sum s over its neighbours are combined into the next layer's embedding.
enum class Aggregator : std::uint8_t { bi_interaction, gcn, graphsage };
constexpr auto names_of(Aggregator) { return std::array{"bi-interaction", "gcn", "graphsage"}; }

/// One layer: its rule, weights and message dropout.
///
/// shapes   I inputs, O outputs: weight1 (O, I), for graphsage (O, 2I); weight2 (O, I) and bias2 (O) for bi_interaction
///          only; biases (O)
struct AggregateLayer {
  Aggregator kind = Aggregator::bi_interaction;
  double slope = 0.01;  ///< slope of LeakyReLU for x <= 0
  Tensor weight1, bias1, weight2, bias2;
  double dropout = 0;  ///< probability; 0: off
  /// Draw c of Philox(seed, step, site, n), 16 bits, alone decides whether column c of node n is dropped.
  std::uint64_t seed = 0, step = 0;
  Site site{std::uint32_t{0}};
  const std::uint64_t* step_on_gpu = nullptr;  ///< as in Dropout
};

/// Arrays with one row for each node. A call reads and writes only the rows in its row set.
struct AggregateRows {
  Tensor x, s;   ///< (N, I)
  Tensor out;    ///< (N, O)
  Tensor marks;  ///< u8 (N, O): bit 0 z1 > 0, bit 1 z2 > 0, bit 2 kept. Empty when no backward follows
};

/// One layer of message aggregation. For each row of `block`:
///
///   bi_interaction  o = f((x + s) W1' + b1) + f((x * s) W2' + b2)
///   gcn             o = f((x + s) W1' + b1)
///   graphsage       o = f([x, s] W1' + b1)
///   out = o keep / (1 - p)
///
/// Row i of `out` depends on row i of x and s and on the weights alone, in every bit. `scratch` holds the intermediate
/// values of all rows of the call, so a caller bounds memory by calling this function block by block. Threads may do so
/// concurrently, each with its own arena.
///
/// shapes   x, s (N, I); out, marks (N, O)
/// dtypes   f32 | f64, all equal. On a GPU weight1 and weight2 may be bf16 | f16 with everything else f32: the products
///          then read and write that type and sum in f32, and the gradients of the weights are f32
/// errors   Error naming the shapes if they do not fit
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 6-8
void aggregate_forward(Stream&, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                       const RowSet& block);

/// From dout (N, O), stores ds and dx (N, I) of the rows of `block`. dx lacks the gradient that flows back through the
/// neighbours' sums: the caller adds A' ds. The gradients of the weights are added to the tensors of `gradient`, row by
/// row in the order of `block`.
void aggregate_backward(Stream&, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                        const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                        const AggregateLayer& gradient);

}  // namespace lockstep::ops
