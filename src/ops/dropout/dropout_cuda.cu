#include <algorithm>

#include "dropout_kernels.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/philox_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 256;
/// Two Philox blocks give a thread 16 draws; eight threads share a group of 128.
constexpr int kThreadsPerGroup = 8, kWords = 4, kQuad = 4;

/// A block of threads works on one chunk of one sample. A thread has four runs of four elements, 32 apart, which are
/// the draws of a pair of Philox blocks; eight threads together still access whole cache lines. Reads x, writes y. The
/// draws cost about ten integer operations per element, so the kernel stays memory bound.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(std::int64_t width, T* y, const T* to, const T* x, bool packed, Dropout dropout,
                   const std::int64_t* __restrict__ offsets, const std::uint64_t* __restrict__ samples,
                   gpu::Drop<real_t<T>> drop) {
  using R = real_t<T>;
  const std::int64_t first = offsets[blockIdx.x] * width, count = offsets[blockIdx.x + 1] * width - first;
  const Philox draws = dropout.draws(samples[blockIdx.x]);
  // mutant-equivalent: the threads share a group in any order
  const int quad = static_cast<int>(threadIdx.x) % kThreadsPerGroup * kQuad;
  const std::int64_t groups = gpu::ceil_div(count, gpu::kGroupDraws), at_once = blockDim.x / kThreadsPerGroup;
  for (std::int64_t group = blockIdx.y * at_once + threadIdx.x / kThreadsPerGroup; group < groups;
       group += gridDim.y * at_once) {
    const gpu::QuadDraws drawn(draws, static_cast<std::uint64_t>(group), quad);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      const std::int64_t i = group * gpu::kGroupDraws + 32 * word + quad;
      const std::int64_t at = first + i;
      if (packed && i + kQuad <= count) {
        using Quad = gpu::Pack<R, kQuad>;  // the compiler splits this load in two for f64
        const Quad in = gpu::load<kQuad>(x + at);
        Quad out{};
        if (to != nullptr) out = gpu::load<kQuad>(to + at);
#pragma unroll
        for (int k = 0; k < kQuad; ++k) out.at[k] += drop(in.at[k], drawn.at(word, k));
        gpu::store(y + at, out);
      } else {
#pragma unroll
        for (int k = 0; k < kQuad; ++k) {
          if (i + k >= count) continue;
          const R kept = drop(gpu::load(x + at + k), drawn.at(word, k));
          gpu::store(y + at + k, to != nullptr ? gpu::load(to + at + k) + kept : kept);
        }
      }
    }
  }
}

}  // namespace

template <class T>
void dropout(const Stream& stream, std::int64_t width, T* y, const T* to, const T* x, const Dropout& dropout,
             const SampleRows& rows) {
  std::int64_t longest = 0;
  const bool packed = gpu::aligned_for<kQuad>(y, to, x) && width % kQuad == 0;
  for (std::int64_t b = 0; b < rows.count(); ++b) {
    const auto i = static_cast<std::size_t>(b);
    longest = std::max(longest, (rows.offsets[i + 1] - rows.offsets[i]) * width);
  }
  if (longest == 0) return;
  const std::int64_t threads = gpu::ceil_div(longest, gpu::kGroupDraws) * kThreadsPerGroup;
  const std::int64_t block =
      std::min<std::int64_t>(kThreads, gpu::ceil_div<std::int64_t>(threads, gpu::kWarp) * gpu::kWarp);
  constexpr std::int64_t kMostChunks = 4096;
  const std::int64_t chunks = std::min(kMostChunks, gpu::ceil_div(threads, block));
  gpu::launch(stream,
              {.grid = dim3(static_cast<unsigned>(rows.count()), static_cast<unsigned>(chunks)),
               .block = static_cast<unsigned>(block)},
              dropout_kernel<T>, width, y, to, x, packed, dropout, rows.offsets.data(), rows.samples.data(),
              gpu::Drop<real_t<T>>(cpu::DropRate(dropout.rate)));
}

LOCKSTEP_EACH_STORAGE(dropout)

}  // namespace lockstep::ops::cuda
