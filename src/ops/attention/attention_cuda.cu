#include "attention_kernels.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "ops/attention/packed_attention_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

template <class T>
PackedAttention<T> packed(const Attention<T>& a) {
  PackedAttention<T> all{a};
  all.product_flops = 2 * static_cast<double>(a.batch * a.heads * a.time * a.time * a.width);
  return all;
}

}  // namespace

template <class T>
void attention_forward(const Stream& stream, const Attention<T>& a) {
  packed_attention_forward(stream, packed(a));
}

template <class T>
void attention_backward(const Stream& stream, const Attention<T>& a) {
  packed_attention_backward(stream, packed(a), a.batch * a.time);
}

LOCKSTEP_EACH_STORAGE(attention_forward, attention_backward)

}  // namespace lockstep::ops::cuda
