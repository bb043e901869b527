#include <limits>

#include "graph_attention_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
using gpu::kWholeWarp;
using gpu::Pack;
constexpr int kWarps = 8;

template <class T>
struct ShiftTanh {
  std::int64_t k;
  T* x;
  const T* y;
  template <int N>
  __device__ void at(std::int64_t i) const {
    Pack<real_t<T>, N> value = gpu::load<N>(x + i);
#pragma unroll
    for (int l = 0; l < N; ++l) value.at[l] = tanh(value.at[l] + gpu::load(y + gpu::remainder(i + l, k)));
    gpu::store(x + i, value);
  }
};

/// `lanes` lanes of a warp per triple, a power of two, 16 bytes each: for k = 64 in f32 half a warp, so that a warp
/// takes two triples at a time. Reads two rows of projections per triple, mostly from the second-level cache: heads are
/// in ascending order, tails are not.
template <class T, int V>
__global__ void __launch_bounds__(kWarp* kWarps)
    pair_dots_kernel(gpu::Earlier earlier, std::int64_t k, real_t<T>* __restrict__ logits, const T* __restrict__ heads,
                     const T* __restrict__ tails, RelationTriples triples, int lanes) {
  earlier.wait();
  const auto count = static_cast<std::int64_t>(triples.place.size());
  // mutant-equivalent: another thread or block does the same work
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int groups = kWarp * kWarps / lanes;  // mutant-equivalent: an element computed twice gets the same value
  // All lanes of a warp must stay for its shuffles.
  // mutant-equivalent: an element computed twice gets the same value
  for (std::int64_t base = std::int64_t{blockIdx.x} * groups; base < count; base += std::int64_t{gridDim.x} * groups) {
    const std::int64_t i = base + group;
    real_t<T> sum = 0;
    if (i < count) {
      const T *h = heads + triples.head_slot.data()[i] * k, *t = tails + triples.tail_slot.data()[i] * k;
      for (std::int64_t c = std::int64_t{lane} * V; c < k; c += std::int64_t{lanes} * V) {
        const Pack<real_t<T>, V> a = gpu::load<V>(h + c), b = gpu::load<V>(t + c);
#pragma unroll
        for (int v = 0; v < V; ++v) sum = fma(a.at[v], b.at[v], sum);
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, distance);
    if (i < count && lane == 0) logits[triples.place.data()[i]] = sum;
  }
}

/// One warp per head: a lane takes every 32nd entry with its triples, nearly always one. Three passes: the largest
/// logit, the exponentials and their sum (in f64), and the division. The last two read from the caches.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarps)
    attention_softmax_kernel(gpu::Earlier earlier, ParallelEdges parallel, const std::int64_t* __restrict__ row_ptr,
                             const std::int64_t* __restrict__ edge_ptr, std::int64_t first, std::int64_t last,
                             const T* __restrict__ logits, T* __restrict__ values) {
  earlier.wait();
  const std::int64_t row = first + std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (row >= last) return;
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t begin = row_ptr[row], end = row_ptr[row + 1];
  if (begin == end) return;
  const bool each = parallel == ParallelEdges::per_triple;
  T most = -std::numeric_limits<T>::infinity();
  for (std::int64_t e = begin + lane; e < end; e += kWarp) {
    T sum = 0;
    for (std::int64_t i = edge_ptr[e]; i < edge_ptr[e + 1]; ++i) {
      sum += logits[i];
      if (each) most = logits[i] > most ? logits[i] : most;  // mutant-equivalent: either of two equal values
    }
    if (!each) {
      values[e] = sum;
      most = sum > most ? sum : most;
    }
  }
  most = gpu::warp_reduce(most, gpu::Max{});
  double total = 0;
  for (std::int64_t e = begin + lane; e < end; e += kWarp) {
    T share = 0;
    if (each) {
      // mutant-equivalent: shares and their sum change sign together
      for (std::int64_t i = edge_ptr[e]; i < edge_ptr[e + 1]; ++i) share += exp(logits[i] - most);
    } else {
      share = exp(values[e] - most);
    }
    values[e] = share;
    total += static_cast<double>(share);
  }
  const T scale = static_cast<T>(1 / gpu::warp_reduce(total));
  for (std::int64_t e = begin + lane; e < end; e += kWarp) values[e] *= scale;
}

template <class T, int V>
void start_pair_dots(const Stream& stream, std::int64_t k, real_t<T>* logits, const T* heads, const T* tails,
                     const RelationTriples& triples) {
  int lanes = 1;
  while (lanes < kWarp && lanes * V < k) lanes *= 2;
  const auto count = static_cast<std::int64_t>(triples.place.size());
  gpu::launch(stream, gpu::grid_for(count * lanes, kWarp * kWarps), pair_dots_kernel<T, V>, k, logits, heads, tails,
              triples, lanes);
}

}  // namespace

template <class T>
void shift_tanh(const Stream& stream, std::int64_t rows, std::int64_t k, T* x, const T* y) {
  gpu::map<T>(stream, rows * k, gpu::aligned(x), ShiftTanh<T>{k, x, y});
}

template <class T>
void pair_dots(const Stream& stream, std::int64_t k, real_t<T>* logits, const T* heads, const T* tails,
               const RelationTriples& triples) {
  constexpr int V = gpu::pack_size<T>();
  if (k % V == 0 && gpu::aligned(heads, tails))
    start_pair_dots<T, V>(stream, k, logits, heads, tails, triples);
  else
    start_pair_dots<T, 1>(stream, k, logits, heads, tails, triples);
}

template <class T>
void attention_softmax(const Stream& stream, ParallelEdges parallel, const std::int64_t* row_ptr,
                       const std::int64_t* edge_ptr, std::int64_t first, std::int64_t last, const T* logits,
                       T* values) {
  gpu::launch(stream, {.grid = gpu::ceil_div(last - first, kWarps), .block = {kWarp, kWarps}},
              attention_softmax_kernel<T>, parallel, row_ptr, edge_ptr, first, last, logits, values);
}

LOCKSTEP_EACH_STORAGE(shift_tanh, pair_dots)
LOCKSTEP_EACH_FLOAT(attention_softmax)

}  // namespace lockstep::ops::cuda
