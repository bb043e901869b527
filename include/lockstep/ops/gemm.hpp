#pragma once
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Matrix products that give the same bits for the same operands.
///
///   nt   c_mn (+)= sum_k a_mk b_nk       a (M, K), b (N, K)     forward of a layer
///   nn   c_mn (+)= sum_k a_mk b_kn       a (M, K), b (K, N)     gradient of its input
///   tn   c_mn (+)= sum_k a_km b_kn       a (K, M), b (K, N)     gradient of its weight
///
/// Row m of the result of nt and nn depends on row m of a and on b alone, in every bit: not on the other rows of the
/// call and not on the number of threads. tn sums blocks of kTnRows rows in ascending order for any number of threads.
/// Called outside a parallel region, a large product is shared among the OpenMP threads; inside one it runs on the
/// calling thread.
///
/// On a GPU cuBLASLt computes the products: the same call gives the same bits each time, but row m also depends on the
/// shape of the call.
///
/// shapes   as above; an array of rank above 2 counts as (rows(), columns()). Any extent may be 0
/// dtypes   f32 | f64, all equal. On a GPU also a and b both bf16 | f16 with c the same or f32; sums are in f32
/// errors   Error naming the shapes if they do not fit
/// source   blocking: Goto, van de Geijn 2008, "Anatomy of high-performance matrix multiplication"
void gemm_nt(Stream&, Target c, const Tensor& a, const Tensor& b);
void gemm_nn(Stream&, Target c, const Tensor& a, const Tensor& b);
void gemm_tn(Stream&, Target c, const Tensor& a, const Tensor& b);
inline constexpr std::int64_t kTnRows = 256;

/// While an object of this class lives, linear layers and gated units of the calling thread pack a weight once instead
/// of at each call. The weights must not change meanwhile. A thread caches at most 8 MiB of packed weights and keeps
/// the memory for the next object. Results are the same. A thread has at most one such object.
class PackedWeights {
 public:
  PackedWeights();
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;
};

/// Whether products of f32 on GPUs may round a and b to TF32 (10 bits after the binary point; sums stay f32). Tensor
/// cores multiply TF32 many times faster. One setting for the whole process; off at first.
void allow_tf32(bool allowed);
bool tf32_allowed();

}  // namespace lockstep::ops
