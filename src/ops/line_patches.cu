#include "lockstep/ops/line_patches.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// One colour component of one pixel: `factor` times row `index` of the transposed weight (3 P^2, D).
template <class T>
struct PixelTerm {
  std::int64_t index;
  T factor;
};
template <class T>
struct LinePatchesKernels {
  /// y = base + sum of terms, over D columns.
  void (*gather)(std::int64_t width, T* y, const T* base, std::int64_t terms, const PixelTerm<T>* term, const T* rows);
  /// rows[term.index] += factor dy.
  void (*scatter)(std::int64_t width, T* rows, std::int64_t terms, const PixelTerm<T>* term, const T* dy);
  /// y += factor x over n elements.
  void (*add)(std::int64_t n, T* y, T factor, const T* x);
};

LOCKSTEP_KERNELS(LinePatchesKernels, line_patches_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
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

#else
#include <algorithm>

#include "lockstep/samples/rasteriser.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

using gpu::kWarp;

constexpr int kComponents = 3;
constexpr int kColours = 3;

struct LinePatches {
  std::int64_t pictures, size;      ///< number of pictures, and pixels per row
  std::int64_t side, patch, width;  ///< patches per row of a picture, pixels per row of a patch, D
  constexpr std::int64_t tokens() const { return side * side; }
  constexpr std::int64_t pixels() const { return patch * patch; }
};

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

constexpr int kThreads = 256;
/// Columns that a block of the backward sums, and how many terms it adds to them at once.
constexpr int kColumns = 64, kLanes = kThreads / kColumns;

/// A picture's colours in the form that the sums need: the paper, and the differences of line and outside from it.
template <class T>
struct Palette {
  T paper[kComponents], difference[2][kComponents];
};

/// One thread per picture.
template <class T>
__global__ void palette_kernel(gpu::Earlier earlier, std::int64_t pictures, Palette<T>* palettes,
                               const double* __restrict__ colours) {
  earlier.wait();
  const std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (n >= pictures) return;
  const double* all = colours + n * 3 * kComponents;
  for (int c = 0; c < kComponents; ++c) {
    palettes[n].paper[c] = static_cast<T>(all[c]);
    for (int k = 0; k < 2; ++k) palettes[n].difference[k][c] = static_cast<T>(all[(k + 1) * kComponents + c] - all[c]);
  }
}

/// The pictures in device memory.
template <class T>
struct Pictures {
  LinePatches s;
  const std::uint32_t *line, *outside;  ///< outside may be null
  const Palette<T>* palettes;
  /// The colour (0, 1 or 2) of pixel (i, j) of a patch.
  __device__ int colour(std::int64_t n, std::int64_t token, int i, int j) const {
    const int size = static_cast<int>(s.size), words = line_plot::words_per_row(size);
    const auto x = static_cast<int>(token % s.side * s.patch) + j, y = static_cast<int>(token / s.side * s.patch) + i;
    const std::int64_t first = n * size * words;
    if (line_plot::pixel(line + first, size, x, y)) return 1;
    return outside != nullptr && line_plot::pixel(outside + first, size, x, y) ? 2 : 0;
  }
};

/// Appends the values of the threads of a block with `mine` to a list in shared memory, in the order of the threads.
/// Returns the new length. All threads must call it.
__device__ int append(int* sm_list, int length, bool mine, int value) {
  __shared__ int sm_counts[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned found = __ballot_sync(gpu::kWholeWarp, mine);
  if (lane == 0) sm_counts[warp] = __popc(found);
  __syncthreads();
  int at = length;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    if (w < warp) at += sm_counts[w];
    length += sm_counts[w];
  }
  if (mine) sm_list[at + __popc(found & ((1u << lane) - 1))] = value;
  __syncthreads();
  return length;
}

/// Calls f.put(column, row, f.get(row, column)) for all elements, in tiles of 32 x 32 through shared memory so that
/// both sides access whole cache lines.
template <class T, class F>
__global__ void __launch_bounds__(kWarp * 8)
    transpose_kernel(gpu::Earlier earlier, std::int64_t rows, std::int64_t columns, F f) {
  earlier.wait();
  __shared__ T sm_tile[kWarp][kWarp + 1];
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp, row = std::int64_t{blockIdx.y} * kWarp;
  for (int r = static_cast<int>(threadIdx.y); r < kWarp; r += 8)
    if (row + r < rows && column + threadIdx.x < columns)
      sm_tile[r][threadIdx.x] = f.get(row + r, column + threadIdx.x);
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.y); c < kWarp; c += 8)
    if (column + c < columns && row + threadIdx.x < rows) f.put(column + c, row + threadIdx.x, sm_tile[threadIdx.x][c]);
}
template <class T, class F>
void transpose(const Stream& stream, std::int64_t rows, std::int64_t columns, const F& f) {
  const auto tiles = [](std::int64_t n) { return static_cast<unsigned>(gpu::ceil_div(n, kWarp)); };
  gpu::launch(stream, {.grid = {tiles(columns), tiles(rows)}, .block = {kWarp, 8}}, transpose_kernel<T, F>, rows,
              columns, f);
}

/// Transposes the weight (D, 3 P^2) to rows (3 P^2, D).
template <class T>
struct WeightRows {
  real_t<T>* to;
  const T* from;
  std::int64_t d, r;
  __device__ real_t<T> get(std::int64_t row, std::int64_t column) const { return gpu::load(from + row * r + column); }
  __device__ void put(std::int64_t row, std::int64_t column, real_t<T> value) const { to[row * d + column] = value; }
};

/// Sums each component over the pixels of a patch, from which the embedding of an empty patch is computed.
template <class T>
struct ComponentSums {
  const T* rows;
  std::int64_t pixels, width;
  __device__ void add(std::int64_t pixel, std::int64_t column, T (&sum)[kComponents]) const {
#pragma unroll
    for (int c = 0; c < kComponents; ++c) sum[c] += rows[(c * pixels + pixel) * width + column];
  }
};

/// One block per patch lists the pixels that are not paper; then each thread adds their rows in its column. Writes y;
/// the rows stay in the second-level cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    line_patches_forward_kernel(gpu::Earlier earlier, Pictures<real_t<T>> pictures, T* __restrict__ y,
                                const real_t<T>* __restrict__ rows, const real_t<T>* __restrict__ sums,
                                const T* __restrict__ bias) {
  earlier.wait();
  using R = real_t<T>;
  int* sm_list = reinterpret_cast<int*>(sm_bytes);
  const LinePatches& s = pictures.s;
  const std::int64_t n = blockIdx.x / s.tokens(), token = blockIdx.x % s.tokens();
  const auto pixels = static_cast<int>(s.pixels()), patch = static_cast<int>(s.patch);
  int length = 0;
  for (int first = 0; first < pixels; first += static_cast<int>(blockDim.x)) {
    const int pixel = first + static_cast<int>(threadIdx.x);
    const int colour = pixel < pixels ? pictures.colour(n, token, pixel / patch, pixel % patch) : 0;
    length = append(sm_list, length, colour != 0, 2 * pixel + colour - 1);
  }
  const Palette<R> palette = pictures.palettes[n];
  for (std::int64_t d = threadIdx.x; d < s.width; d += blockDim.x) {
    R sum = gpu::load(bias + d);
    for (int c = 0; c < kComponents; ++c) sum += palette.paper[c] * sums[c * s.width + d];
    for (int i = 0; i < length; ++i) {
      const int pixel = sm_list[i] / 2;
      const bool outside = sm_list[i] % 2 != 0;
#pragma unroll
      for (int c = 0; c < kComponents; ++c) {
        const R factor = outside ? palette.difference[1][c] : palette.difference[0][c];
        if (factor != 0) sum += factor * rows[(c * pixels + pixel) * s.width + d];
      }
    }
    gpu::store(y + blockIdx.x * s.width + d, sum);
  }
}

/// One block per pixel of a patch, 64 columns and chunk of all patches. It finds the patches where this pixel is not
/// paper and adds their gradients, four at a time in separate sums. partials (chunks, 3 P^2, D).
template <class T>
__global__ void __launch_bounds__(kThreads)
    line_patches_backward_kernel(gpu::Earlier earlier, Pictures<real_t<T>> pictures, real_t<T>* __restrict__ partials,
                                 const T* __restrict__ dy) {
  earlier.wait();
  using R = real_t<T>;
  __shared__ int sm_list[kThreads];
  __shared__ R sm_sums[kComponents][kLanes][kColumns];
  const LinePatches& s = pictures.s;
  const int pixel = static_cast<int>(blockIdx.x), patch = static_cast<int>(s.patch);
  const int column = static_cast<int>(threadIdx.x) % kColumns, lane = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t d = std::int64_t{blockIdx.z} * kColumns + column, all = s.pictures * s.tokens();
  const std::int64_t begin = all * blockIdx.y / gridDim.y, end = all * (blockIdx.y + 1) / gridDim.y;
  R sum[kComponents] = {};
  for (std::int64_t first = begin; first < end; first += kThreads) {
    const std::int64_t mine = first + threadIdx.x;
    const int colour =
        mine < end ? pictures.colour(mine / s.tokens(), mine % s.tokens(), pixel / patch, pixel % patch) : 0;
    const int length = append(sm_list, 0, colour != 0, 2 * static_cast<int>(threadIdx.x) + colour - 1);
    for (int i = lane; i < length && d < s.width; i += kLanes) {
      const std::int64_t which = first + sm_list[i] / 2;
      const Palette<R>& palette = pictures.palettes[which / s.tokens()];
      const R* factor = palette.difference[sm_list[i] % 2];
      const R g = gpu::load(dy + which * s.width + d);
#pragma unroll
      for (int c = 0; c < kComponents; ++c) sum[c] += factor[c] * g;
    }
    __syncthreads();  // the list is no longer in use
  }
#pragma unroll
  for (int c = 0; c < kComponents; ++c) sm_sums[c][lane][column] = sum[c];
  __syncthreads();
  if (lane != 0 || d >= s.width) return;
  for (int c = 0; c < kComponents; ++c) {
    R total = 0;
    for (int l = 0; l < kLanes; ++l) total += sm_sums[c][l][column];
    partials[((blockIdx.y * std::int64_t{kComponents} + c) * s.pixels() + pixel) * s.width + d] = total;
  }
}

/// Sums of dy over all patches, unweighted and times each component of the paper.
template <class T>
struct PaperSums {
  const T* dy;
  const Palette<real_t<T>>* palettes;
  std::int64_t tokens, width;
  __device__ void add(std::int64_t row, std::int64_t column, real_t<T> (&sum)[1 + kComponents]) const {
    const real_t<T> g = gpu::load(dy + row * width + column);
    const Palette<real_t<T>>& palette = palettes[row / tokens];
    sum[0] += g;
#pragma unroll
    for (int c = 0; c < kComponents; ++c) sum[1 + c] += palette.paper[c] * g;
  }
};

/// dweight (D, 3 P^2) += the sums over chunks and over the paper.
template <class T>
struct AddGradient {
  T* dweight;
  const T *partials, *paper;
  std::int64_t chunks, rows, pixels, width;
  __device__ T get(std::int64_t row, std::int64_t column) const {
    T sum = paper[row / pixels * width + column];
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partials[(chunk * rows + row) * width + column];
    return sum;
  }
  __device__ void put(std::int64_t row, std::int64_t column, T value) const { dweight[row * rows + column] += value; }
};

/// The layout of the pictures in scratch memory, and their transfer: each word crosses the bus once.
template <class T>
struct Plan {
  gpu::ScratchPlan plan;
  gpu::ScratchPlan::Array<std::uint32_t> line, outside;
  gpu::ScratchPlan::Array<double> colours;
  gpu::ScratchPlan::Array<Palette<T>> palettes;
  std::int64_t words;
  explicit Plan(const LinePatches& s, const LinePictures& pictures)
      : words(pictures.count * line_plot::mask_words(static_cast<int>(s.size))) {
    line = plan.add<std::uint32_t>(words);
    outside = plan.add<std::uint32_t>(pictures.outside != nullptr ? words : 0);
    colours = plan.add<double>(pictures.count * 3 * kComponents);
    palettes = plan.add<Palette<T>>(pictures.count);
  }
  Pictures<T> bring(const Stream& stream, std::byte* memory, const LinePatches& s, const LinePictures& pictures) const {
    const std::size_t bytes = static_cast<std::size_t>(words) * sizeof(std::uint32_t);
    copy_bytes(stream, line.in(memory), pictures.line, bytes);
    if (pictures.outside != nullptr) copy_bytes(stream, outside.in(memory), pictures.outside, bytes);
    copy_bytes(stream, colours.in(memory), pictures.colours,
               static_cast<std::size_t>(pictures.count * 3 * kComponents) * sizeof(double));
    gpu::launch(stream, gpu::grid_for(pictures.count), palette_kernel<T>, pictures.count, palettes.in(memory),
                colours.in(memory));
    return {s, line.in(memory), pictures.outside != nullptr ? outside.in(memory) : nullptr, palettes.in(memory)};
  }
};

template <class T>
void forward_on_gpu(const Stream& stream, const LinePatches& s, T* y, const LinePictures& pictures, const T* weight,
                    const T* bias) {
  if (s.pictures * s.tokens() * s.width == 0) return;
  using R = real_t<T>;
  const std::int64_t rows = kComponents * s.pixels();
  Plan<R> plan(s, pictures);
  const auto transposed = plan.plan.template add<R>(rows * s.width),
             sums = plan.plan.template add<R>(kComponents * s.width);
  const auto partial = plan.plan.template add<std::byte>(
      static_cast<std::int64_t>(gpu::column_sums_bytes<R, kComponents>(s.pixels(), s.width)));
  std::byte* memory = gpu::scratch(stream, plan.plan.size_bytes());
  const Pictures<R> there = plan.bring(stream, memory, s, pictures);
  transpose<R>(stream, s.width, rows, WeightRows<T>{transposed.in(memory), weight, s.width, rows});
  R* sum = sums.in(memory);
  gpu::column_sums(stream, s.pixels(), s.width,
                   gpu::ColumnSums<R, kComponents>{{sum, sum + s.width, sum + 2 * s.width}, {}},
                   ComponentSums<R>{transposed.in(memory), s.pixels(), s.width}, partial.in(memory));
  const std::int64_t threads = std::clamp<std::int64_t>(gpu::ceil_div(s.width, kWarp) * kWarp, 2 * kWarp, kThreads);
  gpu::launch(stream,
              {.grid = s.pictures * s.tokens(),
               .block = threads,
               .shared_bytes = static_cast<std::size_t>(s.pixels()) * sizeof(int)},
              line_patches_forward_kernel<T>, there, y, transposed.in(memory), sum, bias);
}

/// dweight and dbias (unless null) are added to.
template <class T>
void backward_on_gpu(const Stream& stream, const LinePatches& s, real_t<T>* dweight, real_t<T>* dbias, const T* dy,
                     const LinePictures& pictures) {
  using R = real_t<T>;
  if (s.pictures * s.tokens() * s.width == 0) return;
  const std::int64_t rows = kComponents * s.pixels(), patches = s.pictures * s.tokens();
  const std::int64_t blocks = gpu::ceil_div(s.width, kColumns);
  const std::int64_t chunks =
      std::clamp<std::int64_t>(2 * gpu::kManyBlocks / (s.pixels() * blocks), 1, gpu::ceil_div(patches, kThreads));
  Plan<R> plan(s, pictures);
  const auto partials = plan.plan.template add<R>(chunks * rows * s.width);
  const auto paper = plan.plan.template add<R>(kComponents * s.width);
  const auto sums = plan.plan.template add<std::byte>(
      static_cast<std::int64_t>(gpu::column_sums_bytes<R, 1 + kComponents>(patches, s.width)));
  std::byte* memory = gpu::scratch(stream, plan.plan.size_bytes());
  const Pictures<R> there = plan.bring(stream, memory, s, pictures);
  gpu::launch(stream, {.grid = {s.pixels(), chunks, blocks}, .block = kThreads}, line_patches_backward_kernel<T>, there,
              partials.in(memory), dy);
  R* sum = paper.in(memory);
  gpu::column_sums(stream, patches, s.width,
                   gpu::ColumnSums<R, 1 + kComponents>{{dbias, sum, sum + s.width, sum + 2 * s.width}, {true}},
                   PaperSums<T>{dy, there.palettes, s.tokens(), s.width}, sums.in(memory));
  transpose<R>(stream, rows, s.width,
               AddGradient<R>{dweight, partials.in(memory), sum, chunks, rows, s.pixels(), s.width});
}

}  // namespace

void line_patches_forward(Stream& stream, const Tensor& y, const LinePictures& pictures, const Tensor& weight,
                          const Tensor& bias) {
  const LinePatches e = extents_of("line patches", y, pictures, weight);
  require(bias.shape() == Shape{e.width}, "line patches: weight is ", weight.shape(), ", so bias must be (", e.width,
          "), not ", bias.shape());
  on_gpu(y, [&]<class T>() { forward_on_gpu<T>(stream, e, y, pictures, weight, bias); });
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
  on_gpu(dy, [&]<class T>() { backward_on_gpu<T>(stream, e, dweight.tensor, dbias.tensor, dy, pictures); });
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
#endif
