#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "sequences_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

template <class T>
struct AddToEach {
  T* y;
  const T *x, *table;
  std::int64_t e;
  template <int N>
  __device__ void at(std::int64_t i) const {
    gpu::Pack<real_t<T>, N> sum = gpu::load<N>(x + i);
    const gpu::Pack<real_t<T>, N> also = gpu::load<N>(table + gpu::remainder(i, e));
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += also.at[k];
    gpu::store(y + i, sum);
  }
};

}  // namespace

template <class T>
void add_to_each(const Stream& stream, std::int64_t n, std::int64_t e, T* y, const T* x, const T* table) {
  const bool packed = e % gpu::pack_size<T>() == 0 && gpu::aligned(y, x, table);
  gpu::map<T>(stream, n * e, packed, AddToEach<T>{y, x, table, e});
}
template <class T>
void sum_of_all(const Stream& stream, std::int64_t n, std::int64_t e, real_t<T>* table, const T* x, bool accumulate) {
  gpu::column_sums(stream, n, e, gpu::ColumnSums<real_t<T>, 1>{{table}, {accumulate}}, gpu::Plain<T>{x, e});
}

LOCKSTEP_EACH_STORAGE(add_to_each, sum_of_all)

}  // namespace lockstep::ops::cuda
