#include "lockstep/ops/line_patches.hpp"

#include <algorithm>

#include "line_patches_kernels.hpp"
#include "lockstep/samples/rasteriser.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

constexpr int kComponents = 3;
constexpr int kColours = 3;

LinePatches extents_of(const char* what, const Tensor& y, const LinePictures& pictures, const Tensor& weight) {
  require(weight.shape().rank() == 4 && weight.shape()[1] == kComponents && weight.shape()[2] == weight.shape()[3],
          what, ": weight must be (D, 3, P, P), not ", weight.shape());
  const LinePatches e{pictures.count, pictures.size, pictures.size / weight.shape()[2], weight.shape()[2],
                      weight.shape()[0]};
  require(y.shape() == Shape{e.pictures, e.tokens(), e.width}, what, ": weight is ", weight.shape(), " and there are ",
          e.pictures, " pictures of ", pictures.size, " pixels, so y must be (", e.pictures, ", ", e.tokens(), ", ",
          e.width, "), not ", y.shape());
  return e;
}

/// Lists the terms of one patch after another of one picture.
template <class T>
class Patches {
 public:
  Patches(const LinePictures& pictures, std::int64_t n, const LinePatches& e, cpu::PixelTerm<T>* terms)
      : e_(e), size_(static_cast<int>(pictures.size)), terms_(terms) {
    const std::int64_t words = line_plot::mask_words(size_);
    masks_[0] = pictures.line + n * words;
    masks_[1] = pictures.outside ? pictures.outside + n * words : nullptr;
    const double* colours = pictures.colours + n * kColours * kComponents;
    for (int c = 0; c < kComponents; ++c) {
      paper[c] = static_cast<T>(colours[c]);
      for (int k = 0; k + 1 < kColours; ++k)
        difference_[k][c] = static_cast<T>(colours[(k + 1) * kComponents + c] - colours[c]);
    }
  }
  /// The number of terms of the patch. The terms are stored in the memory passed to the constructor.
  std::int64_t terms_of(std::int64_t token) {
    const int row = static_cast<int>(token / e_.side * e_.patch), column = static_cast<int>(token % e_.side * e_.patch);
    std::int64_t count = 0;
    for (int k = 0; k + 1 < kColours; ++k) {
      if (!masks_[k]) continue;
      for (int i = 0; i < e_.patch; ++i)
        for (int j = 0; j < e_.patch; ++j) {
          if (!line_plot::pixel(masks_[k], size_, column + j, row + i)) continue;
          for (int c = 0; c < kComponents; ++c)
            if (difference_[k][c] != 0) terms_[count++] = {c * e_.pixels() + i * e_.patch + j, difference_[k][c]};
        }
    }
    return count;
  }
  T paper[kComponents];

 private:
  const LinePatches& e_;
  int size_;
  cpu::PixelTerm<T>* terms_;
  const std::uint32_t* masks_[kColours - 1];
  T difference_[kColours - 1][kComponents];
};

/// Memory of one call: terms of a patch, rows (3 P^2, D), sums per component (3, D), one row (D).
template <class T>
struct Memory {
  explicit Memory(const LinePatches& e) {
    const auto terms_size = static_cast<std::size_t>(kComponents * e.pixels()) * sizeof(cpu::PixelTerm<T>);
    const std::size_t terms_bytes = (terms_size + 63) / 64 * 64;
    const std::int64_t values = (kComponents * e.pixels() + kComponents + 1) * e.width;
    auto* bytes = static_cast<std::byte*>(
        cpu::thread_scratch(cpu::Scratch::partial, terms_bytes + static_cast<std::size_t>(values) * sizeof(T)));
    terms = reinterpret_cast<cpu::PixelTerm<T>*>(bytes);
    rows = reinterpret_cast<T*>(bytes + terms_bytes);
    sums = rows + kComponents * e.pixels() * e.width;
    row = sums + kComponents * e.width;
  }
  cpu::PixelTerm<T>* terms;
  T *rows, *sums, *row;
};

}  // namespace

void line_patches_forward(Stream& stream, const Tensor& y, const LinePictures& pictures, const Tensor& weight,
                          const Tensor& bias) {
  const LinePatches e = extents_of("line patches", y, pictures, weight);
  require(bias.shape() == Shape{e.width}, "line patches: weight is ", weight.shape(), ", so bias must be (", e.width,
          "), not ", bias.shape());
  on_gpu(y, [&]<class T>() { cuda::line_patches_forward<T>(stream, e, y, pictures, weight, bias); });
  on_cpu(y, [&]<class T>() {
    const auto kernels = cpu::active_line_patches_kernels<T>();
    const Memory<T> memory(e);
    const std::int64_t rows = kComponents * e.pixels();
    std::fill_n(memory.sums, kComponents * e.width, T{});
    const T* w = weight.data<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      T* row = memory.rows + r * e.width;
      for (std::int64_t d = 0; d < e.width; ++d) row[d] = w[d * rows + r];
      kernels.add(e.width, memory.sums + r / e.pixels() * e.width, T{1}, row);
    }
    for (std::int64_t n = 0; n < e.pictures; ++n) {
      Patches<T> patches(pictures, n, e, memory.terms);
      std::copy_n(bias.data<T>(), e.width, memory.row);
      for (int c = 0; c < kComponents; ++c)
        kernels.add(e.width, memory.row, patches.paper[c], memory.sums + c * e.width);
      for (std::int64_t t = 0; t < e.tokens(); ++t)
        kernels.gather(e.width, y.data<T>() + (n * e.tokens() + t) * e.width, memory.row, patches.terms_of(t),
                       memory.terms, memory.rows);
    }
  });
}

void line_patches_backward(Stream& stream, Target dweight, Target dbias, const Tensor& dy,
                           const LinePictures& pictures) {
  if (!dweight) return;
  const LinePatches e = extents_of("line patches backward", dy, pictures, dweight.tensor);
  on_gpu(dy, [&]<class T>() { cuda::line_patches_backward<T>(stream, e, dweight.tensor, dbias.tensor, dy, pictures); });
  on_cpu(dy, [&]<class T>() {
    const auto kernels = cpu::active_line_patches_kernels<T>();
    const Memory<T> memory(e);
    const std::int64_t rows = kComponents * e.pixels();
    std::fill_n(memory.rows, rows * e.width, T{});
    std::fill_n(memory.sums, kComponents * e.width, T{});
    for (std::int64_t n = 0; n < e.pictures; ++n) {
      Patches<T> patches(pictures, n, e, memory.terms);
      std::fill_n(memory.row, e.width, T{});
      for (std::int64_t t = 0; t < e.tokens(); ++t) {
        const T* d = dy.data<T>() + (n * e.tokens() + t) * e.width;
        kernels.add(e.width, memory.row, T{1}, d);
        kernels.scatter(e.width, memory.rows, patches.terms_of(t), memory.terms, d);
      }
      for (int c = 0; c < kComponents; ++c)
        kernels.add(e.width, memory.sums + c * e.width, patches.paper[c], memory.row);
      if (dbias) kernels.add(e.width, dbias.tensor, T{1}, memory.row);
    }
    T* dw = dweight.tensor.data<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = memory.rows + r * e.width;
      const T* sum = memory.sums + r / e.pixels() * e.width;
      for (std::int64_t d = 0; d < e.width; ++d) dw[d * rows + r] += row[d] + sum[d];
    }
  });
}

}  // namespace lockstep::ops
