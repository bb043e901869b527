#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "sequence_classifier_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

/// A tile of a gradient (n, k); each thread has kDown x kAcross elements, and each block kRows rows in shared memory.
constexpr int kTile = 64, kDown = 8, kAcross = 4, kThreads = (kTile / kDown) * (kTile / kAcross), kRows = 16;

/// The gradient of a layer's weight and bias: dW = dy^T x, db = sum of the rows of dy. Narrow integers, because the
/// arguments of a kernel have 4 KiB.
template <class R>
struct Product {
  const R *dy, *x;  ///< (rows, n), (rows, k)
  std::int32_t rows, n, k, weight, bias;
  std::int32_t first_block = 0;
  __host__ __device__ std::int64_t splits() const { return gpu::ceil_div(rows, kSplitRows); }
};
/// A vector of the gradient, as the sum of `count` vectors, `stride` elements apart.
template <class R>
struct Sum {
  const R* parts;
  std::int32_t count, stride, n, to;
  std::int32_t first_block = 0, unused = 0;
};

/// A list as an argument of a kernel.
template <class Entry, int kMost>
struct List {
  std::int64_t count = 0, blocks = 0;
  Entry entries[kMost] = {};
  void add(Entry entry, std::int64_t its_blocks) {
    entry.first_block = static_cast<std::int32_t>(blocks);
    entries[count++] = entry;
    blocks += its_blocks;
  }
  /// The entry of a block.
  __device__ const Entry& at(std::int64_t block) const {
    std::int64_t low = 0, high = count;
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (entries[middle].first_block <= block ? low : high) = middle;
    }
    return entries[low];
  }
};
template <class R>
using Products = List<Product<R>, 4 * kMostClassifierLayers + 4 + kMostClassifierHidden>;
template <class R>
using Sums = List<Sum<R>, 4 * kMostClassifierLayers + 5 + 2 * kMostClassifierHidden>;

/// The sum of a product over kSplitRows rows of one tile, in ascending order, to partials (splits, flat_size).
template <class R>
__device__ void add_products(const Product<R>& p, std::int64_t block, R* partials, std::int64_t flat_size) {
  __shared__ __align__(16) R sm_dy[kRows][kTile];
  __shared__ __align__(16) R sm_x[kRows][kTile];
  const std::int64_t across = gpu::ceil_div(p.k, kTile), down = gpu::ceil_div(p.n, kTile);
  const std::int64_t split = block / (across * down), i0 = block / across % down * kTile, j0 = block % across * kTile;
  const std::int64_t first = split * kSplitRows, last = first + kSplitRows < p.rows ? first + kSplitRows : p.rows;
  const int thread = static_cast<int>(threadIdx.x), i = thread / (kTile / kAcross) * kDown,
            j = thread % (kTile / kAcross) * kAcross;
  const bool sums_bias = j0 == 0 && thread < kTile;
  constexpr int kPack = gpu::pack_size<R>(), kLoads = kRows * kTile / kThreads, kLoadRows = kThreads / kTile;
  const int own_row = thread / kTile, own = thread % kTile;  // of the elements that the thread loads
  const bool has_dy = i0 + own < p.n, has_x = j0 + own < p.k;
  R dy[kLoads], x[kLoads];  // the next rows, which arrive while the block multiplies
  const auto fetch = [&](std::int64_t row) {
    const R *from_dy = p.dy + (row + own_row) * p.n + i0 + own, *from_x = p.x + (row + own_row) * p.k + j0 + own;
    const int rows = static_cast<int>(last - row) - own_row;
#pragma unroll
    for (int e = 0; e < kLoads; ++e) {
      dy[e] = e * kLoadRows < rows && has_dy ? from_dy[e * kLoadRows * p.n] : R{0};
      x[e] = e * kLoadRows < rows && has_x ? from_x[e * kLoadRows * p.k] : R{0};
    }
  };
  R sum[kDown][kAcross] = {}, bias = 0;
  fetch(first);
  for (std::int64_t row = first; row < last; row += kRows) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kLoads; ++e) {
      sm_dy[own_row + e * kLoadRows][own] = dy[e];
      sm_x[own_row + e * kLoadRows][own] = x[e];
    }
    __syncthreads();
    fetch(row + kRows);
#pragma unroll 2
    for (int r = 0; r < kRows; ++r) {
      R a[kDown], b[kAcross];
#pragma unroll
      for (int at = 0; at < kDown; at += kPack) {
        const gpu::Pack<R, kPack> pack = gpu::load<kPack>(&sm_dy[r][i + at]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) a[at + e] = pack.at[e];
      }
#pragma unroll
      for (int at = 0; at < kAcross; at += kPack) {
        const gpu::Pack<R, kPack> pack = gpu::load<kPack>(&sm_x[r][j + at]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) b[at + e] = pack.at[e];
      }
#pragma unroll
      for (int u = 0; u < kDown; ++u)
#pragma unroll
        for (int v = 0; v < kAcross; ++v) sum[u][v] += a[u] * b[v];
    }
    if (sums_bias)
      for (int r = 0; r < kRows; ++r) bias += sm_dy[r][thread];
  }
  R* to = partials + split * flat_size;
#pragma unroll
  for (int u = 0; u < kDown; ++u) {
    if (i0 + i + u >= p.n) continue;
#pragma unroll
    for (int v = 0; v < kAcross; ++v)
      if (j0 + j + v < p.k) to[p.weight + (i0 + i + u) * p.k + j0 + j + v] = sum[u][v];
  }
  if (sums_bias && i0 + thread < p.n) to[p.bias + i0 + thread] = bias;
}

/// Adds 32 elements of a sum to the gradient, in f64: warp w adds the vectors w, w + 4, ..., and the first warp adds
/// these sums.
template <class R>
__device__ void add_vectors(const Sum<R>& s, std::int64_t block, R* gradient) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ double sm_sums[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t i = block * kWarp + lane;
  double sum = 0;
  if (i < s.n) {
#pragma unroll 8
    for (std::int64_t part = warp; part < s.count; part += kWarps)
      sum += static_cast<double>(s.parts[part * s.stride + i]);
  }
  sm_sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= s.n) return;
  for (int w = 1; w < kWarps; ++w) sum += sm_sums[w][lane];
  gradient[s.to + i] += static_cast<R>(sum);
}

/// The first blocks compute a tile of a gradient over kSplitRows rows each. They are bound by multiplications: twelve
/// values from shared memory serve 32. The other blocks add the sums of the earlier kernels' blocks.
template <class R>
__global__ void __launch_bounds__(kThreads, sizeof(R) == 4 ? 5 : 2)
    products_kernel(gpu::Earlier earlier, Products<R> products, Sums<R> sums, R* partials, R* gradient,
                    std::int64_t flat_size) {
  earlier.wait();
  const std::int64_t block = blockIdx.x, after = block - products.blocks;
  if (after < 0) {
    const Product<R>& own = products.at(block);
    add_products(own, block - own.first_block, partials, flat_size);
  } else {
    const Sum<R>& own = sums.at(after);
    add_vectors(own, after - own.first_block, gradient);
  }
}

/// Adds the partial sums of each weight and bias to the gradient, in ascending order, in f64. One thread per element.
/// Memory bound.
template <class R>
__global__ void __launch_bounds__(kThreads)
    splits_kernel(gpu::Earlier earlier, Products<R> products, const R* __restrict__ partials, R* gradient,
                  std::int64_t flat_size) {
  earlier.wait();
  const Product<R>& p = products.at(blockIdx.x);
  const std::int64_t i = (std::int64_t{blockIdx.x} - p.first_block) * kThreads + threadIdx.x,
                     size = std::int64_t{p.n} * p.k, splits = p.splits();
  if (i >= size + p.n) return;
  const std::int64_t at = i < size ? p.weight + i : p.bias + i - size;
  double sum = 0;
#pragma unroll 6
  for (std::int64_t split = 0; split < splits; ++split) sum += static_cast<double>(partials[split * flat_size + at]);
  gradient[at] += static_cast<R>(sum);
}

/// Calls f(product) for all layers with weights.
template <class T, class F>
void each_product(const ClassifierCall<T>& call, const F& f) {
  using R = real_t<T>;
  const ClassifierSizes& s = call.sizes;
  const ClassifierPlaces& places = call.places;
  const ClassifierKept<R>& kept = call.kept;
  const ClassifierScratch<R>& from = call.scratch;
  const std::int64_t m = s.windows * s.sequences * s.time, a = s.heads * s.head_width;
  const auto add = [&](const R* dy, const R* x, std::int64_t rows, std::int64_t n, std::int64_t k,
                       const ClassifierPlaces::Linear& to) {
    const auto narrow = [](std::int64_t i) { return static_cast<std::int32_t>(i); };
    f(Product<R>{.dy = dy,
                 .x = x,
                 .rows = narrow(rows),
                 .n = narrow(n),
                 .k = narrow(k),
                 .weight = narrow(to.weight),
                 .bias = narrow(to.bias)});
  };
  if constexpr (std::is_same_v<T, R>)
    add(from.dembedded, call.patches, m, s.dim, s.patch, places.stem);
  else
    add(from.dembedded, kept.patches, m, s.dim, s.patch, places.stem);
  for (std::int64_t l = 0; l < s.layers; ++l) {
    const ClassifierPlaces::Layer& to = places.layers[l];
    const std::int64_t first = l * m;
    add(from.dqkv + first * 3 * a, kept.inner + first * s.dim, m, 3 * a, s.dim, to.qkv);
    add(from.dattention + first * s.dim, kept.attended + first * a, m, s.dim, a, to.output);
    add(from.dup + first * s.mlp, (s.pre_norm != 0 ? kept.other : kept.middle) + first * s.dim, m, s.mlp, s.dim, to.up);
    add(from.dmlp + first * s.dim, kept.gelu + first * s.mlp, m, s.dim, s.mlp, to.down);
  }
  if (s.scores > 0) {
    add(from.dtanh, kept.tokens, m, s.scores, s.dim, places.score_hidden);
    add(from.dscore, kept.tanh, m, 1, s.scores, places.score);
  }
  const R* x = kept.pooled;
  std::int64_t width = s.sequences * s.dim;
  for (std::size_t l = 0; l < static_cast<std::size_t>(s.hidden_layers); ++l) {
    add(from.dhidden[l], x, s.windows, s.hidden[l], width, places.hidden[l]);
    x = kept.hidden_gelu[l], width = s.hidden[l];
  }
  add(from.dlast, x, s.windows, s.classes, width, places.last);
}

/// Calls f(sum) for all vectors whose gradients are sums over blocks or windows.
template <class T, class F>
void each_sum(const ClassifierCall<T>& call, std::int64_t blocks, const F& f) {
  using R = real_t<T>;
  const ClassifierSizes& s = call.sizes;
  const ClassifierPlaces& places = call.places;
  const R* at = call.scratch.norms;
  const auto add = [&](const R* parts, std::int64_t count, std::int64_t stride, std::int64_t n, std::int64_t to) {
    const auto narrow = [](std::int64_t i) { return static_cast<std::int32_t>(i); };
    f(Sum<R>{.parts = parts, .count = narrow(count), .stride = narrow(stride), .n = narrow(n), .to = narrow(to)});
  };
  const auto of_blocks = [&](std::int64_t n, std::int64_t to) {
    add(at, blocks, block_sums(s), n, to);
    at += n;
  };
  const auto norm = [&](const ClassifierPlaces::Norm& to) {
    of_blocks(s.dim, to.gamma);
    of_blocks(s.dim, to.beta);
  };
  norm(places.stem_norm);
  norm(places.output_norm);
  for (std::size_t l = 0; l < static_cast<std::size_t>(s.layers); ++l) {
    norm(places.layers[l].attention_norm);
    norm(places.layers[l].mlp_norm);
  }
  of_blocks(s.time * s.dim, places.positions);
  for (std::size_t l = 0; l < static_cast<std::size_t>(s.hidden_layers); ++l) {
    const std::int64_t n = s.hidden[l];
    add(call.scratch.dnorm[l], s.windows, n, n, places.hidden_norm[l].gamma);
    add(call.scratch.dnorm[l] + s.windows * n, s.windows, n, n, places.hidden_norm[l].beta);
  }
}

}  // namespace

template <class T>
void sequence_classifier_gradients(const Stream& stream, const ClassifierCall<T>& call, std::int64_t blocks) {
  using R = real_t<T>;
  Products<R> tiles, elements;
  Sums<R> sums;
  double flops = 0;
  each_product(call, [&](const Product<R>& p) {
    tiles.add(p, p.splits() * gpu::ceil_div(p.n, kTile) * gpu::ceil_div(p.k, kTile));
    elements.add(p, gpu::ceil_div((std::int64_t{p.k} + 1) * p.n, kThreads));
    flops += 2.0 * p.rows * p.n * p.k;
  });
  each_sum(call, blocks, [&](const Sum<R>& s) { sums.add(s, gpu::ceil_div(s.n, kWarp)); });
  gpu::launch(stream, {.grid = tiles.blocks + sums.blocks, .block = kThreads, .flops = flops}, products_kernel<R>,
              tiles, sums, call.scratch.weights, call.gradient, call.flat_size);
  gpu::launch(stream, {.grid = elements.blocks, .block = kThreads}, splits_kernel<R>, elements,
              static_cast<const R*>(call.scratch.weights), call.gradient, call.flat_size);
}

LOCKSTEP_EACH_STORAGE(sequence_classifier_gradients)

}  // namespace lockstep::ops::cuda
