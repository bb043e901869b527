#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/device.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

namespace {

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, float>           ? CUDA_R_32F
                                 : std::is_same_v<T, double>        ? CUDA_R_64F
                                 : std::is_same_v<T, __nv_bfloat16> ? CUDA_R_16BF
                                                                    : CUDA_R_16F;

/// A product and its description, as the tests vary it.
struct Case {
  std::int64_t m, n, k;
  bool turn_a = false, turn_b = false;
  std::int32_t batches = 1;
  double alpha = 1, beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

/// The largest difference between the library's result and the definition, relative to the largest element.
template <class T>
double error_of(const Case& p) {
  using Scale = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto element = [](std::int64_t i) { return std::sin(0.7 * static_cast<double>(i)); };
  const auto fill = [&](std::int64_t count, double shift) {
    std::vector<T> x(to_size(count));
    for (std::int64_t i = 0; i < count; ++i) x[i] = T(static_cast<float>(element(i) + shift));
    return x;
  };
  // The leading dimension is two elements longer than needed.
  const auto lead = [](std::int64_t rows) { return rows + 2; };
  const std::int64_t ar = p.turn_a ? p.k : p.m, ac = p.turn_a ? p.m : p.k, br = p.turn_b ? p.n : p.k,
                     bc = p.turn_b ? p.k : p.n;
  const std::int64_t sa = ac * lead(ar), sb = bc * lead(br), sd = p.n * lead(p.m);
  const auto a = fill(sa * p.batches, 0.1), b = fill(sb * p.batches, -0.2), c = fill(sd * p.batches, 0.3),
             bias = fill(p.m, 0);
  const DeviceArray<T> da(a), db(b), dbias(bias);
  DeviceArray<T> dd(c);

  cublasLtHandle_t handle;
  cublasLtCreate(&handle);
  const auto layout = [&](std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    cublasLtMatrixLayout_t made;
    cublasLtMatrixLayoutCreate(&made, kType<T>, rows, columns, lead(rows));
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &p.batches, sizeof p.batches);
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return made;
  };
  const auto la = layout(ar, ac, sa), lb = layout(br, bc, sb), ld = layout(p.m, p.n, sd);
  cublasLtMatmulDesc_t product;
  constexpr bool kWide = std::is_same_v<T, double>;
  cublasLtMatmulDescCreate(&product, kWide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, kWide ? CUDA_R_64F : CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.turn_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.turn_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  const void* where = dbias.data();
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, where);
  const Stream stream({DeviceKind::cuda, 0});
  const auto alpha = static_cast<Scale>(p.alpha), beta = static_cast<Scale>(p.beta);
  const cublasStatus_t status =
      cublasLtMatmul(handle, product, &alpha, da.data(), la, db.data(), lb, &beta, dd.data(), ld, dd.data(), ld,
                     nullptr, nullptr, 0, static_cast<cudaStream_t>(stream.native()));
  const std::string said = cublasGetStatusString(status);
  CAPTURE(said);
  REQUIRE(status == CUBLAS_STATUS_SUCCESS);
  const auto d = dd.read();
  for (const auto l : {la, lb, ld}) cublasLtMatrixLayoutDestroy(l);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);

  double largest = 0, worst = 0;
  const auto at = [&](const std::vector<T>& x, std::int64_t first, std::int64_t i, std::int64_t j, std::int64_t rows) {
    return static_cast<double>(x[to_size(first + j * lead(rows) + i)]);
  };
  for (std::int64_t batch = 0; batch < p.batches; ++batch)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t q = 0; q < p.k; ++q)
          sum += (p.turn_a ? at(a, batch * sa, q, i, ar) : at(a, batch * sa, i, q, ar)) *
                 (p.turn_b ? at(b, batch * sb, j, q, br) : at(b, batch * sb, q, j, br));
        sum = p.alpha * sum + p.beta * at(c, batch * sd, i, j, p.m);
        if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += static_cast<double>(bias[i]);
        largest = std::max(largest, std::abs(sum));
        worst = std::max(worst, std::abs(sum - at(d, batch * sd, i, j, p.m)));
      }
  return worst / std::max(1.0, largest);
}

}  // namespace

TEST_SUITE("cuda_host.cublaslt") {
  TEST_CASE("products agree with the definition for any shape, transposition and batch") {
    for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {6, 16, 8}, {7, 17, 300}, {100, 33, 65}, {3, 50, 1}})
      for (const bool turn_a : {false, true})
        for (const bool turn_b : {false, true}) {
          CAPTURE(m);
          CAPTURE(turn_a);
          CAPTURE(turn_b);
          const Case p{.m = m, .n = n, .k = k, .turn_a = turn_a, .turn_b = turn_b};
          CHECK(error_of<float>(p) < 3e-6);
          CHECK(error_of<double>(p) < 1e-14);
        }
    CHECK(error_of<double>({.m = 5, .n = 4, .k = 3, .batches = 3}) < 1e-14);
  }

  TEST_CASE("alpha, beta and epilogues agree with the definition") {
    for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS}) {
      const Case p{.m = 9, .n = 20, .k = 31, .alpha = -0.5, .beta = 1.5, .epilogue = epilogue};
      CHECK(error_of<float>(p) < 1e-6);
      CHECK(error_of<double>(p) < 1e-14);
    }
  }

  TEST_CASE("half precisions are stored rounded and summed in float") {
    CHECK(error_of<__nv_bfloat16>({.m = 9, .n = 20, .k = 310}) < 4e-3);
    CHECK(error_of<__half>({.m = 9, .n = 20, .k = 310, .turn_a = true}) < 5e-4);
    CHECK(static_cast<float>(__nv_bfloat16(1.00390625f)) == 1.0f);  // a tie goes to even
    CHECK(static_cast<float>(__nv_bfloat16(1.01171875f)) == 1.015625f);
    CHECK(std::isnan(static_cast<float>(__nv_bfloat16(NAN))));
    CHECK(static_cast<float>(__half(65520.0f)) == INFINITY);
  }

  TEST_CASE("operands that do not fit are an error with a reason") {
    cublasLtHandle_t handle;
    cublasLtCreate(&handle);
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 8, 4, 8);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 4, 6, 4);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 8, 6, 8);
    cublasLtMatmulDesc_t product;
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const DeviceArray<float> x(64);
    std::vector<float> host(64);
    const Stream stream({DeviceKind::cuda, 0});
    const auto complaint = [&](const void* pa, cublasLtMatrixLayout_t la, const cublasLtMatmulAlgo_t* algorithm) {
      const float one = 1, zero = 0;
      return std::string(
          cublasGetStatusString(cublasLtMatmul(handle, product, &one, pa, la, x.data(), b, &zero, x.data(), d, x.data(),
                                               d, algorithm, nullptr, 0, static_cast<cudaStream_t>(stream.native()))));
    };
    const auto has = [](const std::string& all, const char* part) { return all.find(part) != std::string::npos; };
    CHECK(complaint(x.data(), a, nullptr) == "CUBLAS_STATUS_SUCCESS");
    CHECK(has(complaint(x.data(), b, nullptr), "op(a) is 4 x 6, op(b) 4 x 6"));
    CHECK(has(complaint(host.data(), a, nullptr), "a is at 0x"));
    CHECK(has(complaint(x.data() + 33, a, nullptr), "a is 128 bytes at byte 132 of the 256 bytes"));
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, d, d, preference, 1, &result, &found) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(found == 1);
    CHECK(has(complaint(x.data() + 1, a, &result.algo), "is not aligned to 256 bytes"));
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto l : {a, b, d}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
  }

  TEST_CASE("algorithms differ in time and in the order of additions, or fail, as the environment asks") {
    ::setenv("LOCKSTEP_CUDA_HOST_PRODUCTS", "2,fails,large,refused,0.5", 1);
    cublasLtHandle_t handle;
    cublasLtCreate(&handle);
    cublasLtMatrixLayout_t a, d;
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 8, 8, 8);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 8, 8, 8);
    cublasLtMatmulDesc_t product;
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t results[8];
    int found = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, product, a, a, d, d, preference, 8, results, &found);
    ::unsetenv("LOCKSTEP_CUDA_HOST_PRODUCTS");
    REQUIRE(found == 5);
    CHECK(results[2].workspaceSize == 1);
    CHECK(results[3].state == CUBLAS_STATUS_NOT_SUPPORTED);
    std::vector<float> numbers(64);
    for (std::size_t i = 0; i < 64; ++i) numbers[i] = std::sin(static_cast<float>(i));
    const DeviceArray<float> x(numbers);
    const Stream stream({DeviceKind::cuda, 0});
    const auto native = static_cast<cudaStream_t>(stream.native());
    cudaEvent_t begin, end;
    cudaEventCreateWithFlags(&begin, 0);
    cudaEventCreateWithFlags(&end, 0);
    const auto run = [&](int number, float& ms) {
      const float one = 1, zero = 0;
      DeviceArray<float> y(std::vector<float>(64));
      cudaEventRecord(begin, native);
      const cublasStatus_t status = cublasLtMatmul(handle, product, &one, x.data(), a, x.data(), a, &zero, y.data(), d,
                                                   y.data(), d, &results[number].algo, nullptr, 0, native);
      cudaEventRecord(end, native);
      cudaEventSynchronize(end);
      CHECK((status == CUBLAS_STATUS_SUCCESS) == (number == 0 || number == 4));
      CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
      return y.read();
    };
    float slow = 0, fast = 0, none = 0;
    CHECK(run(0, slow) != run(4, fast));
    (void)run(1, none);
    CHECK(slow == 2);
    CHECK(fast == 0.5f);
    CHECK(none == 0);
    for (const cudaEvent_t event : {begin, end}) cudaEventDestroy(event);
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto l : {a, d}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
  }
}
