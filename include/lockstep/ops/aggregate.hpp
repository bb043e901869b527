#pragma once
#include <cstdint>

#include "lockstep/base/philox.hpp"
#include "lockstep/ops/spmm.hpp"

namespace lockstep::ops {

/// How a node's embedding x and the sum s over its neighbours become the next layer's.
enum class Aggregator : std::uint8_t { bi_interaction, gcn, graphsage };

/// One layer: its rule, weights and message dropout.
///
/// shapes   I in, O out: weight1 (O, I), graphsage (O, 2I); weight2 (O, I) and bias2 (O) for bi_interaction only; biases (O)
struct AggregateLayer {
  Aggregator kind = Aggregator::bi_interaction;
  double slope = 0.01;  ///< of LeakyReLU for x <= 0
  Tensor weight1, bias1, weight2, bias2;
  double dropout = 0;  ///< probability; 0: off
  /// Column c of node n is dropped by 16-bit number c of Philox(seed, step, site, n), so by nothing but these.
  std::uint64_t seed = 0, step = 0;
  Site site{std::uint32_t{0}};
};

/// Arrays with a row for each node; only the rows that a call names are read or written.
struct AggregateRows {
  Tensor x, s;   ///< (N, I)
  Tensor out;    ///< (N, O)
  Tensor marks;  ///< u8 (N, O): bit 0 z1 > 0, bit 1 z2 > 0, bit 2 kept. Empty when no backward follows
};

/// For each row:
///
///   bi_interaction  o = f((x + s) W1' + b1) + f((x * s) W2' + b2)
///   gcn             o = f((x + s) W1' + b1)
///   graphsage       o = f([x, s] W1' + b1)
///   out = o keep / (1 - p)
///
/// A row depends on nothing but itself and the weights, in every bit. The caller's arena holds the intermediate values of
/// all rows of the call: call it block by block, on several threads, each with its arena.
///
/// dtypes   f32 | f64, all equal; on a GPU weight1 and weight2 may be bf16 | f16 while all else is f32: then the products
///          read and write that type, with sums in f32, and gradients of the weights are f32
/// source   Wang et al. 2019, arXiv:1905.07854, eq. 6-8
void aggregate_forward(Stream&, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                       const RowSet& block);

/// From d out (N, O): ds and dx (N, I) of the named rows are stored, dx without what comes back through the neighbours'
/// sums (the caller adds A' ds). Gradients of the weights (members of `gradient`) are added to, in the order of the rows.
void aggregate_backward(Stream&, Arena& scratch, const AggregateLayer& layer, const AggregateRows& rows,
                        const RowSet& block, const Tensor& dout, const Tensor& ds, const Tensor& dx,
                        const AggregateLayer& gradient);

}  // namespace lockstep::ops
