#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Work on the rows that a product has just written, while they are in the first-level cache.
template <class T>
struct Epilogue {
  const T* bias = nullptr;                                                      ///< the sums start here instead of at 0
  void (*activate)(std::int64_t n, T* y, T* derivative, const T* x) = nullptr;  ///< in place on whole rows
  T* derivative = nullptr;                                                      ///< laid out as c, or null
  const T* residual = nullptr;                                                  ///< laid out as c; added last, or null
};

/// The part of a product with a causal matrix that is computed. Whole tiles are skipped: up to kMostTileRows elements
/// beyond the diagonal, results may be written or not, and a must hold zeros.
enum class Triangle {
  none,
  lower_c,  ///< c_mn is needed for n <= m + diagonal
  lower_a,  ///< a_mk = 0, possibly unallocated, for k > m + diagonal
  upper_a,  ///< a_mk = 0, possibly unallocated, for k < m - diagonal
};
inline constexpr std::int64_t kMostTileRows = 32;

/// c_mn (+)= sum_k a_mk b_kn on strided matrices. Each element is one chain of fused multiply-adds over k in ascending
/// order, whatever its position.
template <class T>
struct StridedProduct {
  std::int64_t m, n, k;
  T* c;
  std::int64_t c_stride;
  const T* a;
  std::int64_t a_stride;
  bool a_by_columns;  ///< a_mk at a[k a_stride + m] instead of a[m a_stride + k]
  const T* b;         ///< b_kn at b[k b_stride + n]
  std::int64_t b_stride;
  bool add;
  Triangle triangle = Triangle::none;
  std::int64_t diagonal = 0;
};

/// Serial kernels of one instruction set. Matrices are row-major and contiguous.
template <class T>
struct GemmKernels {
  std::int64_t panel_width;  ///< columns of a packed panel

  /// Elements that pack_*() writes for a product with N columns and inner extent K.
  std::int64_t (*packed_size)(std::int64_t n, std::int64_t k);
  /// Packs columns [first, first + count) of B; first is a multiple of panel_width. b_kn is at b[k ldb + n] (plain) or
  /// b[n ldb + k] (transposed).
  void (*pack_plain)(T* packed, const T* b, std::int64_t ldb, std::int64_t n, std::int64_t k, std::int64_t first,
                     std::int64_t count);
  void (*pack_transposed)(T* packed, const T* b, std::int64_t ldb, std::int64_t n, std::int64_t k, std::int64_t first,
                          std::int64_t count);
  /// c (M, N) (+)= a (M, K) B with B packed.
  void (*rows)(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* packed, bool accumulate,
               const Epilogue<T>& epilogue);
  /// c (M, N) (+)= a (M, K) b (N, K)^T for N <= kFewColumns, with b unpacked.
  void (*few_columns)(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate,
                      const Epilogue<T>& epilogue);
  /// Rows [first, first + count) of c (M, N) (+)= sum over K rows of a (K, M) and b (K, N), in blocks of kTnRows,
  /// ascending.
  void (*tn)(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate,
             std::int64_t first, std::int64_t count);
  /// dy *= derivative (unless null) over M rows of N, and sums_n = the column sums (unless null).
  void (*scale_and_sum)(std::int64_t m, std::int64_t n, T* dy, const T* derivative, T* sums);
};
inline constexpr std::int64_t kFewColumns = 4;

/// Scratch memory of the calling thread, aligned to 64 bytes, valid until the next call for the same purpose. It only
/// grows, so a loop of equal products allocates once.
enum class Scratch { packed_a, packed_b, partial, attention, tables };
void* thread_scratch(Scratch purpose, std::size_t size_bytes);
/// The same for `count` elements.
template <class T>
T* thread_scratch(Scratch purpose, std::int64_t count) {
  return static_cast<T*>(thread_scratch(purpose, static_cast<std::size_t>(count) * sizeof(T)));
}

LOCKSTEP_KERNELS(GemmKernels, gemm_kernels)
LOCKSTEP_EACH_ISA(template <class T> void strided_product(const StridedProduct<T>& p);)

/// The kind of a product's second operand: a weight may be packed already (PackedWeights).
enum class Operand { any, weight };
/// The packed form of a weight b (K, N), or (N, K) when transposed: valid while the thread's PackedWeights lives, or
/// without one until the thread's next product.
template <class T>
const T* packed_weight(std::int64_t n, std::int64_t k, const T* b, bool transposed);

/// The products of ops/gemm.hpp on plain pointers, shared among threads if that pays. b is (K, N), or (N, K) when
/// transposed.
template <class T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool transposed,
             bool accumulate, const Epilogue<T>& epilogue = {}, Operand operand = Operand::any);
template <class T>
void product_tn(std::int64_t m, std::int64_t n, std::int64_t k, T* c, const T* a, const T* b, bool accumulate);
/// dy *= derivative (unless null); sums_n (+)= column sums (unless null), in blocks of kTnRows rows, ascending.
template <class T>
void scale_and_sum(std::int64_t m, std::int64_t n, T* dy, const T* derivative, T* sums, bool accumulate);

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// Bytes at the start of the thread's scratch memory (device/cuda_scratch.hpp) that product() uses.
inline constexpr std::size_t kProductScratch = std::size_t{32} << 20;
/// Which operands of a product are transposed, as in ops/gemm.hpp.
enum class Product { nt, nn, tn };
/// `count` products with K > 0. c, a and b are the distances in elements from a product's matrix to that of the next;
/// 0: one matrix for all.
struct ProductBatch {
  std::int64_t count = 1, c = 0, a = 0, b = 0;
  auto operator<=>(const ProductBatch&) const = default;
};
/// The products of ops/gemm.hpp by cuBLASLt. c (M, N) has type T or real_t<T>; the inner extent is K. bias (N), unless
/// null, is added to each row of c, and `added` (M, N), unless null, to c; both require a product that does not
/// accumulate. The algorithm for a shape is chosen once per thread.
template <class T, class C>
void product(const Stream& stream, Product product, std::int64_t m, std::int64_t n, std::int64_t k, C* c, const T* a,
             const T* b, bool accumulate, const C* bias = nullptr, const ProductBatch& batch = {},
             const C* added = nullptr);

}  // namespace lockstep::ops::cuda
