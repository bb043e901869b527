#pragma once
#include "lockstep/base/real.hpp"
#include "lockstep/ops/aggregate.hpp"

/// Element-wise parts around the matrix products of a layer. Row i of a, b, z and d belongs to node rows[i]; what ends in 2
/// is null where a layer has one branch. T: what the products read and write; all else is of type real_t<T>.
namespace lockstep::ops::cuda {

/// d1, d2 and what comes of them are this many times as large in f16, whose smallest numbers the gradients of a mean over
/// a batch would fall below.
template <class T>
inline constexpr real_t<T> kGradientScale = 1;
template <>
inline constexpr float kGradientScale<f16> = 4096;

/// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s].
template <class T>
void combine(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const real_t<T>* x,
             const real_t<T>* s);

template <class T>
struct Branches {
  const T* z1;
  const real_t<T>* bias1;
  const T* z2;
  const real_t<T>* bias2;
  real_t<T> slope;
};
/// out = (f(z1 + bias1) + f(z2 + bias2)) keep / (1 - p), and marks unless null.
template <class T>
void activate(const Stream& stream, const RowSet& rows, std::int64_t width, real_t<T>* out, std::uint8_t* marks,
              const Branches<T>& branches, const AggregateLayer& layer);

/// d1 = dout keep f'(z1) / (1 - p) kGradientScale, d2 likewise; adds their column sums, not scaled, to dbias1 and dbias2.
template <class T>
void derive(const Stream& stream, const RowSet& rows, std::int64_t width, T* d1, T* d2, real_t<T>* dbias1,
            real_t<T>* dbias2, const real_t<T>* dout, const std::uint8_t* marks, real_t<T> slope, real_t<T> scale);

/// From da (and db), kGradientScale times too large: the gradients of x and s, stored.
template <class T>
void split(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, real_t<T>* dx, real_t<T>* ds,
           const T* da, const T* db, const real_t<T>* x, const real_t<T>* s);

}  // namespace lockstep::ops::cuda
