#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "ops/common/philox_group.hpp"

namespace lockstep::ops::cpu {

/// Bits of AggregateRows::marks.
enum Mark : std::uint8_t { kFirst = 1, kSecond = 2, kKept = 4 };

/// The element-wise kernels around the matrix products of a layer. Row i of a, b, z and d belongs to node rows[i].
template <class T>
struct AggregateKernels {
  /// bi_interaction: a = x + s, b = x * s. gcn: a = x + s. graphsage: a = [x, s].
  void (*combine)(Aggregator kind, const RowSet& rows, std::int64_t in, T* a, T* b, const T* x, const T* s);
  /// Draws groups 0 .. groups-1 of a stream; see philox_group.hpp.
  void (*draw)(const PhiloxKey& key, std::int64_t groups, std::uint32_t* words);
  /// out = (f(z1 + bias1) + f(z2 + bias2)) keep scale; a null z2 is left out. The draws of row i start at draws + i
  /// stride; null draws keep everything.
  void (*activate)(const RowSet& rows, std::int64_t width, T* out, std::uint8_t* marks, const T* z1, const T* bias1,
                   const T* z2, const T* bias2, T slope, const std::uint16_t* draws, std::int64_t stride,
                   std::int32_t threshold, T scale);
  /// d1 = dout keep scale f'(z1), and d2 likewise. Adds their column sums to dbias1 and dbias2.
  void (*derive)(const RowSet& rows, std::int64_t width, T* d1, T* d2, T* dbias1, T* dbias2, const T* dout,
                 const std::uint8_t* marks, T slope, T scale);
  /// Stores the gradients of x and s, computed from da (and db).
  void (*split)(Aggregator kind, const RowSet& rows, std::int64_t in, T* dx, T* ds, const T* da, const T* db,
                const T* x, const T* s);
};

LOCKSTEP_KERNELS(AggregateKernels, aggregate_kernels)

}  // namespace lockstep::ops::cpu

/// The element-wise kernels around the matrix products of a layer. Row i of a, b, z and d belongs to node rows[i].
/// Pointers that end in 2 are null if the layer has one branch. T is the type of the products' operands and results;
/// everything else has type real_t<T>.
namespace lockstep::ops::cuda {

/// Factor of d1, d2 and everything computed from them. Without it, in f16 the gradients of a mean over a batch would
/// fall below the smallest numbers.
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
/// out = (f(z1 + bias1) + f(z2 + bias2)) keep / (1 - p). Stores marks unless null.
template <class T>
void activate(const Stream& stream, const RowSet& rows, std::int64_t width, real_t<T>* out, std::uint8_t* marks,
              const Branches<T>& branches, const AggregateLayer& layer);

/// d1 = dout keep f'(z1) / (1 - p) kGradientScale, and d2 likewise. Adds their column sums, without kGradientScale, to
/// dbias1 and dbias2.
template <class T>
void derive(const Stream& stream, const RowSet& rows, std::int64_t width, T* d1, T* d2, real_t<T>* dbias1,
            real_t<T>* dbias2, const real_t<T>* dout, const std::uint8_t* marks, real_t<T> slope, real_t<T> scale);

/// Stores the gradients of x and s, computed from da (and db), which are kGradientScale times too large.
template <class T>
void split(const Stream& stream, Aggregator kind, const RowSet& rows, std::int64_t in, real_t<T>* dx, real_t<T>* ds,
           const T* da, const T* db, const real_t<T>* x, const real_t<T>* s);

}  // namespace lockstep::ops::cuda
