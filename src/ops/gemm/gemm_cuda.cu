#include <cublasLt.h>

#include <bit>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "gemm_kernels.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr std::size_t kWorkspace = kProductScratch;

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

/// The library's description of one product, and the algorithm for it.
struct Plan {
  cublasLtMatmulDesc_t product = nullptr;
  MatrixLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};

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
using PlanKey = std::tuple<cudaDataType_t, cudaDataType_t, cublasComputeType_t, Product, std::int64_t, std::int64_t,
                           std::int64_t, bool, std::uint32_t, ProductBatch>;

/// A library handle and its plans, for one device and one thread.
class Library {
 public:
  Library() { check(cublasLtCreate(&handle_), "starting cuBLASLt"); }
  Library(const Library&) = delete;
  ~Library() { cublasLtDestroy(handle_); }
  cublasLtHandle_t handle() const { return handle_; }

  /// The plan of a product, whose rows (M, or K of a product tn) are set, and its algorithm. The library is
  /// column-major: it sees our c as its transpose (N, M), so our b is its first operand.
  template <class T, class C>
  std::pair<Plan&, cublasLtMatmulAlgo_t> plan(Product product, std::int64_t m, std::int64_t n, std::int64_t k,
                                              bool bias, std::uint32_t alignment, const ProductBatch& batch) {
    std::int64_t& varying = product == Product::tn ? k : m;
    const std::int64_t rows = std::exchange(varying, batch.count == 1 ? rounded(varying) : varying);
    Plan& plan = rounded_plan<T, C>(product, m, n, k, bias, alignment, batch);
    plan.set_rows(product, rows);
    cublasLtMatmulHeuristicResult_t checked{};
    const bool suits = rows == varying ||
                       (cublasLtMatmulAlgoCheck(handle_, plan.product, plan.a.handle, plan.b.handle, plan.c.handle,
                                                plan.c.handle, &plan.algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
                        checked.workspaceSize <= kWorkspace);
    if (suits) return {plan, plan.algorithm};
    varying = rows;
    return {plan, choose<C>(plan, m, n, k, alignment)};
  }

 private:
  template <class T, class C>
  Plan& rounded_plan(Product product, std::int64_t m, std::int64_t n, std::int64_t k, bool bias,
                     std::uint32_t alignment, const ProductBatch& batch) {
    const cublasComputeType_t compute = arithmetic<T>();
    constexpr std::size_t kMostPlans = 4096;  // shapes that never repeat must not fill the memory
    if (plans_.size() >= kMostPlans) plans_.clear();
    auto [found, added] =
        plans_.try_emplace({kStorage<T>, kStorage<C>, compute, product, m, n, k, bias, alignment, batch});
    if (!added) return *found->second;
    const bool transpose_b = product == Product::nt, transpose_a = product == Product::tn;
    auto plan = std::make_unique<Plan>(kStorage<T>, transpose_b ? k : n, transpose_b ? n : k, transpose_a ? m : k,
                                       transpose_a ? k : m, kStorage<C>, n, m);
    if (batch.count > 1) {  // the library's first operand is our b
      plan->a.repeat(batch.count, batch.b);
      plan->b.repeat(batch.count, batch.a);
      plan->c.repeat(batch.count, batch.c);
    }
    check(cublasLtMatmulDescCreate(&plan->product, compute, kStorage<real_t<T>>), "describing a product");
    plan->set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    plan->set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    plan->algorithm = choose<C>(*plan, m, n, k, alignment);
    found->second = std::move(plan);
    return *found->second;
  }

  /// The library's first choice for the plan's layouts.
  template <class C>
  cublasLtMatmulAlgo_t choose(const Plan& plan, std::int64_t m, std::int64_t n, std::int64_t k,
                              std::uint32_t alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
    // Partial sums are added in f32, not as halves. The scheme INPLACE adds in the type of the output, too.
    if (sizeof(C) < sizeof(float))
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t best{};
    int results = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.a.handle, plan.b.handle, plan.c.handle,
                                       plan.c.handle, preference, 1, &best, &results);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "choosing an algorithm");
    require(results > 0, "multiplying matrices of ", m, " x ", k, " and ", k, " x ", n,
            ": cuBLASLt has no algorithm for these shapes");
    return best.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
};

Library& library(Device device) {
  thread_local std::vector<std::unique_ptr<Library>> libraries;
  const auto index = static_cast<std::size_t>(device.index);
  if (libraries.size() <= index) libraries.resize(index + 1);
  if (!libraries[index]) libraries[index] = std::make_unique<Library>();
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
  const std::uintptr_t any = address(a) | address(b) | address(c) | address(added) |
                             bytes(batch.a | batch.b, sizeof(T)) | bytes(batch.c, sizeof(C)) | 256;
  const std::uint32_t alignment = std::uint32_t{1} << std::countr_zero(any);
  Library& lib = library(stream.device());
  auto [plan, algorithm] = lib.plan<T, C>(product, m, n, k, bias != nullptr, alignment, batch);
  if (bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const real_t<T> one = 1, before = accumulate || added != nullptr ? 1 : 0;
  check(cublasLtMatmul(lib.handle(), plan.product, &one, b, plan.a.handle, a, plan.b.handle, &before,
                       added != nullptr ? added : c, plan.c.handle, c, plan.c.handle, &algorithm,
                       gpu::scratch(stream, kWorkspace), kWorkspace, static_cast<cudaStream_t>(stream.native())),
        "multiplying matrices");
}

#define INSTANTIATE(T, C)                                                                                         \
  template void product(const Stream&, Product, std::int64_t, std::int64_t, std::int64_t, C*, const T*, const T*, \
                        bool, const C*, const ProductBatch&, const C*);
INSTANTIATE(float, float)
INSTANTIATE(double, double)
INSTANTIATE(bf16, bf16)
INSTANTIATE(bf16, float)
INSTANTIATE(f16, f16)
INSTANTIATE(f16, float)
#undef INSTANTIATE

}  // namespace lockstep::ops::cuda
