#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cusparse.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/device.hpp"
#include "support/device_array.hpp"

using namespace lockstep;
using test::DeviceArray;

namespace {

template <class T>
constexpr cudaDataType_t kData = CUDA_R_32F;
template <>
constexpr cudaDataType_t kData<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t kData<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kData<__half> = CUDA_R_16F;
template <class I>
constexpr cusparseIndexType_t kIndex = sizeof(I) == 4 ? CUSPARSE_INDEX_32I : CUSPARSE_INDEX_64I;

constexpr std::int64_t kRows = 7, kInner = 5, kColumns = 3;
/// The columns of each row's entries. One row is empty, one has the same column twice.
const std::vector<std::vector<int>> kPattern = {{0, 4}, {}, {2}, {1, 1, 3}, {0, 1, 2, 3, 4}, {4}, {3, 0}};

double element(std::int64_t i) { return std::sin(0.7 * static_cast<double>(i)); }
template <class T>
std::vector<T> values(std::size_t count, int from) {
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = T(static_cast<float>(element(from + static_cast<std::int64_t>(i))));
  return x;
}

/// A product of the matrix of kPattern and everything that it needs. Offsets have type I, values T, results C.
template <class T, class C, class I>
class Product {
 public:
  explicit Product(cusparseOrder_t order = CUSPARSE_ORDER_ROW, int base = 0) : order_(order), base_(base) {
    cusparseCreate(&handle_);
    cusparseSetStream(handle_, static_cast<cudaStream_t>(stream_.native()));
    std::vector<I> offsets = {static_cast<I>(base)};
    std::vector<std::int32_t> columns;
    for (const auto& row : kPattern) {
      for (const int k : row) columns.push_back(k + base);
      offsets.push_back(static_cast<I>(offsets.back() + static_cast<I>(row.size())));
    }
    offsets_.emplace(offsets);
    columns_.emplace(columns);
    a_.emplace(values<T>(columns.size(), 1));
    b_.emplace(values<T>(kInner * stride(kInner), 50));
    c_.emplace(values<C>(kRows * stride(kRows), 99));
    cusparseCreateConstCsr(&matrix_, kRows, kInner, static_cast<std::int64_t>(columns.size()), offsets_->data(),
                           columns_->data(), a_->data(), kIndex<I>, CUSPARSE_INDEX_32I,
                           base == 0 ? CUSPARSE_INDEX_BASE_ZERO : CUSPARSE_INDEX_BASE_ONE, kData<T>);
    cusparseCreateConstDnMat(&from_, kInner, kColumns, leading(kInner), b_->data(), kData<T>, order);
    cusparseCreateDnMat(&to_, kRows, kColumns, leading(kRows), c_->data(), kData<C>, order);
  }
  ~Product() {
    cusparseDestroySpMat(matrix_);
    cusparseDestroyDnMat(from_);
    cusparseDestroyDnMat(to_);
    cusparseDestroy(handle_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::size_t buffer_bytes() {
    std::size_t size = 0;
    status_ = cusparseSpMM_bufferSize(handle_, op_a, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix_, from_, &beta,
                                      to_, compute(), algorithm, &size);
    return size;
  }
  /// Returns the library's message.
  std::string prepare(void* buffer) {
    status_ = cusparseSpMM_preprocess(handle_, op_a, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix_, from_, &beta,
                                      to_, compute(), algorithm, buffer);
    return words();
  }
  std::string run(void* buffer) {
    status_ = cusparseSpMM(handle_, op_a, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix_, from_, &beta, to_,
                           compute(), algorithm, buffer);
    stream_.synchronize();
    return words();
  }
  std::string words() const { return cusparseGetErrorString(status_); }

  /// The largest difference of the result so far from the definition, relative to the largest element.
  double error(double a_times, double c_times) {
    const auto a = a_->read(), b = b_->read();
    const auto c = c_->read(), before = values<C>(c.size(), 99);
    double worst = 0, largest = 0;
    std::size_t entry = 0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      const auto& row = kPattern[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < kColumns; ++j) {
        double sum = 0;
        for (std::size_t e = 0; e < row.size(); ++e)
          sum += static_cast<double>(a[entry + e]) * static_cast<double>(b[at(row[e], j, kInner)]);
        const double wanted = a_times * sum + c_times * static_cast<double>(before[at(i, j, kRows)]);
        worst = std::max(worst, std::abs(static_cast<double>(c[at(i, j, kRows)]) - wanted));
        largest = std::max(largest, std::abs(wanted));
      }
      entry += row.size();
    }
    return worst / largest;
  }

  std::conditional_t<std::is_same_v<T, double>, double, float> alpha = 1, beta = 0;
  cusparseOperation_t op_a = CUSPARSE_OPERATION_NON_TRANSPOSE;
  cusparseSpMMAlg_t algorithm = CUSPARSE_SPMM_CSR_ALG2;
  std::optional<DeviceArray<std::int32_t>> columns_;

 private:
  // The leading dimension is two elements longer than needed.
  std::int64_t leading(std::int64_t rows) const { return (order_ == CUSPARSE_ORDER_ROW ? kColumns : rows) + 2; }
  std::size_t stride(std::int64_t rows) const { return static_cast<std::size_t>(leading(rows)); }
  std::size_t at(std::int64_t i, std::int64_t j, std::int64_t rows) const {
    return static_cast<std::size_t>(order_ == CUSPARSE_ORDER_ROW ? i * leading(rows) + j : j * leading(rows) + i);
  }
  cudaDataType_t compute() const { return std::is_same_v<T, double> ? CUDA_R_64F : CUDA_R_32F; }

  Stream stream_{{DeviceKind::cuda, 0}};
  cusparseOrder_t order_;
  int base_;
  cusparseHandle_t handle_ = nullptr;
  cusparseConstSpMatDescr_t matrix_ = nullptr;
  cusparseConstDnMatDescr_t from_ = nullptr;
  cusparseDnMatDescr_t to_ = nullptr;
  cusparseStatus_t status_ = CUSPARSE_STATUS_SUCCESS;
  std::optional<DeviceArray<I>> offsets_;
  std::optional<DeviceArray<T>> a_, b_;
  std::optional<DeviceArray<C>> c_;
};

template <class T, class C, class I>
double error_of(cusparseOrder_t order, int base, double alpha, double beta) {
  Product<T, C, I> product(order, base);
  product.alpha = static_cast<decltype(product.alpha)>(alpha);
  product.beta = static_cast<decltype(product.beta)>(beta);
  const DeviceArray<std::byte> buffer(product.buffer_bytes());
  CHECK(product.prepare(buffer.data()) == "CUSPARSE_STATUS_SUCCESS");
  CHECK(product.run(buffer.data()) == "CUSPARSE_STATUS_SUCCESS");
  return product.error(alpha, beta);
}
bool has(const std::string& all, const char* part) { return all.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("cuda_host.cusparse") {
  TEST_CASE("a sparse matrix times a dense one follows the definition in either order, with either kind of offsets") {
    for (const auto order : {CUSPARSE_ORDER_ROW, CUSPARSE_ORDER_COL})
      for (const int base : {0, 1}) {
        CAPTURE(order);
        CAPTURE(base);
        CHECK(error_of<float, float, std::int32_t>(order, base, 1, 0) < 1e-6);
        CHECK(error_of<float, float, std::int64_t>(order, base, -0.5, 1.5) < 1e-6);
        CHECK(error_of<double, double, std::int64_t>(order, base, -0.5, 1.5) < 1e-14);
      }
  }

  TEST_CASE("half precisions are summed in float and stored in the requested type") {
    CHECK(error_of<__nv_bfloat16, float, std::int32_t>(CUSPARSE_ORDER_ROW, 0, 1, 0) < 1e-6);
    CHECK(error_of<__half, float, std::int64_t>(CUSPARSE_ORDER_ROW, 0, 1, 0) < 1e-6);
    CHECK(error_of<__nv_bfloat16, __nv_bfloat16, std::int32_t>(CUSPARSE_ORDER_ROW, 0, 1, 0) < 4e-3);
  }

  TEST_CASE("operands that do not fit are an error with a reason") {
    Product<float, float, std::int32_t> product;
    const std::size_t size = product.buffer_bytes();
    const DeviceArray<std::byte> buffer(size), small(8);
    std::vector<std::byte> host(size);
    CHECK(has(product.run(host.data()), "the buffer is at 0x"));
    CHECK(has(product.run(small.data()), "cusparseSpMM: the buffer is"));
    product.op_a = CUSPARSE_OPERATION_TRANSPOSE;
    CHECK(has(product.run(buffer.data()), "transposed"));
    product.op_a = CUSPARSE_OPERATION_NON_TRANSPOSE;
    CHECK(product.run(buffer.data()) == "CUSPARSE_STATUS_SUCCESS");
    Product<__half, __nv_bfloat16, std::int32_t> mixed;
    CHECK(mixed.buffer_bytes() == 0);
    CHECK(has(mixed.words(), "types 2, 2, 14"));
  }

  TEST_CASE("a column outside the matrix is detected") {
    Product<float, float, std::int32_t> product;
    const DeviceArray<std::byte> buffer(product.buffer_bytes());
    const Stream stream({DeviceKind::cuda, 0});
    const std::int32_t beyond = kInner;
    copy_bytes(stream, product.columns_->data() + 2, &beyond, sizeof beyond);
    stream.synchronize();
    CHECK(has(product.run(buffer.data()), "entry 2 is in column 5 of 5"));
  }

  TEST_CASE("a prepared buffer is valid for one kind of product, and must not be overwritten") {
    Product<float, float, std::int32_t> product;
    const std::size_t size = product.buffer_bytes();
    const DeviceArray<std::byte> buffer(size), other(size);
    CHECK(product.prepare(buffer.data()) == "CUSPARSE_STATUS_SUCCESS");
    product.algorithm = CUSPARSE_SPMM_CSR_ALG3;
    CHECK(has(product.run(buffer.data()), "prepared for algorithm 6"));
    CHECK(product.run(other.data()) == "CUSPARSE_STATUS_SUCCESS");
    product.algorithm = CUSPARSE_SPMM_CSR_ALG2;
    CHECK(product.run(buffer.data()) == "CUSPARSE_STATUS_SUCCESS");
    CHECK(product.error(1, 0) < 1e-6);
    const Stream stream({DeviceKind::cuda, 0});
    zero_bytes(stream, buffer.data(), 16);
    stream.synchronize();
    CHECK(has(product.run(buffer.data()), "the buffer has been overwritten"));
  }
}
