#pragma once
#include <type_traits>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/feed_forward_tile.hpp"

namespace lockstep::ops::cpu {

LOCKSTEP_EACH_ISA(template <class T> const FeedForwardTile<T>& feed_forward_tile();
                  template <class T> const FeedForwardTile<T>& feed_forward_nodes(int nodes);)

/// The chains of a sum in a layer of at most NodeWeights::kFewRows values.
inline constexpr int kChains = 4;
/// f(std::integral_constant<int, i>) for i = 0 .. N - 1.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  if constexpr (N > 0) {
    unrolled<N - 1>(f);
    f(std::integral_constant<int, N - 1>{});
  }
}
/// add(s) for k = 0 .. depth - 1 in ascending order with s = k modulo S, a constant.
template <int S, class Add>
[[gnu::always_inline]] inline void for_chains(std::int64_t depth, const Add& add) {
  for (; depth >= S; depth -= S) unrolled<S>(add);
  unrolled<S - 1>([&](auto s) __attribute__((always_inline)) {
    if (s < depth) add(s);
  });
}
/// The sum of S chains.
template <int S, class Chain>
[[gnu::always_inline]] inline auto sum_of_chains(const Chain& chain) {
  static_assert(S == 1 || S == 4);
  if constexpr (S == 1)
    return chain(0);
  else
    return (chain(0) + chain(1)) + (chain(2) + chain(3));
}

/// Whether all `lanes` of a vector are 0; NaN is not.
template <class V>
[[gnu::always_inline]] inline bool all_zero(const V& v, int lanes) {
  for (int i = 0; i < lanes; ++i)
    if (!(v[i] == 0)) return false;
  return true;
}

}  // namespace lockstep::ops::cpu
