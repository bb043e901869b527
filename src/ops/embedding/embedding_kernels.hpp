#pragma once
#include <cstdint>
#include <span>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep::ops::cuda {

/// Rows of a table; null: none.
template <class T>
struct FromTable {
  const T* table = nullptr;
  const std::int32_t* ids = nullptr;
  real_t<T> scale = 1;
};
/// See ops/embedding.hpp, for M rows of C columns.
template <class T>
void embedding_sum(const Stream& stream, std::int64_t m, std::int64_t c, T* y, FromTable<T> a, FromTable<T> b,
                   const Dropout& dropout, const SampleRows& rows, T* derivative);
/// y (M, 2 C), tables (2, R, C).
template <class T>
void embedding_pair(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, T* y, const T* tables,
                    const std::int32_t* ids, const Dropout& dropout, const SampleRows& rows);
template <class T>
void embedding_pair_backward(const Stream& stream, std::int64_t c, std::int64_t r, real_t<T>* dtables, const T* dy,
                             std::span<const std::int32_t> ids, const SampleRows& rows);
/// dtable (R, C): dtable[ids_m] += scale dy_m for m ascending, without ids of `padding`.
template <class T>
void embedding_backward(const Stream& stream, std::int64_t m, std::int64_t c, std::int64_t r, real_t<T>* dtable,
                        const T* dy, const std::int32_t* ids, real_t<T> scale, std::int64_t padding);

}  // namespace lockstep::ops::cuda
