#include "lockstep/device/staged_copy.hpp"
#include "ops/common/map_cuda.hpp"
#include "row_groups_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// Stores value / divisor in N elements of y, or adds it. Memory bound.
template <class T, int N>
__device__ void put(T* y, bool accumulate, Pack<real_t<T>, N> value, real_t<T> divisor = 1) {
#pragma unroll
  for (int k = 0; k < N; ++k) value.at[k] /= divisor;
  if (accumulate) {
    const Pack<real_t<T>, N> before = load<N>(y);
#pragma unroll
    for (int k = 0; k < N; ++k) value.at[k] = before.at[k] + value.at[k];
  }
  store(y, value);
}

template <class T>
struct Copy {
  T* y;
  bool accumulate;
  const T* x;
  std::int64_t columns, n;
  real_t<T> divisor;
  template <int N>
  __device__ void at(std::int64_t e) const {
    put(y + e, accumulate, load<N>(x + quotient(e, n * columns) * columns + remainder(e, columns)), divisor);
  }
};

template <class T>
struct Sum {
  T* y;
  bool accumulate;
  const T* x;
  std::int64_t columns, n;
  real_t<T> divisor;
  template <int N>
  __device__ void at(std::int64_t e) const {
    const T* from = x + quotient(e, columns) * n * columns + remainder(e, columns);
    Pack<real_t<T>, N> sum = {};
    for (std::int64_t i = 0; i < n; ++i) {
      const Pack<real_t<T>, N> row = load<N>(from + i * columns);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.at[k] += row.at[k];
    }
    put(y + e, accumulate, sum, divisor);
  }
};

template <class T>
struct Mask {
  T* y;
  bool accumulate;
  const T* x;
  std::int64_t columns;
  const std::int32_t* ids;
  template <int N>
  __device__ void at(std::int64_t e) const {
    put(y + e, accumulate, ids[quotient(e, columns)] != 0 ? load<N>(x + e) : Pack<real_t<T>, N>{});
  }
};

/// Whether rows are whole packs.
template <class T>
bool packed(std::int64_t columns, const T* y, const T* x) {
  return columns % pack_size<T>() == 0 && aligned(y, x);
}

}  // namespace

template <class T>
void copy_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
               const T* x, real_t<T> divisor) {
  map<T>(stream, rows * columns * n, packed(columns, y, x), Copy<T>{y, accumulate, x, columns, n, divisor});
}
template <class T>
void sum_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
              const T* x, real_t<T> divisor) {
  map<T>(stream, rows * columns, packed(columns, y, x), Sum<T>{y, accumulate, x, columns, n, divisor});
}
template <class T>
void mask_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, bool accumulate, const T* x,
               const std::int32_t* ids) {
  map<T>(stream, rows * columns, packed(columns, y, x), Mask<T>{y, accumulate, x, columns, staged_copy(ids)});
}

LOCKSTEP_EACH_STORAGE(copy_rows, sum_rows, mask_rows)

}  // namespace lockstep::ops::cuda
