#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/near_copy.hpp"
#include "lockstep/ops/sample_rows.hpp"

/// The rows that SampleRows::room adds behind the samples.
namespace lockstep::gpu {

/// Blocks of a launch that fill these rows, beside those of the samples.
inline unsigned blocks_behind(const ops::SampleRows& rows) { return rows.room > 0 ? 8 : 0; }

/// y = `to`, or 0 where that is null, for elements begin .. end - 1. Called by `blocks` blocks of one dimension.
template <class T>
__device__ void fill_behind(T* y, const T* to, std::int64_t begin, std::int64_t end, std::int64_t block,
                            std::int64_t blocks) {
  for (std::int64_t i = begin + block * blockDim.x + threadIdx.x; i < end; i += blocks * blockDim.x)
    store(y + i, to != nullptr ? load(to + i) : real_t<T>{0});
}

/// Three arrays at once; null: none.
template <class T>
__global__ void __launch_bounds__(256)
    zero_behind_kernel(T* a, T* b, T* c, std::int64_t columns, const std::int64_t* used, std::int64_t rows) {
  for (T* x : {a, b, c})
    if (x != nullptr) fill_behind<T>(x, nullptr, *used * columns, rows * columns, blockIdx.x, gridDim.x);
}
template <class T>
void zero_behind(const Stream& stream, const ops::SampleRows& rows, std::int64_t columns, T* a, T* b = nullptr,
                 T* c = nullptr) {
  if (rows.room == 0) return;
  launch(stream, {.grid = blocks_behind(rows), .block = 256}, zero_behind_kernel<T>, a, b, c, columns,
         near_copy(rows.offsets.data() + rows.count()), rows.rows());
}

}  // namespace lockstep::gpu
