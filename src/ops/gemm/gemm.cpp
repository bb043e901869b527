#include "lockstep/ops/gemm.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <vector>

#include "cached_values.hpp"
#include "gemm_kernels.hpp"
#include "lockstep/base/profile.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {
namespace cpu {

void* thread_scratch(Scratch purpose, std::size_t size_bytes) {
  thread_local std::array<Buffer, 5> buffers;
  Buffer& buffer = buffers[static_cast<std::size_t>(purpose)];
  if (buffer.size_bytes() < size_bytes) buffer = Buffer({}, std::max(size_bytes, 2 * buffer.size_bytes()));
  return buffer.data();
}

namespace {
/// Below this, starting a parallel region costs more than it saves.
constexpr double kParallelFlops = 8e6;
/// Rows in a chunk of work for a thread.
constexpr std::int64_t kChunkRows = 224;
/// Weight gradients up to this size are summed in groups of blocks; larger ones are split by rows. Either way the
/// result does not depend on the number of threads.
constexpr std::int64_t kSmallResult = 32768;
constexpr std::int64_t kMaxGroups = 64;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// The packed weights of a thread. Each PackedWeights has a number, its scope; an entry of an earlier scope has memory,
/// but no valid content.
struct WeightCache {
  struct Entry {
    const void* b;
    std::int64_t n, k;
    bool transposed;
    std::size_t size_bytes;
    Buffer packed;
    std::uint64_t scope;
  };
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20, kMostEntries = 64;
  bool active = false;
  std::uint64_t scope = 0;
  std::size_t bytes = 0;
  std::vector<Entry> entries;

  /// Memory for a packed weight, or null if the cache is full. fill: whether the caller has to pack it.
  void* find(const void* b, std::int64_t n, std::int64_t k, bool transposed, std::size_t size_bytes, bool& fill) {
    for (Entry& e : entries)
      if (e.b == b && e.n == n && e.k == k && e.transposed == transposed && e.size_bytes == size_bytes) {
        fill = e.scope != scope;
        e.scope = scope;
        return e.packed.data();
      }
    if (entries.size() == kMostEntries || bytes + size_bytes > kMostBytes) {
      std::erase_if(entries, [&](const Entry& e) { return e.scope != scope; });
      bytes = 0;
      for (const Entry& e : entries) bytes += e.size_bytes;
      if (entries.size() == kMostEntries || bytes + size_bytes > kMostBytes) return nullptr;
    }
    bytes += size_bytes;
    fill = true;
    entries.push_back({b, n, k, transposed, size_bytes, Buffer({}, size_bytes), scope});
    return entries.back().packed.data();
  }
};
WeightCache& weight_cache() {
  thread_local WeightCache cache;
  return cache;
}

/// Threads that share the work: one inside a parallel region, where the caller has already split the work.
int threads_for(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (product_flops(m, n, k) < kParallelFlops || omp_in_parallel()) return 1;
  return omp_get_max_threads();
}
}  // namespace

template <class T>
T* cached_values(const T* weight, std::int64_t count, bool& fill) {
  WeightCache& cache = weight_cache();
  if (!cache.active) return nullptr;
  return static_cast<T*>(cache.find(weight, count, 0, false, static_cast<std::size_t>(count) * sizeof(T), fill));
}

template <class T>
const T* packed_weight(std::int64_t n, std::int64_t k, const T* b, bool transposed) {
  const GemmKernels<T>& kernels = active_gemm_kernels<T>();
  const std::int64_t elements = kernels.packed_size(n, k);
  T* packed = nullptr;
  bool fill = true;
  if (WeightCache& cache = weight_cache(); cache.active)
    packed = static_cast<T*>(cache.find(b, n, k, transposed, static_cast<std::size_t>(elements) * sizeof(T), fill));
  if (!packed) packed = thread_scratch<T>(Scratch::packed_b, elements);
  if (fill) (transposed ? kernels.pack_transposed : kernels.pack_plain)(packed, b, transposed ? k : n, n, k, 0, n);
  return packed;
}

template <class T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool transposed,
             bool accumulate, const Epilogue<T>& epilogue, Operand operand) {
  if (m == 0 || n == 0) return;
  const GemmKernels<T>& kernels = active_gemm_kernels<T>();
  const bool few = transposed && n <= kFewColumns;
  const auto run = [&](std::int64_t first, std::int64_t count, const T* packed) {
    Epilogue<T> shifted = epilogue;
    if (shifted.derivative) shifted.derivative += first * n;
    if (shifted.residual) shifted.residual += first * n;
    if (few)
      kernels.few_columns(count, n, k, c + first * n, a + first * k, b, accumulate, shifted);
    else
      kernels.rows(count, n, k, c + first * n, a + first * k, packed, accumulate, shifted);
  };
  const auto pack = transposed ? kernels.pack_transposed : kernels.pack_plain;
  const std::int64_t ldb = transposed ? k : n;
  const int threads = threads_for(m, n, k);
  profile::add_flops(product_flops(m, n, k) / threads);
  if (threads == 1 && operand == Operand::weight) {
    run(0, m, few ? nullptr : packed_weight<T>(n, k, b, transposed));
    return;
  }
  T* packed = few ? nullptr : thread_scratch<T>(Scratch::packed_b, kernels.packed_size(n, k));
  if (threads == 1) {
    if (!few) pack(packed, b, ldb, n, k, 0, n);
    run(0, m, packed);
    return;
  }
  const std::int64_t panels = ceil_div(n, kernels.panel_width), chunks = ceil_div(m, kChunkRows);
#pragma omp parallel num_threads(threads)
  {
    if (!few) {
#pragma omp for schedule(static)
      for (std::int64_t p = 0; p < panels; ++p)
        pack(packed, b, ldb, n, k, p * kernels.panel_width, kernels.panel_width);
    }
#pragma omp for schedule(dynamic)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t first = chunk * m / chunks;
      run(first, (chunk + 1) * m / chunks - first, packed);
    }
  }
}

template <class T>
void product_tn(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate) {
  if (m == 0 || n == 0) return;
  const GemmKernels<T>& kernels = active_gemm_kernels<T>();
  const int threads = threads_for(m, n, k);
  profile::add_flops(product_flops(m, n, k) / threads);
  const std::int64_t blocks = ceil_div(k, kTnRows);
  const bool by_rows = blocks <= 1 || m * n > kSmallResult;
  if (threads == 1 && (by_rows || blocks <= kMaxGroups)) {  // groups of one block: tn() adds in the same order
    kernels.tn(m, n, k, c, a, b, accumulate, 0, m);
    return;
  }
  if (by_rows) {
    const std::int64_t chunks = std::min<std::int64_t>(threads, m);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t first = chunk * m / chunks;
      kernels.tn(m, n, k, c, a, b, accumulate, first, (chunk + 1) * m / chunks - first);
    }
    return;
  }
  // Few columns and many rows: each group of blocks has its own sum, and the groups' sums are added in order.
  const std::int64_t groups = std::min(blocks, kMaxGroups), size = m * n;
  const auto rows_of = [&](std::int64_t group) { return std::min(k, group * blocks / groups * kTnRows); };
  const auto sum_group = [&](std::int64_t group, T* out) {
    const std::int64_t first = rows_of(group);
    kernels.tn(m, n, rows_of(group + 1) - first, out, a + first * m, b + first * n, false, 0, m);
  };
  const auto add = [&](std::int64_t group, const T* from) {
    if (group == 0 && !accumulate)
      std::copy_n(from, size, c);
    else
      for (std::int64_t i = 0; i < size; ++i) c[i] += from[i];
  };
  const std::int64_t held = threads == 1 ? 1 : groups;
  T* partials = thread_scratch<T>(Scratch::partial, held * size);
  if (threads == 1) {
    for (std::int64_t group = 0; group < groups; ++group) {
      sum_group(group, partials);
      add(group, partials);
    }
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::int64_t group = 0; group < groups; ++group) sum_group(group, partials + group * size);
  for (std::int64_t group = 0; group < groups; ++group) add(group, partials + group * size);
}

template <class T>
void scale_and_sum(std::int64_t m, std::int64_t n, T* dy, const T* derivative, T* sums, bool accumulate) {
  if (n == 0 || (!derivative && !sums)) return;
  const GemmKernels<T>& kernels = active_gemm_kernels<T>();
  if (sums && !accumulate) std::fill_n(sums, n, T{});
  const std::int64_t blocks = ceil_div(m, kTnRows);
  T* partials = sums ? thread_scratch<T>(Scratch::partial, blocks * n) : nullptr;
  const auto run = [&](std::int64_t block) {
    const std::int64_t first = block * kTnRows;
    kernels.scale_and_sum(std::min(kTnRows, m - first), n, dy + first * n,
                          derivative ? derivative + first * n : nullptr, sums ? partials + block * n : nullptr);
  };
  const int threads = threads_for(m, n, 8);
  if (threads == 1) {  // a parallel region of one thread still costs some tenths of a microsecond
    for (std::int64_t block = 0; block < blocks; ++block) run(block);
  } else {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t block = 0; block < blocks; ++block) run(block);
  }
  for (std::int64_t block = 0; sums && block < blocks; ++block)
    for (std::int64_t j = 0; j < n; ++j) sums[j] += partials[block * n + j];
}

LOCKSTEP_EACH_FLOAT(cached_values, packed_weight, product, product_tn, scale_and_sum)

}  // namespace cpu

namespace {
/// c = op(a) op(b), where `product` says which of a and b is transposed. On a GPU c may have the type in which products
/// are summed.
void multiply(Stream& stream, const char* what, cuda::Product product, const Target& c, const Tensor& a,
              const Tensor& b) {
  const bool a_transposed = product == cuda::Product::tn, b_transposed = product == cuda::Product::nt;
  const Tensor& to = c.tensor;
  const std::int64_t m = to.rows(), n = to.columns(), k = a_transposed ? a.rows() : a.columns();
  require(m == (a_transposed ? a.columns() : a.rows()) && n == (b_transposed ? b.rows() : b.columns()) &&
              k == (b_transposed ? b.columns() : b.rows()),
          what, ": c is ", to.shape(), ", a ", a.shape(), ", b ", b.shape(), "; these do not fit together");
  on_gpu(a, [&]<class T>() {
    const auto run = [&]<class C>(C* out) { cuda::product<T>(stream, product, m, n, k, out, a, b, c.accumulate); };
    if (to.dtype() == a.dtype())
      run(to.data<T>());
    else
      run(to.data<real_t<T>>());
  });
  on_cpu(a, [&]<class T>() {
    if (a_transposed)
      cpu::product_tn<T>(m, n, k, to, a, b, c.accumulate);
    else
      cpu::product<T>(m, n, k, to, a, b, b_transposed, c.accumulate);
  });
}

std::atomic<bool> tf32{false};
}  // namespace

PackedWeights::PackedWeights() {
  cpu::WeightCache& cache = cpu::weight_cache();
  assert(!cache.active);
  cache.active = true;
  ++cache.scope;
}
PackedWeights::~PackedWeights() { cpu::weight_cache().active = false; }

void allow_tf32(bool allowed) { tf32.store(allowed, std::memory_order_relaxed); }
bool tf32_allowed() { return tf32.load(std::memory_order_relaxed); }

void gemm_nt(Stream& stream, Target c, const Tensor& a, const Tensor& b) {
  multiply(stream, "gemm_nt", cuda::Product::nt, c, a, b);
}
void gemm_nn(Stream& stream, Target c, const Tensor& a, const Tensor& b) {
  multiply(stream, "gemm_nn", cuda::Product::nn, c, a, b);
}
void gemm_tn(Stream& stream, Target c, const Tensor& a, const Tensor& b) {
  multiply(stream, "gemm_tn", cuda::Product::tn, c, a, b);
}

}  // namespace lockstep::ops
