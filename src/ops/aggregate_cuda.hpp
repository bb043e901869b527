#pragma once
#include "lockstep/ops/aggregate.hpp"

/// Element-wise parts around the matrix products of a layer. Row i of a, b, z and d belongs to node rows[i]; what ends in 2
/// is null where a layer has one branch.
namespace lockstep::ops::cuda {

/// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s].
template <class T>
void combine(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const T* x,
             const T* s);

template <class T>
struct Branches {
  const T *z1, *bias1, *z2, *bias2;
  T slope;
};
/// out = (f(z1 + bias1) + f(z2 + bias2)) keep / (1 - p), and marks unless null.
template <class T>
void activate(const Stream& stream, const RowSet& rows, std::int64_t width, T* out, std::uint8_t* marks,
              const Branches<T>& branches, const AggregateLayer& layer);

/// d1 = dout keep f'(z1) / (1 - p), d2 likewise; adds their column sums to dbias1 and dbias2.
template <class T>
void derive(const Stream& stream, const RowSet& rows, std::int64_t width, T* d1, T* d2, T* dbias1, T* dbias2,
            const T* dout, const std::uint8_t* marks, T slope, T scale);

/// From da (and db): the gradients of x and s, stored.
template <class T>
void split(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, T* dx, T* ds, const T* da,
           const T* db, const T* x, const T* s);

}  // namespace lockstep::ops::cuda
