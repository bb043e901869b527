#include "cuda_column_sums.hpp"
#include "cuda_map.hpp"
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

/// An element of a group's mean per thread.
template <class T>
struct Mean {
  T* y;
  const T* x;
  std::int64_t g, e;
  bool accumulate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const T* from = x + gpu::quotient(i, e) * g * e + gpu::remainder(i, e);
    real_t<T> sum = 0;
    for (std::int64_t k = 0; k < g; ++k) sum += gpu::load(from + k * e);
    sum /= static_cast<real_t<T>>(g);
    gpu::store(y + i, sum, accumulate);
  }
};

template <class T>
struct Spread {
  T* x;
  const T* y;
  std::int64_t g, e;
  bool accumulate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const real_t<T> part =
        gpu::load(y + gpu::quotient(i, g * e) * e + gpu::remainder(i, e)) / static_cast<real_t<T>>(g);
    gpu::store(x + i, part, accumulate);
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
template <class T>
void mean_of_groups(const Stream& stream, std::int64_t groups, std::int64_t g, std::int64_t e, T* y, const T* x,
                    bool accumulate) {
  gpu::map<T>(stream, groups * e, false, Mean<T>{y, x, g, e, accumulate});
}
template <class T>
void spread_mean(const Stream& stream, std::int64_t groups, std::int64_t g, std::int64_t e, T* x, const T* y,
                 bool accumulate) {
  gpu::map<T>(stream, groups * g * e, false, Spread<T>{x, y, g, e, accumulate});
}

#define LOCKSTEP_SEQUENCES(T)                                                                                \
  template void add_to_each(const Stream&, std::int64_t, std::int64_t, T*, const T*, const T*);              \
  template void sum_of_all(const Stream&, std::int64_t, std::int64_t, real_t<T>*, const T*, bool);           \
  template void mean_of_groups(const Stream&, std::int64_t, std::int64_t, std::int64_t, T*, const T*, bool); \
  template void spread_mean(const Stream&, std::int64_t, std::int64_t, std::int64_t, T*, const T*, bool);
LOCKSTEP_EACH_STORAGE(LOCKSTEP_SEQUENCES)
#undef LOCKSTEP_SEQUENCES

}  // namespace lockstep::ops::cuda
