#pragma once
#include "lockstep/ops/aggregate.hpp"

namespace lockstep::test {

/// A layer of these weights, or the destinations of its gradients. Only bi_interaction has a second weight and bias.
inline ops::AggregateLayer aggregate_layer(ops::Aggregator kind, const Tensor& weight1, const Tensor& bias1,
                                           const Tensor& weight2, const Tensor& bias2, double dropout,
                                           double slope = 0.2) {
  const bool two = kind == ops::Aggregator::bi_interaction;
  return {.kind = kind,
          .slope = slope,
          .weight1 = weight1,
          .bias1 = bias1,
          .weight2 = two ? weight2 : Tensor(),
          .bias2 = two ? bias2 : Tensor(),
          .dropout = dropout,
          .seed = 3,
          .step = 4,
          .site = "test"};
}

}  // namespace lockstep::test
