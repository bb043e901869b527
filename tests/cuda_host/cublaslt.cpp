#include "cublasLt.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "error.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "streams.hpp"

using namespace cuda_host;

struct cublasLtContext {
  int device;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading_dimension;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;

  /// The number of elements from the first to the last, both included.
  std::int64_t extent() const {
    return (batches - 1) * batch_stride + (static_cast<std::int64_t>(columns) - 1) * leading_dimension +
           static_cast<std::int64_t>(rows);
  }
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7;                       // all schemes
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of a, b, c, d: the library's default assumption
};

namespace {

thread_local std::string said;

/// Maps failures to the status codes of cuBLAS: invalid arguments, or features that the stand-in does not offer.
cublasStatus_t guarded_blas(auto&& f) {
  try {
    f();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Failure& failure) {
    note(failure);
    cudaGetLastError();
    said = failure.message;
    return failure.error == cudaErrorNotSupported   ? CUBLAS_STATUS_NOT_SUPPORTED
           : failure.error == cudaErrorInvalidValue ? CUBLAS_STATUS_INVALID_VALUE
                                                    : CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

void set(auto& member, const void* value, std::size_t size) {
  require(size == sizeof member, cudaErrorInvalidValue, "an attribute of ", sizeof member, " bytes cannot be set with ",
          size, " bytes");
  std::memcpy(&member, value, size);
}

/// The alignments and shape that the algorithm was chosen for, and whether it may add partial sums in the type of d.
struct Algorithm {
  std::uint32_t alignment[4];
  std::int32_t m, n, k;
  bool rounds_parts, fails;
  std::uint8_t number;  // of last terms that are added separately, to a result of 32 or 64 bits
  std::uint64_t workspace;
  float ms;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// The entries of LOCKSTEP_CUDA_HOST_PRODUCTS, one for each algorithm.
std::vector<std::string> kinds() {
  const char* list = std::getenv("LOCKSTEP_CUDA_HOST_PRODUCTS");
  std::vector<std::string> all;
  std::istringstream entries(list != nullptr ? list : "0");
  for (std::string entry; std::getline(entries, entry, ',');) all.push_back(entry);
  return all;
}

MatrixView view(const cublasLtMatrixLayoutOpaque_t& layout, const void* data, bool turned, std::int64_t batch) {
  auto* first = static_cast<std::byte*>(const_cast<void*>(data)) + batch * layout.batch_stride * size_of(layout.type);
  return {first, layout.type, turned ? layout.leading_dimension : 1, turned ? 1 : layout.leading_dimension};
}

/// The part of a matrix from a row and a column on.
MatrixView along(MatrixView matrix, std::int64_t row, std::int64_t column) {
  matrix.data = static_cast<std::byte*>(matrix.data) +
                (row * matrix.row_stride + column * matrix.column_stride) * size_of(matrix.type);
  return matrix;
}

void check_matrix(const char* name, const cublasLtMatrixLayoutOpaque_t& layout, const void* data,
                  std::uint32_t alignment) {
  require(layout.leading_dimension >= static_cast<std::int64_t>(layout.rows), cudaErrorInvalidValue,
          "cublasLtMatmul: ", name, " is ", layout.rows, " x ", layout.columns, " with leading dimension ",
          layout.leading_dimension);
  require(find_allocation(data).has_value(), cudaErrorInvalidValue, "cublasLtMatmul: ", name, " is at ",
          describe_address(data), ", which is not the device's");
  check_range(text("cublasLtMatmul: ", name, " is").c_str(), data,
              static_cast<std::size_t>(layout.extent() * size_of(layout.type)));
  require(reinterpret_cast<std::uintptr_t>(data) % alignment == 0, cudaErrorInvalidValue, "cublasLtMatmul: ", name,
          " at ", data, " is not aligned to ", alignment, " bytes, for which the algorithm was chosen");
}

double scalar(const void* value, cudaDataType_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value) : *static_cast<const float*>(value);
}

struct Shape {
  std::int64_t m, n, k;
};
Shape check_shapes(const cublasLtMatmulDescOpaque_t& p, const cublasLtMatrixLayoutOpaque_t& a,
                   const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                   const cublasLtMatrixLayoutOpaque_t& d) {
  const bool turn_a = p.a != CUBLAS_OP_N, turn_b = p.b != CUBLAS_OP_N;
  const auto m = turn_a ? a.columns : a.rows, k = turn_a ? a.rows : a.columns;
  const auto n = turn_b ? b.rows : b.columns, k_of_b = turn_b ? b.columns : b.rows;
  require(k == k_of_b && d.rows == m && d.columns == n && c.rows == m && c.columns == n, cudaErrorInvalidValue,
          "cublasLtMatmul: op(a) is ", m, " x ", k, ", op(b) ", k_of_b, " x ", n, ", c ", c.rows, " x ", c.columns,
          ", d ", d.rows, " x ", d.columns);
  require(a.batches == d.batches && b.batches == d.batches && c.batches == d.batches, cudaErrorInvalidValue,
          "cublasLtMatmul: batches of ", a.batches, ", ", b.batches, ", ", c.batches, " and ", d.batches, " matrices");
  const bool wide = a.type == CUDA_R_64F;
  const bool wide_compute = p.compute == CUBLAS_COMPUTE_64F;
  require(a.type == b.type && c.type == d.type && wide == wide_compute && p.scale == (wide ? CUDA_R_64F : CUDA_R_32F) &&
              (c.type == a.type || c.type == CUDA_R_32F),
          cudaErrorNotSupported, "cublasLtMatmul: types ", a.type, ", ", b.type, ", ", c.type, ", ", d.type,
          " with compute type ", p.compute, " and scale type ", p.scale);
  require(p.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type == CUDA_R_32F, cudaErrorNotSupported,
          "cublasLtMatmul: TF32 with operands of type ", a.type);
  return {static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)};
}

}  // namespace

std::size_t cublasLtGetVersion() { return 130000; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : said.c_str();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  *layout = new cublasLtMatrixLayoutOpaque_t{
      .type = type, .rows = rows, .columns = columns, .leading_dimension = leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t size) {
  return guarded_blas([&] {
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set(layout->columns, value, size);
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(layout->batches, value, size);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(layout->batch_stride, value, size);
    }
    throw Failure{cudaErrorNotSupported, text("attribute ", attribute, " of a matrix")};
  });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = new cublasLtMatmulDescOpaque_t{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size) {
  return guarded_blas([&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(product->a, value, size);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(product->b, value, size);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        set(product->epilogue, value, size);
        return require(product->epilogue == CUBLASLT_EPILOGUE_DEFAULT || product->epilogue == CUBLASLT_EPILOGUE_BIAS,
                       cudaErrorNotSupported, "epilogue ", product->epilogue, " of a product");
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(product->bias, value, size);
    }
    throw Failure{cudaErrorNotSupported, text("attribute ", attribute, " of a product")};
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t size) {
  return guarded_blas([&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(preference->workspace, value, size);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(preference->reductions, value, size);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
    }
    throw Failure{cudaErrorNotSupported, text("attribute ", attribute, " of a preference")};
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  return guarded_blas([&] {
    require(wanted > 0, cudaErrorInvalidValue, "cannot search for ", wanted, " algorithms: ask for at least 1");
    const Shape shape = check_shapes(*product, *a, *b, *c, *d);
    Algorithm algorithm{};
    algorithm.m = static_cast<std::int32_t>(shape.m);
    algorithm.n = static_cast<std::int32_t>(shape.n);
    algorithm.k = static_cast<std::int32_t>(shape.k);
    std::memcpy(algorithm.alignment, preference->alignment, sizeof algorithm.alignment);
    algorithm.workspace = preference->workspace;
    algorithm.rounds_parts =
        (preference->reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) != 0;
    for (const std::string& kind : kinds()) {
      if (*found == wanted) return;
      algorithm.fails = kind == "fails";
      algorithm.workspace = preference->workspace + (kind == "large" ? 1 : 0);
      algorithm.ms = std::strtof(kind.c_str(), nullptr);
      cublasLtMatmulHeuristicResult_t& result = results[*found];
      result = {};
      std::memcpy(&result.algo, &algorithm, sizeof algorithm);
      result.workspaceSize = algorithm.workspace;
      result.state = kind == "refused" ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
      result.wavesCount = 1;
      algorithm.number = static_cast<std::uint8_t>(++*found + 1);
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  return guarded_blas([&] {
    const Shape shape = check_shapes(*product, *a, *b, *c, *d);
    Algorithm algorithm;
    std::memcpy(&algorithm, algo, sizeof algorithm);
    *result = {};
    result->algo = *algo;
    result->workspaceSize = algorithm.workspace;
    // Some algorithms suit their own shape only; here, if a dimension is odd.
    const bool own = shape.m == algorithm.m && shape.n == algorithm.n && shape.k == algorithm.k;
    require(own || (shape.m | shape.n | shape.k) % 2 == 0, cudaErrorNotSupported, "an algorithm of other shapes");
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_size, cudaStream_t stream) {
  return guarded_blas([&] {
    require(device_of(stream) == handle->device, cudaErrorInvalidValue,
            "cublasLtMatmul: the library was started on cuda:", handle->device,
            ", but the stream is of cuda:", device_of(stream));
    const Shape shape = check_shapes(*product, *a_layout, *b_layout, *c_layout, *d_layout);
    Algorithm algorithm{};
    std::fill_n(algorithm.alignment, 4, 1);
    if (algo) std::memcpy(&algorithm, algo, sizeof algorithm);
    require(!algorithm.fails, cudaErrorNotSupported, "cublasLtMatmul: this algorithm fails");
    const double scale = scalar(alpha, product->scale), keep = scalar(beta, product->scale);
    check_matrix("a", *a_layout, a, algorithm.alignment[0]);
    check_matrix("b", *b_layout, b, algorithm.alignment[1]);
    if (keep != 0) check_matrix("c", *c_layout, c, algorithm.alignment[2]);
    check_matrix("d", *d_layout, d, algorithm.alignment[3]);
    require(workspace_size >= algorithm.workspace, cudaErrorInvalidValue, "cublasLtMatmul: ", workspace_size,
            " bytes of workspace, of ", algorithm.workspace, " that the algorithm was chosen with");
    if (workspace_size > 0) check_range("cublasLtMatmul: the workspace is", workspace, workspace_size);
    const bool with_bias = product->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (with_bias) {
      require(find_allocation(product->bias).has_value(), cudaErrorInvalidValue, "cublasLtMatmul: the bias is at ",
              describe_address(product->bias), ", which is not the device's");
      check_range("cublasLtMatmul: the bias is", product->bias,
                  static_cast<std::size_t>(shape.m * size_of(d_layout->type)));
    }
    const auto bytes = [](const cublasLtMatrixLayoutOpaque_t& layout) {
      return static_cast<std::size_t>(layout.extent() * size_of(layout.type));
    };
    Uses uses{.name = "cublasLtMatmul",
              .ranges = {{a, bytes(*a_layout), false},
                         {b, bytes(*b_layout), false},
                         {d, bytes(*d_layout), true},
                         {workspace, workspace_size, true}}};
    if (keep != 0) uses.ranges.push_back({c, bytes(*c_layout), false});
    uses.shape =
        text(shape.n, " x ", shape.m, " x ", shape.k, d_layout->batches > 1 ? text(" x ", d_layout->batches) : "");
    uses.flops = 2.0 * static_cast<double>(shape.m * shape.n * shape.k * d_layout->batches);
    uses.unit = size_of(a_layout->type) == 2                       ? lockstep::FlopUnit::half
                : product->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? lockstep::FlopUnit::tf32
                                                                   : lockstep::FlopUnit::fp32;
    uses.workspace_bytes = workspace_size;
    submit(stream, std::move(uses), [=, p = *product, la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout] {
      const DeviceAccess access;
      pass_time(stream, algorithm.ms);
      if (workspace) std::memset(workspace, 0xff, std::min<std::size_t>(workspace_size, 4096));  // not preserved
      for (std::int64_t batch = 0; batch < ld.batches; ++batch) {
        const Digits digits = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? Digits::tf32 : Digits::all;
        const MatrixView av = view(la, a, p.a != CUBLAS_OP_N, batch), bv = view(lb, b, p.b != CUBLAS_OP_N, batch),
                         cv = view(lc, c, false, batch), dv = view(ld, d, false, batch);
        // The worst that was allowed: a long sum in two parts, the first one rounded to the type of the output.
        const bool narrow = size_of(ld.type) == 2;
        const std::int64_t last = !narrow ? std::min<std::int64_t>(algorithm.number, shape.k - 1)
                                  : algorithm.rounds_parts && !with_bias ? shape.k - shape.k / 2
                                                                         : 0;
        const std::int64_t first = shape.k - last;
        const void* shift = with_bias ? p.bias : nullptr;
        matmul(shape.m, shape.n, first, scale, av, bv, keep, cv, dv, last == 0 ? shift : nullptr, digits);
        if (last == 0) continue;
        matmul(shape.m, shape.n, last, scale, along(av, 0, first), along(bv, first, 0), 1, dv, dv, shift, digits);
      }
    });
  });
}
