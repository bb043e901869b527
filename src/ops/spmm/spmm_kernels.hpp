#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/spmm.hpp"

namespace lockstep::ops::cpu {

template <class T, class X>
struct SpmmArguments {
  T* y;
  bool accumulate;
  const std::int64_t* indptr;
  const std::int32_t* column;
  const T* values;
  const X* x;
  std::int64_t width;
  const std::uint64_t* columns;  ///< null: all
};

/// Computes rows [first, first + count) of the set.
template <class Arguments>
using SpmmKernel = void (*)(const Arguments& a, const RowSet& rows, std::int64_t first, std::int64_t count);

LOCKSTEP_EACH_ISA(template <class Arguments> SpmmKernel<Arguments> spmm_kernel();)

template <class Arguments>
SpmmKernel<Arguments> active_spmm_kernel() {
  return LOCKSTEP_ACTIVE(spmm_kernel<Arguments>());
}

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

template <class Arguments>
void spmm(const Stream& stream, const Arguments& a, const RowSet& rows);

}  // namespace lockstep::ops::cuda
