#include "cusparse.h"

#include <cstring>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "error.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "streams.hpp"

using namespace cuda_host;

struct cusparseContext {
  int device;
  cudaStream_t stream = nullptr;
};
struct cusparseSpMatDescr {
  std::int64_t rows, columns, entries;
  const void *offsets, *indices, *values;
  cusparseIndexType_t offsets_type, indices_type;
  std::int64_t base;
  cudaDataType type;
  /// The buffer of the latest cusparseSpMM_preprocess, and the product that it was prepared for.
  mutable const void* active = nullptr;
  mutable cusparseSpMMAlg_t active_algorithm = CUSPARSE_SPMM_ALG_DEFAULT;
  mutable std::int64_t active_columns = 0;
};
struct cusparseDnMatDescr {
  std::int64_t rows, columns, leading_dimension;
  void* values;
  cudaDataType type;
  cusparseOrder_t order;

  std::int64_t lines() const { return order == CUSPARSE_ORDER_COL ? columns : rows; }
  std::int64_t line() const { return order == CUSPARSE_ORDER_COL ? rows : columns; }
  std::size_t bytes() const {
    return lines() == 0 ? 0 : static_cast<std::size_t>(((lines() - 1) * leading_dimension + line()) * size_of(type));
  }
  std::int64_t at(std::int64_t i, std::int64_t j) const {
    return order == CUSPARSE_ORDER_COL ? j * leading_dimension + i : i * leading_dimension + j;
  }
};

namespace {

thread_local std::string said;

template <class F>
cusparseStatus_t guarded_sparse(F&& f) {
  try {
    f();
    return CUSPARSE_STATUS_SUCCESS;
  } catch (const Failure& failure) {
    note(failure);
    cudaGetLastError();
    said = failure.message;
    return failure.error == cudaErrorNotSupported   ? CUSPARSE_STATUS_NOT_SUPPORTED
           : failure.error == cudaErrorInvalidValue ? CUSPARSE_STATUS_INVALID_VALUE
                                                    : CUSPARSE_STATUS_EXECUTION_FAILED;
  }
}

std::size_t size_of_index(cusparseIndexType_t type) {
  require(type == CUSPARSE_INDEX_32I || type == CUSPARSE_INDEX_64I, cudaErrorNotSupported, "index type ", type);
  return type == CUSPARSE_INDEX_32I ? 4 : 8;
}
std::int64_t index_at(const void* all, cusparseIndexType_t type, std::int64_t i) {
  return type == CUSPARSE_INDEX_32I ? static_cast<const std::int32_t*>(all)[i]
                                    : static_cast<const std::int64_t*>(all)[i];
}

double value_at(const void* all, cudaDataType type, std::int64_t i) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(all)[i];
    case CUDA_R_64F:
      return static_cast<const double*>(all)[i];
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const __nv_bfloat16*>(all)[i]);
    default:
      return static_cast<float>(static_cast<const __half*>(all)[i]);
  }
}
void put(void* all, cudaDataType type, std::int64_t i, double x) {
  switch (type) {
    case CUDA_R_32F:
      static_cast<float*>(all)[i] = static_cast<float>(x);
      return;
    case CUDA_R_64F:
      static_cast<double*>(all)[i] = x;
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(all)[i] = __nv_bfloat16(static_cast<float>(x));
      return;
    default:
      static_cast<__half*>(all)[i] = __half(static_cast<float>(x));
  }
}
double scalar(const void* value, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value) : *static_cast<const float*>(value);
}

void check_device_range(const char* name, const void* memory, std::size_t size) {
  if (size == 0) return;
  require(find_allocation(memory).has_value(), cudaErrorInvalidValue, "cusparseSpMM: ", name, " at ",
          describe_address(memory), ", which is not the device's");
  check_range(text("cusparseSpMM: ", name).c_str(), memory, size);
}

/// The arguments of a product, shared by the three functions of the API.
struct Product {
  cusparseHandle_t handle;
  cusparseOperation_t op_a, op_b;
  const void *alpha, *beta;
  const cusparseSpMatDescr* a;
  const cusparseDnMatDescr *b, *c;
  cudaDataType compute;
  cusparseSpMMAlg_t algorithm;

  /// The required size of the buffer, although the stand-in uses only a part of it.
  std::size_t buffer_bytes() const { return 64 + 8 * static_cast<std::size_t>(a->rows + 1); }

  void check() const {
    require(handle != nullptr && a != nullptr && b != nullptr && c != nullptr, cudaErrorInvalidValue,
            "cusparseSpMM: no handle, or no description of a matrix");
    require(device_of(handle->stream) == handle->device, cudaErrorInvalidValue,
            "cusparseSpMM: the library was started on cuda:", handle->device,
            ", but the stream is of cuda:", device_of(handle->stream));
    require(op_a == CUSPARSE_OPERATION_NON_TRANSPOSE && op_b == CUSPARSE_OPERATION_NON_TRANSPOSE, cudaErrorNotSupported,
            "cusparseSpMM: transposed matrices");
    require(algorithm == CUSPARSE_SPMM_ALG_DEFAULT || algorithm == CUSPARSE_SPMM_CSR_ALG1 ||
                algorithm == CUSPARSE_SPMM_CSR_ALG2 || algorithm == CUSPARSE_SPMM_CSR_ALG3,
            cudaErrorNotSupported, "cusparseSpMM: algorithm ", algorithm);
    require(b->rows == a->columns && c->rows == a->rows && c->columns == b->columns, cudaErrorInvalidValue,
            "cusparseSpMM: a is ", a->rows, " x ", a->columns, ", b ", b->rows, " x ", b->columns, ", c ", c->rows,
            " x ", c->columns);
    const bool wide = a->type == CUDA_R_64F;
    require(a->type == b->type && compute == (wide ? CUDA_R_64F : CUDA_R_32F) &&
                (c->type == a->type || (!wide && c->type == CUDA_R_32F)),
            cudaErrorNotSupported, "cusparseSpMM: types ", a->type, ", ", b->type, ", ", c->type, " with compute type ",
            compute);
    require(b->order == c->order, cudaErrorNotSupported, "cusparseSpMM: b and c in different orders");
    check_device_range("the row offsets are", a->offsets,
                       static_cast<std::size_t>(a->rows + 1) * size_of_index(a->offsets_type));
    check_device_range("the column indices are", a->indices,
                       static_cast<std::size_t>(a->entries) * size_of_index(a->indices_type));
    check_device_range("the values are", a->values, static_cast<std::size_t>(a->entries * size_of(a->type)));
    check_device_range("b is", b->values, b->bytes());
    check_device_range("c is", c->values, c->bytes());
  }
  Uses uses(const char* name, const void* buffer, bool all) const {
    Uses uses{.name = name,
              .ranges = {{a->offsets, static_cast<std::size_t>(a->rows + 1) * size_of_index(a->offsets_type), false},
                         {a->indices, static_cast<std::size_t>(a->entries) * size_of_index(a->indices_type), false},
                         {buffer, buffer_bytes(), true}}};
    if (all) {
      uses.ranges.push_back({a->values, static_cast<std::size_t>(a->entries * size_of(a->type)), false});
      uses.ranges.push_back({b->values, b->bytes(), false});
      uses.ranges.push_back({c->values, c->bytes(), true});
    }
    return uses;
  }
};

/// What cusparseSpMM_preprocess stores in the buffer: the pattern it has seen.
struct Prepared {
  const void *offsets, *indices;
};

/// Sums rows one after another, entries in their order, in type R (float or double).
template <class R>
void multiply(const cusparseSpMatDescr& a, const cusparseDnMatDescr& b, const cusparseDnMatDescr& c, double alpha,
              double beta) {
  require(index_at(a.offsets, a.offsets_type, 0) == a.base &&
              index_at(a.offsets, a.offsets_type, a.rows) == a.base + a.entries,
          cudaErrorIllegalAddress, "cusparseSpMM: the row offsets run from ", index_at(a.offsets, a.offsets_type, 0),
          " to ", index_at(a.offsets, a.offsets_type, a.rows), ", with ", a.entries, " entries");
  for (std::int64_t i = 0; i < a.rows; ++i) {
    const std::int64_t first = index_at(a.offsets, a.offsets_type, i) - a.base;
    const std::int64_t last = index_at(a.offsets, a.offsets_type, i + 1) - a.base;
    require(0 <= first && first <= last && last <= a.entries, cudaErrorIllegalAddress, "cusparseSpMM: row ", i,
            " has the entries ", first, " to ", last, " of ", a.entries);
    for (std::int64_t e = first; e < last; ++e) {
      const std::int64_t k = index_at(a.indices, a.indices_type, e) - a.base;
      require(0 <= k && k < a.columns, cudaErrorIllegalAddress, "cusparseSpMM: entry ", e, " is in column ", k, " of ",
              a.columns);
    }
    for (std::int64_t j = 0; j < c.columns; ++j) {
      R sum = 0;
      for (std::int64_t e = first; e < last; ++e)
        sum += static_cast<R>(value_at(a.values, a.type, e)) *
               static_cast<R>(value_at(b.values, b.type, b.at(index_at(a.indices, a.indices_type, e) - a.base, j)));
      R result = static_cast<R>(alpha) * sum;
      if (beta != 0) result += static_cast<R>(beta) * static_cast<R>(value_at(c.values, c.type, c.at(i, j)));
      put(c.values, c.type, c.at(i, j), result);
    }
  }
}

template <class Descr>
void check_dense(const Descr& m) {
  require(m.rows >= 0 && m.columns >= 0 && m.leading_dimension >= m.line(), cudaErrorInvalidValue,
          "cusparseCreateDnMat: ", m.rows, " x ", m.columns, " with leading dimension ", m.leading_dimension);
}

}  // namespace

const char* cusparseGetErrorName(cusparseStatus_t status) {
  switch (status) {
    case CUSPARSE_STATUS_SUCCESS:
      return "CUSPARSE_STATUS_SUCCESS";
    case CUSPARSE_STATUS_INVALID_VALUE:
      return "CUSPARSE_STATUS_INVALID_VALUE";
    case CUSPARSE_STATUS_NOT_SUPPORTED:
      return "CUSPARSE_STATUS_NOT_SUPPORTED";
    default:
      return "CUSPARSE_STATUS_EXECUTION_FAILED";
  }
}
const char* cusparseGetErrorString(cusparseStatus_t status) {
  return status == CUSPARSE_STATUS_SUCCESS || said.empty() ? cusparseGetErrorName(status) : said.c_str();
}

cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
  *handle = new cusparseContext{.device = current_device()};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
  delete handle;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateConstCsr(cusparseConstSpMatDescr_t* matrix, std::int64_t rows, std::int64_t columns,
                                        std::int64_t entries, const void* row_offsets, const void* column_indices,
                                        const void* values, cusparseIndexType_t offsets_type,
                                        cusparseIndexType_t indices_type, cusparseIndexBase_t base, cudaDataType type) {
  return guarded_sparse([&] {
    require(rows >= 0 && columns >= 0 && entries >= 0 && row_offsets != nullptr, cudaErrorInvalidValue,
            "cusparseCreateConstCsr: ", rows, " x ", columns, " with ", entries, " entries");
    size_of_index(offsets_type);
    size_of_index(indices_type);
    size_of(type);
    *matrix = new cusparseSpMatDescr{.rows = rows,
                                     .columns = columns,
                                     .entries = entries,
                                     .offsets = row_offsets,
                                     .indices = column_indices,
                                     .values = values,
                                     .offsets_type = offsets_type,
                                     .indices_type = indices_type,
                                     .base = base,
                                     .type = type};
  });
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* matrix, std::int64_t rows, std::int64_t columns,
                                     std::int64_t leading_dimension, void* values, cudaDataType type,
                                     cusparseOrder_t order) {
  return guarded_sparse([&] {
    const cusparseDnMatDescr made{rows, columns, leading_dimension, values, type, order};
    check_dense(made);
    *matrix = new cusparseDnMatDescr(made);
  });
}
cusparseStatus_t cusparseCreateConstDnMat(cusparseConstDnMatDescr_t* matrix, std::int64_t rows, std::int64_t columns,
                                          std::int64_t leading_dimension, const void* values, cudaDataType type,
                                          cusparseOrder_t order) {
  cusparseDnMatDescr_t made = nullptr;
  const cusparseStatus_t status =
      cusparseCreateDnMat(&made, rows, columns, leading_dimension, const_cast<void*>(values), type, order);
  *matrix = made;
  return status;
}
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                         const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                         const void* beta, cusparseDnMatDescr_t c, cudaDataType compute,
                                         cusparseSpMMAlg_t algorithm, std::size_t* size_bytes) {
  return guarded_sparse([&] {
    const Product product{handle, op_a, op_b, alpha, beta, a, b, c, compute, algorithm};
    product.check();
    *size_bytes = product.buffer_bytes();
  });
}

cusparseStatus_t cusparseSpMM_preprocess(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                         const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                         const void* beta, cusparseDnMatDescr_t c, cudaDataType compute,
                                         cusparseSpMMAlg_t algorithm, void* buffer) {
  return guarded_sparse([&] {
    const Product product{handle, op_a, op_b, alpha, beta, a, b, c, compute, algorithm};
    product.check();
    check_device_range("the buffer is", buffer, product.buffer_bytes());
    a->active = buffer;
    a->active_algorithm = algorithm;
    a->active_columns = b->columns;
    submit(handle->stream, product.uses("cusparseSpMM_preprocess", buffer, false),
           [buffer, pattern = Prepared{a->offsets, a->indices}] {
             const DeviceAccess access;
             std::memcpy(buffer, &pattern, sizeof pattern);
           });
  });
}

cusparseStatus_t cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                              const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                              const void* beta, cusparseDnMatDescr_t c, cudaDataType compute,
                              cusparseSpMMAlg_t algorithm, void* buffer) {
  return guarded_sparse([&] {
    const Product product{handle, op_a, op_b, alpha, beta, a, b, c, compute, algorithm};
    product.check();
    check_device_range("the buffer is", buffer, product.buffer_bytes());
    const bool prepared = buffer == a->active;  // another buffer is allowed, but has nothing prepared
    require(!prepared || (algorithm == a->active_algorithm && b->columns == a->active_columns), cudaErrorInvalidValue,
            "cusparseSpMM: the buffer was prepared for algorithm ", a->active_algorithm, " and ", a->active_columns,
            " columns, not for ", algorithm, " and ", b->columns);
    submit(handle->stream, product.uses("cusparseSpMM", buffer, true),
           [=, m = *a, dense = *b, to = *c, by = scalar(alpha, compute), keep = scalar(beta, compute)] {
             const DeviceAccess access;
             if (prepared) {
               Prepared seen;
               std::memcpy(&seen, buffer, sizeof seen);
               require(seen.offsets == m.offsets && seen.indices == m.indices, cudaErrorIllegalState,
                       "cusparseSpMM: the buffer has been overwritten since cusparseSpMM_preprocess");
             } else {
               std::memset(buffer, 0xff, 64);  // destroy it, so that nothing can rely on its contents
             }
             if (compute == CUDA_R_64F)
               multiply<double>(m, dense, to, by, keep);
             else
               multiply<float>(m, dense, to, by, keep);
           });
  });
}
