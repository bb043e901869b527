#pragma once
// Element-wise and row operations: a functor that CPUs run with vectors and GPUs with packs of elements.
//
//   template <class T>
//   struct Scale {
//     T* y;
//     const T* x;
//     real_t<T> factor;
//     LOCKSTEP_MAP void operator()(const auto& at) const { at.put(y, factor * at.get(x)); }
//   };
//   LOCKSTEP_MAPS(Scale)
//
//   #ifndef LOCKSTEP_ISA
//   void scale(...) {
//     map(stream, {y, x}, [&]<class T>() { return Scale<T>{y, x, static_cast<real_t<T>>(factor)}; });
//   }
//   #endif
//
// `at` is one or more consecutive elements: at.get(p) are those of an array, at.put(p, value) stores them, at.put(p,
// value, accumulate) stores or adds. at.row is the row of map_rows(), whose elements then count from the pointer: a
// functor adds at.row times the distance of rows. A functor with a member `const T* reads(row)` has rows that are
// scattered in memory: CPUs prefetch them.
//
// LOCKSTEP_MAPS lists the functors that run on CPUs. A file under OPS in CMakeLists.txt is compiled for each
// instruction set, which defines LOCKSTEP_ISA, and once as a whole.
#include "lockstep/base/instantiate.hpp"
#include "lockstep/base/real.hpp"

#ifdef LOCKSTEP_ISA
#include <omp.h>

#include "ops/common/simd.hpp"

#define LOCKSTEP_MAP LOCKSTEP_INLINE
#define LOCKSTEP_MAPS(...) LOCKSTEP_FOR_EACH(LOCKSTEP_MAP_IN_FLOATS, __VA_ARGS__)
#define LOCKSTEP_MAP_IN_FLOATS(F)                                                           \
  template void cpu::LOCKSTEP_ISA::map<float>(std::int64_t, std::int64_t, const F<float>&); \
  template void cpu::LOCKSTEP_ISA::map<double>(std::int64_t, std::int64_t, const F<double>&);

namespace lockstep::ops {
LOCKSTEP_INLINE std::int64_t quotient(std::int64_t i, std::int64_t n) { return i / n; }
}  // namespace lockstep::ops

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

/// A vector of elements, or the first lanes of one.
template <class T, bool kWhole>
struct At {
  std::int64_t row, column;
  Lanes<T> lanes;
  LOCKSTEP_INLINE Vec<T> get(const T* p) const {
    if constexpr (kWhole)
      return load(p + column);
    else
      return load(p + column, lanes);
  }
  LOCKSTEP_INLINE void put(T* p, Vec<T> v) const {
    if constexpr (kWhole)
      store(p + column, v);
    else
      store(p + column, v, lanes);
  }
  LOCKSTEP_INLINE void put(T* p, Vec<T> v, bool accumulate) const { put(p, accumulate ? get(p) + v : v); }
  LOCKSTEP_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) const { return LOCKSTEP_ISA::fma(a, b, c); }
  /// 1 / sqrt(v + eps)
  LOCKSTEP_INLINE Vec<T> inverse_root(Vec<T> v, T eps) const { return splat(T{1}) / sqrt(v + splat(eps)); }
};

/// Runs f over `rows` rows of `columns` elements. Threads share many elements.
template <class T, class F>
void map(std::int64_t rows, std::int64_t columns, const F& f) {
  constexpr std::int64_t kShared = 1 << 15, kAhead = 8, kLine = 64 / sizeof(T), kL = kLanes<T>;
#pragma omp parallel for schedule(static) if (rows > 1 && rows * columns > kShared && !omp_in_parallel())
  for (std::int64_t row = 0; row < rows; ++row) {
    if constexpr (requires { f.reads(row); }) {
      if (row + kAhead < rows)
        for (std::int64_t c = 0; c < columns; c += kLine) __builtin_prefetch(f.reads(row + kAhead) + c);
    }
    std::int64_t i = 0;
    for (; i + kL <= columns; i += kL) f(At<T, true>{row, i, Lanes<T>(kL)});
    if (i < columns) f(At<T, false>{row, i, Lanes<T>(columns - i)});
  }
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <initializer_list>

#include "lockstep/ops/dispatch.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

#define LOCKSTEP_MAP __device__
#define LOCKSTEP_MAPS(...)

namespace lockstep::ops {

using gpu::quotient;

namespace cpu {

LOCKSTEP_EACH_ISA(template <class T, class F> void map(std::int64_t rows, std::int64_t columns, const F& f);)
template <class T, class F>
void active_map(std::int64_t rows, std::int64_t columns, const F& f) {
  LOCKSTEP_ACTIVE(map<T>(rows, columns, f));
}

}  // namespace cpu

/// Rows of consecutive elements. The distances of rows in all arrays are multiples of `grain`; 0: of `columns`.
struct MapRows {
  std::int64_t count, columns, grain = 0;
};
/// The arrays that a functor accesses, some perhaps empty. The first one gives the device and the type of elements.
using MapArrays = std::initializer_list<Tensor>;

/// Runs the functor make<T>() over rows of elements.
template <class Make>
void map_rows(const Stream& stream, const MapRows& rows, MapArrays arrays, const Make& make) {
  const Tensor& first = *arrays.begin();
  on_gpu(first, [&]<class T>() {
    const bool packed =
        gpu::packable(gpu::pack_size<T>(), arrays) && (rows.columns | rows.grain) % gpu::pack_size<T>() == 0;
    gpu::map<T>(stream, rows.count * rows.columns, packed, gpu::InRows(rows.columns, make.template operator()<T>()));
  });
  on_cpu(first, [&]<class T>() { cpu::active_map<T>(rows.count, rows.columns, make.template operator()<T>()); });
}

/// Runs the functor make<T>() over all elements of the first array.
template <class Make>
void map(const Stream& stream, MapArrays arrays, const Make& make) {
  const Tensor& first = *arrays.begin();
  on_gpu(first, [&]<class T>() {
    gpu::map<T>(stream, first.size(), gpu::packable(gpu::pack_size<T>(), arrays),
                gpu::InOneRow(make.template operator()<T>()));
  });
  on_cpu(first, [&]<class T>() { cpu::active_map<T>(1, first.size(), make.template operator()<T>()); });
}

}  // namespace lockstep::ops
#endif
