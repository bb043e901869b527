#pragma once
#include <concepts>
#include <cstdint>

namespace lockstep {

/// A strided view of states: element [node j, variable i] is data[j * node_stride + i * variable_stride].
///
/// Nodes first (C order x[n][n_in], Fortran order x(n_in, n)): {x, ld, 1} with ld >= n_in. Variables first (x[n_in][n],
/// x(n, n_in)): {x, 1, ld}.
template <class S>
struct StateView {
  S* data = nullptr;
  std::int64_t node_stride = 0;
  std::int64_t variable_stride = 1;
  constexpr S& at(std::int64_t node, std::int64_t variable) const {
    return data[node * node_stride + variable * variable_stride];
  }
  StateView from(std::int64_t node) const { return {data + node * node_stride, node_stride, variable_stride}; }
  template <std::same_as<const S> C>
  operator StateView<C>() const {  // NOLINT: implicit on purpose
    return {data, node_stride, variable_stride};
  }
};

}  // namespace lockstep
