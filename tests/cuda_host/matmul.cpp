#include "matmul.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "error.hpp"

namespace cuda_host {

namespace {

// The tile of the result, which fits in AVX2's registers, and how much of k and of the rows is packed at once.
constexpr std::int64_t kRows = 6, kDepth = 256, kPackedRows = 16 * kRows;
template <class T>
using Vector [[gnu::vector_size(32)]] = T;
template <class T>
constexpr std::int64_t kLanes = 32 / sizeof(T);
template <class T>
constexpr std::int64_t kColumns = 2 * kLanes<T>;

/// sums (kRows, kColumns) += a (depth, kRows) transposed times b (depth, kColumns), both packed.
template <class T>
[[gnu::always_inline]] inline void tile(std::int64_t depth, T* sums, const T* a, const T* b) {
  Vector<T> sum[kRows][2] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    Vector<T> left, right;
    std::memcpy(&left, b + p * kColumns<T>, sizeof left);
    std::memcpy(&right, b + p * kColumns<T> + kLanes<T>, sizeof right);
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kRows; ++i) {
      sum[i][0] += a[p * kRows + i] * left;
      sum[i][1] += a[p * kRows + i] * right;
    }
  }
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns<T>; ++j) sums[i * kColumns<T> + j] += sum[i][j / kLanes<T>][j % kLanes<T>];
}

template <class T>
void tile_anywhere(std::int64_t depth, T* sums, const T* a, const T* b) {
  tile(depth, sums, a, b);
}
#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void tile_avx2(std::int64_t depth, float* sums, const float* a, const float* b) {
  tile(depth, sums, a, b);
}
[[gnu::target("avx2,fma")]] void tile_avx2(std::int64_t depth, double* sums, const double* a, const double* b) {
  tile(depth, sums, a, b);
}
#endif

template <class T>
using Tile = void (*)(std::int64_t, T*, const T*, const T*);
template <class T>
Tile<T> fastest_tile() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return tile_avx2;
#endif
  return tile_anywhere<T>;
}

/// The elements of a matrix from a row and a column on, in its storage type.
void visit(const MatrixView& matrix, std::int64_t row, std::int64_t column, auto&& f) {
  const std::int64_t at = row * matrix.row_stride + column * matrix.column_stride;
  switch (matrix.type) {
    case CUDA_R_32F:
      return f(static_cast<float*>(matrix.data) + at);
    case CUDA_R_64F:
      return f(static_cast<double*>(matrix.data) + at);
    case CUDA_R_16BF:
      return f(static_cast<__nv_bfloat16*>(matrix.data) + at);
    case CUDA_R_16F:
      return f(static_cast<__half*>(matrix.data) + at);
    default:
      throw Failure{cudaErrorNotSupported, text("a matrix of data type ", matrix.type)};
  }
}
template <class T>
void load(const MatrixView& from, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns, T* to,
          std::int64_t to_row, std::int64_t to_column) {
  visit(from, row, column, [&](const auto* data) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        to[i * to_row + j * to_column] = static_cast<T>(data[i * from.row_stride + j * from.column_stride]);
  });
}
template <class T>
T load(const void* data, cudaDataType_t type, std::int64_t at) {
  T value;
  load<T>({const_cast<void*>(data), type, 1, 1}, at, 0, 1, 1, &value, 1, 1);
  return value;
}
void store(const MatrixView& to, std::int64_t row, std::int64_t column, auto value) {
  visit(to, row, column, [&]<class Storage>(Storage* data) { *data = static_cast<Storage>(value); });
}

/// Rounds packed operands to TF32, ties to even.
void round_to_tf32(std::vector<float>& values) {
  for (float& value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (std::isfinite(value)) value = std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
  }
}
void round_to_tf32(std::vector<double>&) {}

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const MatrixView& a, const MatrixView& b, T beta,
             const MatrixView& c, const MatrixView& d, const void* bias, Digits digits) {
  static const Tile<T> compute = fastest_tile<T>();
  thread_local std::vector<T> packed_a, packed_b, sums;
  const std::int64_t n_round = round_up(n, kColumns<T>), m_round = round_up(m, kRows);
  sums.assign(m_round * n_round, T(0));
  for (std::int64_t p = 0; p < k; p += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - p);
    packed_b.assign(n_round * depth, T(0));
    for (std::int64_t j = 0; j < n; j += kColumns<T>)
      load<T>(b, p, j, depth, std::min(kColumns<T>, n - j), packed_b.data() + j * depth, kColumns<T>, 1);
    if (digits == Digits::tf32) round_to_tf32(packed_b);
    for (std::int64_t i0 = 0; i0 < m; i0 += kPackedRows) {
      const std::int64_t rows = std::min(kPackedRows, m - i0);
      packed_a.assign(round_up(rows, kRows) * depth, T(0));
      for (std::int64_t i = 0; i < rows; i += kRows)
        load<T>(a, i0 + i, p, std::min(kRows, rows - i), depth, packed_a.data() + i * depth, 1, kRows);
      if (digits == Digits::tf32) round_to_tf32(packed_a);
      for (std::int64_t j = 0; j < n; j += kColumns<T>)
        for (std::int64_t i = 0; i < rows; i += kRows)
          compute(depth, sums.data() + (i0 + i) * n_round + j * kRows, packed_a.data() + i * depth,
                  packed_b.data() + j * depth);
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    const T shift = bias ? load<T>(bias, d.type, i) : T(0);
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t tile_begin = i / kRows * kRows * n_round + j / kColumns<T> * kColumns<T> * kRows;
      T value = alpha * sums[tile_begin + i % kRows * kColumns<T> + j % kColumns<T>];
      if (beta != 0) value += beta * load<T>(c.data, c.type, i * c.row_stride + j * c.column_stride);
      store(d, i, j, value + shift);
    }
  }
}

}  // namespace

std::int64_t size_of(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

void matmul(std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const MatrixView& a, const MatrixView& b,
            double beta, const MatrixView& c, const MatrixView& d, const void* bias, Digits digits) {
  // If rows are contiguous, compute the transposed product instead, whose columns they are: reads and writes then
  // follow the memory layout. A bias belongs to rows, so it requires the first form.
  if (!bias && d.row_stride == 1 && d.column_stride != 1) {
    const auto turned = [](const MatrixView& v) { return MatrixView{v.data, v.type, v.column_stride, v.row_stride}; };
    return matmul(n, m, k, alpha, turned(b), turned(a), beta, turned(c), turned(d), nullptr, digits);
  }
  if (a.type == CUDA_R_64F)
    product<double>(m, n, k, alpha, a, b, beta, c, d, bias, digits);
  else
    product<float>(m, n, k, static_cast<float>(alpha), a, b, static_cast<float>(beta), c, d, bias, digits);
}

}  // namespace cuda_host
