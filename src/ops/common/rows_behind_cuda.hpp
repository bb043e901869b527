#pragma once
#include <cstdint>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/near_copy.hpp"
#include "lockstep/ops/sample_rows.hpp"

/// The rows after the samples, up to SampleRows::room.
namespace lockstep::gpu {

/// Blocks of a launch that fill these rows, besides the blocks of the samples.
inline unsigned blocks_behind(const ops::SampleRows& rows) { return rows.room > 0 ? 8 : 0; }

/// An array with rows `apart`, or null.
template <class T>
struct RowsOf {
  T* x;
  std::int64_t apart;
};
template <class T>
struct ThreeArrays {
  RowsOf<T> at[3];
};
template <class T>
__global__ void __launch_bounds__(256)
    zero_behind_kernel(gpu::Earlier earlier, ThreeArrays<T> arrays, std::int64_t columns, const std::int64_t* used,
                       std::int64_t rows) {
  earlier.wait();
  for (const RowsOf<T>& to : arrays.at)
    for (std::int64_t i = *used * columns + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
         to.x != nullptr && i < rows * columns; i += std::int64_t{gridDim.x} * blockDim.x)
      store(to.x + i / columns * to.apart + i % columns, real_t<T>{0});
}
/// Clears `columns` columns of these rows in up to three arrays.
template <class T>
void zero_behind(const Stream& stream, const ops::SampleRows& rows, std::int64_t columns,
                 const ThreeArrays<T>& arrays) {
  launch(stream, {.grid = blocks_behind(rows), .block = 256}, zero_behind_kernel<T>, arrays, columns,
         near_copy(rows.offsets.data() + rows.count()), rows.rows());
}

}  // namespace lockstep::gpu
