#include "lockstep/ops/graph_attention.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

template <class T>
struct GraphAttentionKernels {
  /// logits[place[i]] = heads[head_slot[i]] . tails[tail_slot[i]] for i < n, rows of k elements.
  void (*pair_dots)(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
                    const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot);
  /// The softmax of a row of at least one entry; entry e has triples edge_ptr[e] .. edge_ptr[e + 1] - 1. per_triple:
  /// over the triples, else over the entries.
  void (*softmax_row)(std::int64_t entries, const std::int64_t* edge_ptr, const T* logits, T* values, bool per_triple);
};

LOCKSTEP_KERNELS(GraphAttentionKernels, graph_attention_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/simd.hpp"
#include "ops/common/vecmath.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
LOCKSTEP_INLINE Vec<T> products(std::int64_t k, const T* a, const T* b) {
  Vec<T> sum[2] = {};
  std::int64_t c = 0;
  for (; c + 2 * kLanes<T> <= k; c += 2 * kLanes<T>) {
    sum[0] = fma(load(a + c), load(b + c), sum[0]);
    sum[1] = fma(load(a + c + kLanes<T>), load(b + c + kLanes<T>), sum[1]);
  }
  for (; c + kLanes<T> <= k; c += kLanes<T>) sum[0] = fma(load(a + c), load(b + c), sum[0]);
  if (c < k) {
    const Lanes<T> lanes(k - c);
    sum[1] = fma(load(a + c, lanes), load(b + c, lanes), sum[1]);
  }
  return sum[0] + sum[1];
}

/// Computes as many triples at a time as a vector has lanes: one transposition then sums the lanes of all of them.
/// kVectors > 0: a row is that many vectors, and a head stays in registers for all of its triples, which are
/// neighbours.
template <class T, int kVectors>
void pair_dots_of(std::int64_t n, std::int64_t columns, T* logits, const std::int64_t* place, const T* heads,
                  const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot) {
  constexpr int kL = kLanes<T>;
  constexpr std::int64_t kPrefetch = 16;
  const std::int64_t k = kVectors > 0 ? kVectors * kL : columns;
  Vec<T> head[kVectors + 1] = {};
  std::int32_t held = -1;
  for (std::int64_t i = 0; i < n; i += kL) {
    const std::int64_t count = n - i < kL ? n - i : kL;
    Vec<T> sums[kL];
    for (std::int64_t j = count; j < kL; ++j) sums[j] = Vec<T>{};
    for (std::int64_t j = 0; j < count; ++j) {
      if (i + j + kPrefetch < n) {
        const char* p = reinterpret_cast<const char*>(tails + tail_slot[i + j + kPrefetch] * k);
        for (std::int64_t b = 0; b < k * static_cast<std::int64_t>(sizeof(T)); b += 64) __builtin_prefetch(p + b);
      }
      const T *of_head = heads + head_slot[i + j] * k, *of_tail = tails + tail_slot[i + j] * k;
      if constexpr (kVectors == 0) {
        sums[j] = products(k, of_head, of_tail);
        continue;
      }
      if (head_slot[i + j] != held)
        for (int v = 0; v < kVectors; ++v) head[v] = load(of_head + v * kL);
      held = head_slot[i + j];
      Vec<T> sum[2] = {};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[v % 2] = fma(head[v], load(of_tail + v * kL), sum[v % 2]);
      sums[j] = sum[0] + sum[1];
    }
    T dots[kL];
    store(dots, sum_of<kL, T>(sums));
    for (std::int64_t j = 0; j < count; ++j) {
      std::int64_t to = place[i + j];
      asm("" : "+r"(to));  // keeps the compiler from a scatter instruction, which is slower on AMD processors
      logits[to] = dots[j];
    }
  }
}

template <class T>
void pair_dots(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
               const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot) {
  const auto dots = k == 4 * kLanes<T> ? pair_dots_of<T, 4> : pair_dots_of<T, 0>;
  dots(n, k, logits, place, heads, head_slot, tails, tail_slot);
}

/// to_i = exp(x_i - max x), and their sum.
template <class T>
double exponentials(std::int64_t n, T* to, const T* x) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> high = splat(x[0]);
  for (std::int64_t i = 0; i + kL <= n; i += kL) high = max(load(x + i), high);
  T most = largest_lane<T>(high);
  for (std::int64_t i = n / kL * kL; i < n; ++i) most = x[i] > most ? x[i] : most;
  double sum = 0;
  std::int64_t i = 0;
  for (; i + 2 * kL <= n; i += 2 * kL) {
    const Vec<T> a = exp(load(x + i) - most), b = exp(load(x + i + kL) - most);
    store(to + i, a);
    store(to + i + kL, b);
    sum += static_cast<double>(total<T>(a + b));
  }
  for (; i < n; i += kL) {
    const std::int64_t count = n - i < kL ? n - i : kL;
    const Lanes<T> lanes(count);
    store(to + i, exp(load(x + i, lanes) - most), lanes);
    for (std::int64_t c = 0; c < count; ++c) sum += static_cast<double>(to[i + c]);
  }
  return sum;
}

template <class T>
void softmax_row(std::int64_t entries, const std::int64_t* edge_ptr, const T* logits, T* values, bool per_triple) {
  const std::int64_t first = edge_ptr[0], triples = edge_ptr[entries] - first;
  const auto sum_edges = [&](const T* x) {
    for (std::int64_t e = 0; e < entries; ++e) {
      T sum{};
      for (std::int64_t i = edge_ptr[e] - first; i < edge_ptr[e + 1] - first; ++i) sum += x[i];
      values[e] = sum;
    }
  };
  double sum;
  if (triples == entries) {
    sum = exponentials(entries, values, logits + first);
  } else if (per_triple) {
    T* parts = static_cast<T*>(thread_scratch(Scratch::partial, static_cast<std::size_t>(triples) * sizeof(T)));
    sum = exponentials(triples, parts, logits + first);
    sum_edges(parts);
  } else {
    sum_edges(logits + first);
    sum = exponentials(entries, values, values);
  }
  const T scale = static_cast<T>(1 / sum);
  for (std::int64_t e = 0; e < entries; ++e) values[e] *= scale;
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(GraphAttentionKernels, graph_attention_kernels, pair_dots<T>, softmax_row<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>
#include <cassert>
#include <limits>

#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

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
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int groups = kWarp * kWarps / lanes;
  // All lanes of a warp must stay for its shuffles.
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
      if (each) most = logits[i] > most ? logits[i] : most;
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

/// Chunk sizes per thread: projected nodes, and triples.
constexpr std::int64_t kNodes = 256, kTriples = 8192;
/// Prefetch distance in rows of the table, which are scattered over memory.
constexpr std::int64_t kPrefetch = 12, kLineBytes = 64;

/// out = tanh(x_rows M + y), or x_rows M if `translation` is empty, in chunks. All threads of a parallel region call
/// it.
template <class T>
void project(Stream& stream, std::span<const std::int32_t> nodes, const Tensor& table, const Tensor& matrix,
             const Tensor& translation, const Tensor& out) {
  const auto count = std::ssize(nodes), d = table.columns(), k = matrix.columns();
  T* const rows = cpu::thread_scratch<T>(cpu::Scratch::tables, kNodes * d);
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t first = 0; first < count; first += kNodes) {
    const std::int64_t n = std::min(kNodes, count - first);
    const Tensor x = Tensor::of(rows, {n, d}), to = out.slice(first, n);
    const auto row = [&](std::int64_t i) { return table.data<const T>() + nodes[first + i] * d; };
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + kPrefetch < n)
        for (std::int64_t c = 0; c < d; c += kLineBytes / static_cast<std::int64_t>(sizeof(T)))
          __builtin_prefetch(row(i + kPrefetch) + c);
      std::copy_n(row(i), d, x.data<T>() + i * d);
    }
    gemm_nn(stream, {to}, x, matrix);
    if (!translation) continue;
    const T* y = translation.data<const T>();
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < k; ++c) to.data<T>()[i * k + c] += y[c];
    activation_forward(stream, to, {}, to, Activation::tanh);
  }
}

/// Projects all nodes at once on a GPU.
void project_on_gpu(Stream& stream, Arena& scratch, std::span<const std::int32_t> nodes, const Tensor& table,
                    const Tensor& matrix, const Tensor& out) {
  const ArenaScope scope(scratch);
  const Tensor x = allocate(scratch, table.dtype(), {out.rows(), table.columns()});
  gather_node_rows(stream, x, 0, table, nodes, RowScale::none);
  gemm_nn(stream, {out}, x, matrix);
}

}  // namespace

void attention_logits(Stream& stream, Arena& scratch, const RelationTriples& triples, const Tensor& table,
                      const Tensor& matrix, const Tensor& translation, const Tensor& logits) {
  const std::int64_t k = matrix.columns(), count = std::ssize(triples.place);
  require(matrix.rows() == table.columns() && translation.size() == k, "attention: table ", table.shape(), ", matrix ",
          matrix.shape(), ", translation ", translation.shape());
  const ArenaScope scope(scratch);
  const Tensor heads = allocate(scratch, table.dtype(), {std::ssize(triples.heads), k}),
               tails = allocate(scratch, table.dtype(), {std::ssize(triples.tails), k});
  on_gpu(table, [&]<class T>() {
    project_on_gpu(stream, scratch, triples.heads, table, matrix, heads);
    project_on_gpu(stream, scratch, triples.tails, table, matrix, tails);
    gpu::map<T>(stream, heads.size(), gpu::aligned(heads.data<T>()), ShiftTanh<T>{k, heads, translation});
    constexpr int kPack = gpu::pack_size<T>();
    const int pack = k % kPack == 0 && gpu::aligned(heads.data<T>(), tails.data<T>()) ? kPack : 1;
    int lanes = 1;
    while (lanes < kWarp && lanes * pack < k) lanes *= 2;
    gpu::launch(stream, gpu::grid_for(count * lanes, kWarp * kWarps),
                pack > 1 ? pair_dots_kernel<T, kPack> : pair_dots_kernel<T, 1>, k, logits.data<real_t<T>>(),
                heads.data<T>(), tails.data<T>(), triples, lanes);
  });
  on_cpu(table, [&]<class T>() {
    const auto dots = cpu::active_graph_attention_kernels<T>().pair_dots;
#pragma omp parallel
    {
      project<T>(stream, triples.heads, table, matrix, translation, heads);
      project<T>(stream, triples.tails, table, matrix, Tensor(), tails);
#pragma omp barrier
#pragma omp for schedule(dynamic)
      for (std::int64_t first = 0; first < count; first += kTriples)
        dots(std::min(kTriples, count - first), k, logits, triples.place.data() + first, heads,
             triples.head_slot.data() + first, tails, triples.tail_slot.data() + first);
    }
  });
}

void attention_softmax(Stream& stream, ParallelEdges parallel, std::span<const std::int64_t> row_ptr,
                       std::span<const std::int64_t> edge_ptr, std::int64_t first, std::int64_t last,
                       const Tensor& logits, const Tensor& values) {
  require(edge_ptr.size() == static_cast<std::size_t>(values.size()) + 1 && logits.dtype() == values.dtype() &&
              last < std::ssize(row_ptr),
          "attention: ", values.size(), " values, ", edge_ptr.size(), " offsets of their triples, rows up to ", last,
          " of ", row_ptr.size(), " offsets");
  on_gpu_in_floats(values, [&]<class T>() {
    gpu::launch(stream, {.grid = gpu::ceil_div(last - first, kWarps), .block = {kWarp, kWarps}},
                attention_softmax_kernel<T>, parallel, row_ptr.data(), edge_ptr.data(), first, last, logits.data<T>(),
                values.data<T>());
  });
  on_cpu(values, [&]<class T>() {
    const T* v = logits.data<const T>();
    T* a = values.data<T>();
    assert(logits.size() == edge_ptr.back() && values.size() == row_ptr.back());
    const auto softmax = cpu::active_graph_attention_kernels<T>().softmax_row;
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t begin = row_ptr[r], end = row_ptr[r + 1];
      if (begin < end)
        softmax(end - begin, edge_ptr.data() + begin, v, a + begin, parallel == ParallelEdges::per_triple);
    }
  });
}

}  // namespace lockstep::ops

#endif
