#include "conv1d_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Positions [begin, end) of a row whose neighbour at distance `shift` is also in the row.
struct Overlap {
  std::int64_t begin, end;
  Overlap(std::int64_t length, std::int64_t shift)
      : begin(shift < 0 ? -shift : 0), end(shift > 0 ? length - shift : length) {}
};

template <class T>
void forward(const ConvShape& s, T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ weight,
             const T* __restrict__ bias) {
  for (std::int64_t m = 0; m < s.rows; ++m, x += s.length)
    for (std::int64_t c = 0; c < s.channels; ++c, y += s.length) {
      const T start = bias ? bias[c] : T{};
      for (std::int64_t i = 0; i < s.length; ++i) y[i] = start;
      for (std::int64_t j = 0; j < s.kernel; ++j) {
        const T w = weight[c * s.kernel + j];
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        for (std::int64_t i = at.begin; i < at.end; ++i) y[i] += w * x[i + shift];
      }
    }
}

template <class T>
void backward_input(const ConvShape& s, T* __restrict__ dx, const T* __restrict__ da, const T* __restrict__ weight,
                    bool accumulate) {
  for (std::int64_t m = 0; m < s.rows; ++m, dx += s.length) {
    if (!accumulate)
      for (std::int64_t i = 0; i < s.length; ++i) dx[i] = T{};
    for (std::int64_t c = 0; c < s.channels; ++c, da += s.length)
      for (std::int64_t j = 0; j < s.kernel; ++j) {
        const T w = weight[c * s.kernel + j];
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        for (std::int64_t i = at.begin; i < at.end; ++i) dx[i + shift] += w * da[i];
      }
  }
}

template <class T>
void backward_params(const ConvShape& s, T* __restrict__ dweight, T* __restrict__ dbias, const T* __restrict__ da,
                     const T* __restrict__ x) {
  for (std::int64_t m = 0; m < s.rows; ++m, x += s.length)
    for (std::int64_t c = 0; c < s.channels; ++c, da += s.length) {
      for (std::int64_t j = 0; dweight && j < s.kernel; ++j) {
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        T sum{};
        for (std::int64_t i = at.begin; i < at.end; ++i) sum += da[i] * x[i + shift];
        dweight[c * s.kernel + j] += sum;
      }
      if (dbias) {
        T sum{};
        for (std::int64_t i = 0; i < s.length; ++i) sum += da[i];
        dbias[c] += sum;
      }
    }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(Conv1dKernels, conv1d_kernels, forward<T>, backward_input<T>, backward_params<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
