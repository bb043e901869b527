#include "cuda_map.hpp"
#include "row_groups_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// A thread per element of y. Memory bound.
template <class T, class Value>
__global__ void __launch_bounds__(256) put_kernel(std::int64_t size, T* __restrict__ y, bool accumulate, Value value) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < size; e += stride)
    y[e] = accumulate ? y[e] + value(e) : value(e);
}
template <class T, class Value>
void put(const Stream& stream, std::int64_t size, T* y, bool accumulate, const Value& value) {
  if (size > 0) launch(stream, grid_for(size), put_kernel<T, Value>, size, y, accumulate, value);
}

template <class T>
struct Copied {
  const T* x;
  std::int64_t columns, n;
  __device__ T operator()(std::int64_t e) const {
    return x[quotient(e, n * columns) * columns + remainder(e, columns)];
  }
};

template <class T>
struct Summed {
  const T* x;
  std::int64_t columns, n;
  __device__ T operator()(std::int64_t e) const {
    const T* from = x + quotient(e, columns) * n * columns + remainder(e, columns);
    T sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += from[k * columns];
    return sum;
  }
};

template <class T>
struct Masked {
  const T* x;
  std::int64_t columns;
  const std::int32_t* ids;
  __device__ T operator()(std::int64_t e) const { return ids[quotient(e, columns)] != 0 ? x[e] : T{0}; }
};

}  // namespace

template <class T>
void copy_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
               const T* x) {
  put(stream, rows * columns * n, y, accumulate, Copied<T>{x, columns, n});
}
template <class T>
void sum_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
              const T* x) {
  put(stream, rows * columns, y, accumulate, Summed<T>{x, columns, n});
}
template <class T>
void mask_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, bool accumulate, const T* x,
               const std::int32_t* ids) {
  put(stream, rows * columns, y, accumulate, Masked<T>{x, columns, ids});
}

template void copy_rows(const Stream&, std::int64_t, std::int64_t, std::int64_t, float*, bool, const float*);
template void sum_rows(const Stream&, std::int64_t, std::int64_t, std::int64_t, float*, bool, const float*);
template void mask_rows(const Stream&, std::int64_t, std::int64_t, float*, bool, const float*, const std::int32_t*);
template void copy_rows(const Stream&, std::int64_t, std::int64_t, std::int64_t, double*, bool, const double*);
template void sum_rows(const Stream&, std::int64_t, std::int64_t, std::int64_t, double*, bool, const double*);
template void mask_rows(const Stream&, std::int64_t, std::int64_t, double*, bool, const double*, const std::int32_t*);

}  // namespace lockstep::ops::cuda
