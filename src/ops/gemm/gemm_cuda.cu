#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "algorithm_table.hpp"
#include "gemm_kernels.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/device/event.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr std::size_t kWorkspace = kProductScratch;
/// Algorithms that are timed for a shape.
constexpr int kCandidates = 8;

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Fault::internal, join(doing, ": cuBLASLt status ", static_cast<int>(status)));
}

/// The library's name of a storage type.
template <class T>
constexpr cudaDataType_t kStorage = CUDA_R_32F;
template <>
constexpr cudaDataType_t kStorage<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t kStorage<bf16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kStorage<f16> = CUDA_R_16F;
const char* text(cudaDataType_t type) {
  return type == CUDA_R_32F ? "f32" : type == CUDA_R_64F ? "f64" : type == CUDA_R_16BF ? "bf16" : "f16";
}

/// The library's name of the arithmetic for an operand type.
template <class T>
cublasComputeType_t arithmetic() {
  if (std::is_same_v<T, double>) return CUBLAS_COMPUTE_64F;
  return std::is_same_v<T, float> && tf32_allowed() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

struct MatrixLayout {
  cublasLtMatrixLayout_t handle = nullptr;
  MatrixLayout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&handle, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "describing a matrix");
  }
  /// One of `count` matrices, `stride` elements apart.
  void repeat(std::int64_t count, std::int64_t stride) {
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      check(cublasLtMatrixLayoutSetAttribute(handle, attribute, &value, sizeof value), "describing a matrix");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  MatrixLayout(const MatrixLayout&) = delete;
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(handle); }
};

/// A named type, because nvcc 13.0 fails on containers of the library's unnamed one.
struct Algorithm : cublasLtMatmulAlgo_t {};

/// The library's description of one product, and the algorithm for it.
struct Plan {
  cublasLtMatmulDesc_t product = nullptr;
  MatrixLayout a, b, c;
  Algorithm algorithm{};
  std::vector<Algorithm> untimed;  ///< the first product of the plan chooses one of these

  Plan(cudaDataType_t type, std::int64_t a_rows, std::int64_t a_columns, std::int64_t b_rows, std::int64_t b_columns,
       cudaDataType_t c_type, std::int64_t c_rows, std::int64_t c_columns)
      : a(type, a_rows, a_columns), b(type, b_rows, b_columns), c(c_type, c_rows, c_columns) {}
  ~Plan() { cublasLtMatmulDescDestroy(product); }
  /// Sets the number of rows of our matrices, which are the columns of the library's.
  void set_rows(Product kind, std::int64_t rows) {
    for (MatrixLayout* layout : {kind == Product::tn ? &a : &c, &b}) {
      const auto columns = static_cast<std::uint64_t>(rows);
      check(cublasLtMatrixLayoutSetAttribute(layout->handle, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns),
            "describing a matrix");
    }
  }
  template <class V>
  void set(cublasLtMatmulDescAttributes_t attribute, const V& value) {
    check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value), "describing a product");
  }
};

/// The number of rows for which an algorithm is chosen. With packed sequences the number of rows differs from batch to
/// batch: numbers that differ by an eighth or less share a plan, so that plans and the nodes of graphs stay few.
std::int64_t rounded(std::int64_t rows) {
  constexpr std::int64_t kExact = 512;
  if (rows <= kExact) return rows;
  const auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows))) / 8;
  return gpu::ceil_div(rows, step) * step;
}

/// Everything that the choice of an algorithm depends on.
struct PlanKey {
  cudaDataType_t type, c_type;
  cublasComputeType_t compute;
  Product product;
  std::int64_t m, n, k;
  bool bias;
  std::uint32_t alignment;
  ProductBatch batch;
  auto operator<=>(const PlanKey&) const = default;
  /// M, or K of a product tn: the number that varies from batch to batch.
  std::int64_t& rows() { return product == Product::tn ? k : m; }
};
/// "nt bf16 f32 31488x2048x512 align 256".
std::string text(const PlanKey& key) {
  const char* kind = key.product == Product::nt ? "nt" : key.product == Product::nn ? "nn" : "tn";
  const ProductBatch& batch = key.batch;
  return join(kind, " ", text(key.type), key.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? " tf32 " : " ", text(key.c_type),
              " ", key.m, "x", key.n, "x", key.k, key.bias ? " bias" : "", " align ", key.alignment,
              batch.count > 1 ? join(" batch ", batch.count, ":", batch.c, ":", batch.a, ":", batch.b) : "");
}

/// An algorithm is plain words, which the same version of the library understands in any process.
std::string text(const Algorithm& algorithm) {
  std::string digits;
  for (const std::uint64_t word : algorithm.data) digits += hex64(word);
  return digits;
}
Algorithm algorithm_of(const std::string& digits) {
  Algorithm algorithm{};
  constexpr std::size_t kDigits = 16;
  for (std::size_t i = 0; i < std::size(algorithm.data) && i * kDigits < digits.size(); ++i)
    algorithm.data[i] = std::strtoull(digits.substr(i * kDigits, kDigits).c_str(), nullptr, 16);
  return algorithm;
}

/// The memory and factors of a product d = one a b + before added + bias, as the library takes them.
struct Operands {
  const void *one, *a, *b, *before, *added;
  void* d;
  std::size_t d_bytes;
  bool reads_d;  ///< whether the product adds to d
};

/// A library handle and its plans, for one device and one thread.
class Library {
 public:
  explicit Library(int device) : name_(product_library(device)) {
    check(cublasLtCreate(&handle_), "starting cuBLASLt");
  }
  Library(const Library&) = delete;
  ~Library() { cublasLtDestroy(handle_); }

  /// Computes a product. The library is column-major: it sees our c as its transpose (N, M), so our b is its first
  /// operand.
  void multiply(const Stream& stream, PlanKey key, const void* bias, const Operands& x) {
    const std::int64_t rows = key.rows();
    if (key.batch.count == 1) key.rows() = rounded(rows);
    Plan& plan = plan_of(key);
    plan.set_rows(key.product, rows);
    if (bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (!plan.untimed.empty()) tune(stream, plan, key, x);
    Algorithm algorithm = plan.algorithm;
    if (rows != key.rows() && !suits(plan, algorithm)) {
      key.rows() = rows;
      algorithm = candidates(plan, key, 1).front();
    }
    check(start(stream, plan, algorithm, x, x.d), "multiplying matrices");
  }

 private:
  Plan& plan_of(const PlanKey& key) {
    AlgorithmTable& table = algorithm_table();
    constexpr std::size_t kMostPlans = 4096;  // shapes that never repeat must not fill the memory
    if (std::exchange(edition_, table.edition) != table.edition || plans_.size() >= kMostPlans) plans_.clear();
    auto [found, added] = plans_.try_emplace(key);
    if (!added) return *found->second;
    const auto [type, c_type, compute, product, m, n, k, bias, alignment, batch] = key;
    const bool transpose_b = product == Product::nt, transpose_a = product == Product::tn;
    auto plan = std::make_unique<Plan>(type, transpose_b ? k : n, transpose_b ? n : k, transpose_a ? m : k,
                                       transpose_a ? k : m, c_type, n, m);
    if (batch.count > 1) {  // the library's first operand is our b
      plan->a.repeat(batch.count, batch.b);
      plan->b.repeat(batch.count, batch.a);
      plan->c.repeat(batch.count, batch.c);
    }
    check(cublasLtMatmulDescCreate(&plan->product, compute, type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F),
          "describing a product");
    plan->set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    plan->set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const auto known = table.algorithms.find(name_of(key));
    if (known != table.algorithms.end()) plan->algorithm = algorithm_of(known->second);
    if (known == table.algorithms.end() || !suits(*plan, plan->algorithm)) {
      std::vector<Algorithm> found_here = candidates(*plan, key, table.tuned ? kCandidates : 1);
      plan->algorithm = found_here.front();
      if (table.tuned) plan->untimed = std::move(found_here);
    }
    found->second = std::move(plan);
    return *found->second;
  }

  /// The library's first choices for the plan's layouts, at least one and at most `most`, the best by its own estimate
  /// first.
  std::vector<Algorithm> candidates(const Plan& plan, const PlanKey& key, int most) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
    // Partial sums are added in f32, not as halves. The scheme INPLACE adds in the type of the output, too.
    if (key.c_type == CUDA_R_16BF || key.c_type == CUDA_R_16F)
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int results = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.a.handle, plan.b.handle, plan.c.handle,
                                       plan.c.handle, preference, most, found.data(), &results);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "choosing an algorithm");
    std::vector<Algorithm> algorithms;
    for (const auto& result : std::span(found).first(results))
      if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspace)
        algorithms.push_back({result.algo});
    require(!algorithms.empty(), "multiplying matrices of ", key.m, " x ", key.k, " and ", key.k, " x ", key.n,
            ": cuBLASLt has no algorithm for these shapes");
    return algorithms;
  }

  /// Whether an algorithm computes products of the plan's layouts.
  bool suits(const Plan& plan, const Algorithm& algorithm) const {
    cublasLtMatmulHeuristicResult_t checked{};
    return cublasLtMatmulAlgoCheck(handle_, plan.product, plan.a.handle, plan.b.handle, plan.c.handle, plan.c.handle,
                                   &algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= kWorkspace;
  }

  /// Enqueues a product whose result goes to d, instead of x.d.
  cublasStatus_t start(const Stream& stream, const Plan& plan, const Algorithm& algorithm, const Operands& x,
                       void* d) const {
    return cublasLtMatmul(handle_, plan.product, x.one, x.b, plan.a.handle, x.a, plan.b.handle, x.before, x.added,
                          plan.c.handle, d, plan.c.handle, &algorithm, gpu::scratch(stream, kWorkspace), kWorkspace,
                          static_cast<cudaStream_t>(stream.native()));
  }

  std::string name_of(const PlanKey& key) const { return join(name_, ": ", text(key)); }

  /// Gives the plan the fastest of its untimed algorithms, or the first one if a graph captures the product.
  void tune(const Stream& stream, Plan& plan, const PlanKey& key, const Operands& x) {
    std::vector<Algorithm> algorithms = std::exchange(plan.untimed, {});
    std::erase_if(algorithms, [&](const auto& algorithm) { return !suits(plan, algorithm); });
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    gpu::check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &capture),
               "asking for the state of a stream");
    if (capture == cudaStreamCaptureStatusNone && algorithms.size() > 1)
      if (const auto fastest = time(stream, plan, std::move(algorithms), x)) plan.algorithm = *fastest;
    algorithm_table().algorithms[name_of(key)] = text(plan.algorithm);
  }

  /// The fastest of the algorithms that succeed, if any does. Kernels are timed back to back with operands in the
  /// cache; if the GPU is faster than the host enqueues, all times are alike. An algorithm replaces the first one only
  /// if it is faster by more than the times vary.
  std::optional<Algorithm> time(const Stream& stream, const Plan& plan, std::vector<Algorithm> algorithms,
                                const Operands& x) const {
    constexpr int kRounds = 5, kRepeats = 4;
    constexpr double kGain = 0.98;
    Buffer spare;
    try {
      if (x.reads_d) spare = Buffer(stream.device(), x.d_bytes, MemoryUse::workspace);
    } catch (const OutOfMemory&) {
      return {};
    }
    void* const d = x.reads_d ? spare.data() : x.d;
    // Before anything is timed, each algorithm's kernel is loaded.
    std::erase_if(algorithms,
                  [&](const auto& algorithm) { return start(stream, plan, algorithm, x, d) != CUBLAS_STATUS_SUCCESS; });
    cudaGetLastError();  // clears what the failed ones left, which the next launch would report
    if (algorithms.empty()) return {};
    std::vector<Event> marks;
    const auto mark = [&] { marks.emplace_back(stream.device(), Event::Kind::time).record(stream); };
    mark();
    for (int round = 0; round < kRounds; ++round)
      for (const auto& algorithm : algorithms) {
        for (int i = 0; i < kRepeats; ++i) check(start(stream, plan, algorithm, x, d), "timing a product");
        mark();
      }
    marks.back().wait();
    std::vector<double> seconds(algorithms.size(), INFINITY);
    for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
      double& best = seconds[i % seconds.size()];
      best = std::min(best, marks[i + 1].seconds_since(marks[i]));
    }
    const auto fastest = std::ranges::min_element(seconds) - seconds.begin();
    return algorithms[seconds[fastest] < kGain * seconds.front() ? static_cast<std::size_t>(fastest) : 0];
  }

  cublasLtHandle_t handle_ = nullptr;
  std::string name_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  std::int64_t edition_ = 0;  ///< of the AlgorithmTable that the plans follow
};

Library& library(Device device) {
  thread_local std::vector<std::unique_ptr<Library>> libraries;
  const auto index = static_cast<std::size_t>(device.index);
  if (libraries.size() <= index) libraries.resize(index + 1);
  if (!libraries[index]) libraries[index] = std::make_unique<Library>(device.index);
  return *libraries[index];
}

/// c_mn = bias_n + added_mn, for a product with inner extent 0.
template <class C>
struct Broadcast {
  C* c;
  const C *bias, *added;
  std::int64_t n;
  template <int N>
  __device__ void at(std::int64_t i) const {
    real_t<C> sum = added != nullptr ? gpu::load(added + i) : real_t<C>{0};
    if (bias != nullptr) sum += gpu::load(bias + gpu::remainder(i, n));
    gpu::store(c + i, sum);
  }
};

}  // namespace

template <class T, class C>
void product(const Stream& stream, Product product, std::int64_t m, std::int64_t n, std::int64_t k, C* c, const T* a,
             const T* b, bool accumulate, const C* bias, const ProductBatch& batch, const C* added) {
  if (m == 0 || n == 0 || batch.count == 0) return;
  if (k == 0) {
    if (bias != nullptr || added != nullptr)
      gpu::map<C>(stream, m * n, false, Broadcast<C>{c, bias, added, n});
    else if (!accumulate)
      zero_bytes(stream, c, static_cast<std::size_t>(m * n) * sizeof(C));
    return;
  }
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const auto bytes = [](std::int64_t elements, std::size_t size) {
    return static_cast<std::uintptr_t>(elements) * size;
  };
  // No more than every array has: a captured product must not need another plan because its memory has moved.
  const std::uintptr_t any = address(a) | address(b) | address(c) | address(added) |
                             bytes(batch.a | batch.b, sizeof(T)) | bytes(batch.c, sizeof(C)) | Buffer::kAlignment;
  const std::uint32_t alignment = std::uint32_t{1} << std::countr_zero(any);
  const real_t<T> one = 1, before = accumulate || added != nullptr ? 1 : 0;
  const Operands x = {.one = &one,
                      .a = a,
                      .b = b,
                      .before = &before,
                      .added = added != nullptr ? added : c,
                      .d = c,
                      .d_bytes = bytes((batch.count - 1) * batch.c + m * n, sizeof(C)),
                      .reads_d = before != 0 && (added == nullptr || added == c)};
  library(stream.device())
      .multiply(stream,
                {kStorage<T>, kStorage<C>, arithmetic<T>(), product, m, n, k, bias != nullptr, alignment, batch}, bias,
                x);
}

std::string product_library(int gpu) { return join("cuBLASLt ", cublasLtGetVersion(), ", ", describe_gpu(gpu)); }

#define INSTANTIATE(T, C)                                                                                         \
  template void product(const Stream&, Product, std::int64_t, std::int64_t, std::int64_t, C*, const T*, const T*, \
                        bool, const C*, const ProductBatch&, const C*);
INSTANTIATE(float, float)
LOCKSTEP_FP64(INSTANTIATE(double, double))
LOCKSTEP_BF16(INSTANTIATE(bf16, bf16) INSTANTIATE(bf16, float))
LOCKSTEP_FP16(INSTANTIATE(f16, f16) INSTANTIATE(f16, float))
#undef INSTANTIATE

}  // namespace lockstep::ops::cuda
