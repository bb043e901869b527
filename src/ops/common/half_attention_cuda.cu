#include <limits>

#include "half_attention_tiles_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kKeys = 64;  // of a tile

/// Shared memory of a block.
template <class T, int kWidth>
struct ForwardTiles {
  T *q, *k, *v;
  std::uint32_t* keeps;
  static std::size_t bytes(int rows) {
    return static_cast<std::size_t>((rows + 2 * kKeys) * kHalfStride<kWidth>) * sizeof(T) +
           static_cast<std::size_t>(rows * WeightKeeps<T>::kWords) * sizeof(std::uint32_t);
  }
  __device__ ForwardTiles(unsigned char* memory, int rows)
      : q(reinterpret_cast<T*>(memory)),
        k(q + rows * kHalfStride<kWidth>),
        v(k + kKeys * kHalfStride<kWidth>),
        keeps(reinterpret_cast<std::uint32_t*>(v + kKeys * kHalfStride<kWidth>)) {}
};

/// Warps own rows of queries; keys and values are processed in tiles. Scores, softmax and weighted values are computed
/// in one pass that rescales its sums when the largest score grows. A warp holds 16 x 64 of the (T, T) weights in
/// registers at a time. Exponentials are powers of two, which the GPU has an instruction for. Bound by tensor cores
/// and, with dropout, by Philox: 10 rounds for 8 weights.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kAttentionWarps, kWidth <= 64 ? 4 : 2)
    half_forward_kernel(PackedAttention<T> a, HalfAccess access, gpu::Drop<float> drop) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr int kStride = kHalfStride<kWidth>;
  const HalfPlace<T> at(a);
  if (at.behind >= 0) return at.zero_behind(a, a.y, a.heads * a.width);
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const ForwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  const int mine = at.warp * kFragmentRows;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, const Turned<T>& turn) {
    fetch_rows<kWidth>(to, at.in(from, a, stride), stride, first, count, at.length, width, access.pack, turn);
  };
  fetch(sm.q, a.q, a.stride, at.first, at.rows, turned);

  const float scale = a.scale * kLog2E<float>, fill = a.fill * kLog2E<float>;
  const bool filled = a.fill > kNone;
  const auto last_key = [&](int row) { return a.causal && row < at.length ? row + 1 : at.length; };
  float y[kWidth / 8][4] = {}, largest[2] = {kNone, kNone}, sum[2] = {};
  // mutant-equivalent: keys beyond the last visible one have weight 0
  const int end = filled ? at.length : last_key(at.first + at.rows - 1);
  for (int tile = 0; tile < end; tile += kKeys) {
    __syncthreads();  // all warps have finished with the previous tile
    fetch(sm.k, a.k, a.kv_stride, tile, kKeys, turned);
    fetch(sm.v, a.v, a.kv_stride, tile, kKeys, {});
    __syncthreads();
    // mutant-equivalent: keys beyond the last visible one have weight 0
    if (at.mine() >= at.length || (!filled && tile >= last_key(at.mine() + kFragmentRows - 1))) continue;
    if (keeps && tile % gpu::kGroupDraws == 0) {
      keeps.draw(at.mine(), kFragmentRows, tile, at.lane);
      __syncwarp();
    }
    float s[kKeys / 8][4];
    row_products<kWidth, kKeys>(s, sm.q + mine * kStride, sm.k, at.lane, width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      // Keys of the tile that the query sees, and keys that it has a score for.
      const int seen = at.is_query(row) ? last_key(row) - tile : 0, there = at.is_query(row) ? at.length - tile : 0;
      float most = largest[r];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          const int j = 8 * n + 2 * at.t + e;
          x = j < seen ? x * scale : j < there ? fill : kNone;
          most = gpu::Max()(x, most);
        }
      most = over_row(most, gpu::Max());
      const float base = most == kNone ? 0.0f : most, shrink = exp2f(largest[r] - base);
      largest[r] = most;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        y[n][2 * r] *= shrink;
        y[n][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        const std::uint32_t bits = keeps ? keeps.from(at.g + 8 * r, row, tile + 8 * n) : 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          x = exp2f(x - base);
          sum[r] += x;
          if (keeps) x *= keeps.kept(bits, keeps.in_bits(2 * at.t + e));
        }
      }
    }
    add_weighted_rows<kWidth, kKeys>(y, s, sm.v, at.lane, width);
    __syncwarp();  // before the next draws
  }

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = over_row(sum[r], gpu::Add());
    const int row = at.row(r);
    factor[r] = total == 0 ? 0.0f : 1 / total;  // 0: the row is only a key
    if (a.lse != nullptr && at.t == 0 && at.is_query(row))
      a.lse[at.in_lse(a, row)] = (largest[r] + log2f(total)) * kLn2<float>;
  }
  const std::int64_t columns = a.heads * a.width;
  store_rows<kWidth>(at.in(a.y, a, columns), y, factor, at, columns, width, false, access.pairs);
}

}  // namespace

template <class T>
void packed_attention_forward(const Stream& stream, const PackedAttention<T>& a) {
  const gpu::Drop<float> drop{cpu::DropRate(a.dropout.rate)};
  visit_half_width(a.width, [&]<int kWidth>() {
    gpu::launch(stream, packed_grid(stream, a, kFragmentRows, ForwardTiles<T, kWidth>::bytes),
                half_forward_kernel<T, kWidth>, a, HalfAccess(a), drop);
  });
}

template void packed_attention_forward(const Stream&, const PackedAttention<bf16>&);
template void packed_attention_forward(const Stream&, const PackedAttention<f16>&);

}  // namespace lockstep::ops::cuda
