#include "line_patches_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void gather(std::int64_t width, T* y, const T* base, std::int64_t terms, const PixelTerm<T>* term, const T* rows) {
  constexpr std::int64_t kL = kLanes<T>, kVectors = 4;
  std::int64_t c = 0;
  for (; c + kVectors * kL <= width; c += kVectors * kL) {
    Vec<T> sum[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = load(base + c + v * kL);
    for (std::int64_t i = 0; i < terms; ++i) {
      const T* row = rows + term[i].index * width + c;
      for (int v = 0; v < kVectors; ++v) sum[v] = fma(splat(term[i].factor), load(row + v * kL), sum[v]);
    }
    for (int v = 0; v < kVectors; ++v) store(y + c + v * kL, sum[v]);
  }
  for (; c < width; c += kL) {
    const Lanes<T> lanes = lanes_at<T>(c, width);
    Vec<T> sum = load(base + c, lanes);
    for (std::int64_t i = 0; i < terms; ++i)
      sum = fma(splat(term[i].factor), load(rows + term[i].index * width + c, lanes), sum);
    store(y + c, sum, lanes);
  }
}

template <class T>
void add(std::int64_t n, T* y, T factor, const T* x) {
  for (std::int64_t c = 0; c < n; c += kLanes<T>) {
    const Lanes<T> lanes = lanes_at<T>(c, n);
    store(y + c, fma(splat(factor), load(x + c, lanes), load(y + c, lanes)), lanes);
  }
}

template <class T>
void scatter(std::int64_t width, T* rows, std::int64_t terms, const PixelTerm<T>* term, const T* dy) {
  for (std::int64_t i = 0; i < terms; ++i) add(width, rows + term[i].index * width, term[i].factor, dy);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(LinePatchesKernels, line_patches_kernels, gather<T>, scatter<T>, add<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
