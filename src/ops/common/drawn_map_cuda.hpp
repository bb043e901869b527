#pragma once
#include <algorithm>

#include "ops/common/philox_cuda.hpp"
#include "ops/common/rows_behind_cuda.hpp"

/// Element-wise passes over the rows of samples, with dropout.
namespace lockstep::gpu {

/// Applies dropout to element k of up to four elements with these draws.
template <class R>
struct Keep {
  Drop<R> drop;
  std::uint32_t draws[4];
  __device__ R operator()(int k, R value) const { return drop(value, draws[k]); }
};

/// Calls f.template write<N>(i, f.template read<N>(i), keep) for packs of N elements i .. i + N - 1, N = 4, 2 or 1, and
/// f.behind(i) for the elements of rows after the samples. A thread reads all its packs before it draws and writes,
/// because each wait for memory takes longer than the rest. A block of threads works on one chunk of one sample;
/// further blocks work on the rows after the samples. A thread has four runs of four elements, 32 apart: their draws
/// are two Philox blocks, and eight threads together still access whole cache lines. The draws cost about ten integer
/// operations per element, so a pass stays memory bound.
template <int N, class R, class F>
__global__ void __launch_bounds__(256)
    drawn_map_kernel(gpu::Earlier earlier, std::int64_t width, std::int64_t sequences, std::int64_t all_rows,
                     ops::Dropout dropout, const std::int64_t* __restrict__ offsets,
                     const std::uint64_t* __restrict__ samples, Drop<R> drop, F f) {
  earlier.wait();
  constexpr int kThreadsPerGroup = 8, kWords = 4, kQuad = 4;
  if (blockIdx.x >= sequences) {
    const std::int64_t blocks = std::int64_t{gridDim.x - sequences} * gridDim.y;
    const std::int64_t block = std::int64_t{blockIdx.x - sequences} * gridDim.y + blockIdx.y;
    for (std::int64_t i = offsets[sequences] * width + block * blockDim.x + threadIdx.x; i < all_rows * width;
         i += blocks * blockDim.x)
      f.behind(i);
    return;
  }
  const std::int64_t first = offsets[blockIdx.x] * width, count = offsets[blockIdx.x + 1] * width - first;
  const Philox draws = dropout.draws(samples[blockIdx.x]);
  const int quad = static_cast<int>(threadIdx.x) % kThreadsPerGroup * kQuad;
  const std::int64_t groups = ceil_div(count, kGroupDraws), at_once = blockDim.x / kThreadsPerGroup;
  for (std::int64_t group = blockIdx.y * at_once + threadIdx.x / kThreadsPerGroup; group < groups;
       group += gridDim.y * at_once) {
    const std::int64_t begin = group * kGroupDraws + quad;
    decltype(f.template read<N>(first)) values[kWords][kQuad / N];
#pragma unroll
    for (int word = 0; word < kWords; ++word)
#pragma unroll
      for (int k = 0; k < kQuad; k += N)
        if (begin + 32 * word + k < count) values[word][k / N] = f.template read<N>(first + begin + 32 * word + k);
    const QuadDraws drawn(draws, static_cast<std::uint64_t>(group), quad);
#pragma unroll
    for (int word = 0; word < kWords; ++word)
#pragma unroll
      for (int k = 0; k < kQuad; k += N) {
        if (begin + 32 * word + k >= count) continue;
        Keep<R> keep{drop, {}};
#pragma unroll
        for (int e = 0; e < N; ++e) keep.draws[e] = drawn.at(word, k + e);
        f.template write<N>(first + begin + 32 * word + k, values[word][k / N], keep);
      }
  }
}

/// width: elements of a row; packs lie within `columns` of them. Pointers: those that f accesses in packs, null or not.
template <class R, class F, class... P>
void drawn_map(const Stream& stream, std::int64_t width, std::int64_t columns, const ops::Dropout& dropout,
               const ops::SampleRows& rows, const F& f, const P*... pointers) {
  constexpr std::int64_t kThreads = 256, kThreadsPerGroup = 8, kMostChunks = 4096;
  const std::int64_t longest = rows.longest_sample() * width;
  if (longest == 0) return;
  const std::int64_t threads = ceil_div(longest, kGroupDraws) * kThreadsPerGroup;
  const std::int64_t block = std::min(kThreads, ceil_div(threads, kWarp) * kWarp);
  const std::int64_t chunks = std::min(kMostChunks, ceil_div(threads, block));
  const auto run = [&]<int N>() {
    launch(stream, {.grid = {rows.count() + blocks_behind(rows), chunks}, .block = block}, drawn_map_kernel<N, R, F>,
           width, rows.count(), rows.rows(), dropout, staged_copy(rows.offsets.data()),
           staged_copy(rows.samples.data()), Drop<R>(ops::cpu::DropRate(dropout.rate)), f);
  };
  if (columns % 4 == 0 && aligned_for<4>(pointers...)) return run.template operator()<4>();
  if (columns % 2 == 0 && aligned_for<2>(pointers...)) return run.template operator()<2>();
  run.template operator()<1>();
}

}  // namespace lockstep::gpu
