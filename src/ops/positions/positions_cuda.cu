#include "ops/common/map_cuda.hpp"
#include "positions_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::Pack;

template <class T>
bool packed(const Runs& runs, const T* a, const T* b) {
  constexpr int kPack = gpu::pack_size<T>();
  return runs.length % kPack == 0 && runs.stride % kPack == 0 && runs.offset % kPack == 0 && gpu::aligned(a, b);
}

/// Over the elements of y: one read, one write.
template <class T>
struct Take {
  Runs runs;
  T* y;
  const T* x;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t r = gpu::quotient(i, runs.length);
    gpu::store(y + i, gpu::load<N>(x + r * runs.stride + runs.offset + (i - r * runs.length)));
  }
};

/// Over the elements of dy: adds each to the element it was taken from.
template <class T>
struct AddBack {
  Runs runs;
  T* dx;
  const T* dy;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t r = gpu::quotient(i, runs.length);
    T* to = dx + r * runs.stride + runs.offset + (i - r * runs.length);
    Pack<real_t<T>, N> sum = gpu::load<N>(to);
    const Pack<real_t<T>, N> d = gpu::load<N>(dy + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum.at[k] += d.at[k];
    gpu::store(to, sum);
  }
};

/// Over the elements of dx: stores dy, or zero.
template <class T>
struct PutBack {
  Runs runs;
  T* dx;
  const T* dy;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t r = gpu::quotient(i, runs.stride), inside = i - r * runs.stride - runs.offset;
    Pack<real_t<T>, N> d{};
    if (inside >= 0 && inside < runs.length) d = gpu::load<N>(dy + r * runs.length + inside);
    gpu::store(dx + i, d);
  }
};

constexpr int kThreads = 256, kTiles = 8;

/// kTiles blocks per sequence, which return at once if starts_b is 0. Writes x; the row comes from the cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_sequences_kernel(gpu::Earlier earlier, std::int64_t elements, std::int64_t columns, T* __restrict__ x,
                          const T* __restrict__ row, const std::int32_t* starts) {
  earlier.wait();
  if (starts[blockIdx.x] == 0) return;
  T* to = x + blockIdx.x * elements;
  // mutant-equivalent: an element computed twice gets the same value
  for (std::int64_t i = std::int64_t{blockIdx.y} * kThreads + threadIdx.x; i < elements; i += kTiles * kThreads)
    to[i] = row[gpu::remainder(i, columns)];
}

}  // namespace

template <class T>
void take_runs(const Stream& stream, const Runs& runs, T* y, const T* x) {
  gpu::map<T>(stream, runs.count * runs.length, packed(runs, y, x), Take<T>{runs, y, x});
}

template <class T>
void take_runs_backward(const Stream& stream, const Runs& runs, T* dx, bool accumulate, const T* dy) {
  if (accumulate)
    gpu::map<T>(stream, runs.count * runs.length, packed(runs, dx, dy), AddBack<T>{runs, dx, dy});
  else
    gpu::map<T>(stream, runs.count * runs.stride, packed(runs, dx, dy), PutBack<T>{runs, dx, dy});
}

template <class T>
void fill_sequences(const Stream& stream, std::int64_t sequences, std::int64_t positions, std::int64_t columns, T* x,
                    const T* row, const std::int32_t* starts) {
  gpu::launch(stream, {.grid = {sequences, kTiles}, .block = kThreads}, fill_sequences_kernel<T>, positions * columns,
              columns, x, row, starts);
}

LOCKSTEP_EACH_STORAGE(take_runs, take_runs_backward, fill_sequences)

}  // namespace lockstep::ops::cuda
