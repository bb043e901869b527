#pragma once
#include <cstdint>

#include "dispatch.hpp"
#include "lockstep/ops/aggregate.hpp"
#include "philox_group.hpp"

namespace lockstep::ops::cpu {

/// Bits of AggregateRows::marks.
enum Mark : std::uint8_t { kFirst = 1, kSecond = 2, kKept = 4 };

/// Element-wise parts around the matrix products of a layer; row i of a, b, z and d belongs to node rows[i].
template <class T>
struct AggregateKernels {
  /// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s].
  void (*combine)(Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const T* x, const T* s);
  /// Groups 0 .. groups-1 of a stream, see philox_group.hpp.
  void (*draw)(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words);
  /// out = (f(z1 + bias1) + f(z2 + bias2)) keep scale; z2 null: without. Row i has its draws at draws + i stride; null:
  /// all are kept.
  void (*activate)(const RowSet& rows, std::int64_t width, T* out, std::uint8_t* marks, const T* z1, const T* bias1,
                   const T* z2, const T* bias2, T slope, const std::uint16_t* draws, std::int64_t stride,
                   std::int32_t threshold, T scale);
  /// d1 = dout keep scale f'(z1), d2 likewise; adds their column sums to dbias1 and dbias2.
  void (*derive)(const RowSet& rows, std::int64_t width, T* d1, T* d2, T* dbias1, T* dbias2, const T* dout,
                 const std::uint8_t* marks, T slope, T scale);
  /// From da (and db): the gradients of x and s, stored.
  void (*split)(Aggregator kind, const RowSet& rows, std::int64_t in, T* dx, T* ds, const T* da, const T* db,
                const T* x, const T* s);
};

LOCKSTEP_EACH_ISA(template <class T> AggregateKernels<T> aggregate_kernels();)

template <class T>
AggregateKernels<T> active_aggregate_kernels() {
  return LOCKSTEP_ACTIVE(aggregate_kernels<T>());
}

}  // namespace lockstep::ops::cpu
