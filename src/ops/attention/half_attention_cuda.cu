#include <limits>

#include "half_attention_tiles_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Warps own rows of queries; keys and values are processed in steps. Scores, softmax and weighted values are computed
/// in one pass that rescales its sums when the largest score grows. Steps whose queries see all of their keys, without
/// dropout, take no masks, which saves two thirds of their other instructions. A warp holds its queries and 16 x 32 of the (T, T)
/// weights in registers. Exponentials are powers of two, which the GPU has an instruction for. Short sequences are
/// bound by memory traffic (q, k, v and y once), long ones by tensor cores and, with dropout, by Philox: 10 rounds for
/// 8 weights.
template <class T, int kWidth, bool kWhole>
__global__ void __launch_bounds__(kWarp* kQueryWarps<kWidth>, kWhole&& kWidth <= 64 ? 3 : 2)
    half_forward_kernel(gpu::Earlier earlier, PackedAttention<T> a, HalfPlan plan, gpu::Drop<float> drop) {
  earlier.wait();
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr int kStride = kHalfStride<kWidth>;
  const HalfPlace<T> at(a);
  if (at.behind >= 0) return at.zero_behind(a, a.y, a.heads * a.width);
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const HalfMemory<T, kWidth, 1> sm(sm_bytes, at.rows, plan);
  const int mine = at.warp * kFragmentRows;
  WeightKeeps<T> keeps(a, at, drop, reinterpret_cast<std::uint32_t*>(sm.rest) + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const HalfRows<T, kWidth> queries(at, a, plan, a.q, a.stride, turned), keys(at, a, plan, a.k, a.kv_stride, turned),
      values(at, a, plan, a.v, a.kv_stride);

  const float scale = a.scale * kLog2E<float>, fill = a.fill * kLog2E<float>;
  const bool filled = a.fill > kNone;
  const auto last_key = [&](int row) { return a.causal && row < at.length ? row + 1 : at.length; };
  const int end = filled ? at.length : last_key(at.first + at.rows - 1);
  const int my_end = at.mine() >= at.length ? 0 : filled ? end : last_key(at.mine() + kFragmentRows - 1);
  const auto fetch = [&](int tile, int buffer) {
    keys.fetch(sm.first(buffer), tile, plan.rows_at(tile, end));
    values.fetch(sm.second(buffer), tile, plan.rows_at(tile, end));
  };
  const auto turn = [&](int tile, int buffer) { keys.turn(sm.first(buffer), tile, plan.rows_at(tile, end)); };
  queries.fetch(sm.own, at.first, at.rows);
  fetch(0, 0);
  static_assert(kWholeRows<kWidth> <= gpu::kGroupDraws);
  if (kWhole && keeps) keeps.draw(at.mine(), kFragmentRows, 0, at.lane);
  gpu::wait_for_copies();
  queries.turn(sm.own, at.first, at.rows, kWhole ? sm.first(0) : nullptr);
  if (!kWhole) turn(0, 0);
  __syncthreads();

  const HalfFragments<kWidth> q(sm.own + mine * kStride, at.lane);
  float y[kWidth / 8][4] = {}, largest[2] = {kNone, kNone}, sum[2] = {};
  // From this key on, a step of the warp needs masks.
  const int full_end =
      keeps || at.mine() < at.first_query || at.mine() + kFragmentRows > at.length ? 0 : last_key(at.mine());
  const auto step = [&]<bool kMasked>(int key, const T* sm_k, const T* sm_v) {
    if (kMasked && !kWhole && keeps && key % gpu::kGroupDraws == 0) {
      keeps.draw(at.mine(), kFragmentRows, key, at.lane);
      __syncwarp();
    }
    float s[kStep / 8][4];
    row_products<kWidth, kStep>(s, q, sm_k, at.lane, width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      // Keys of the step that the query sees, and keys that it has a score for.
      const int seen = at.is_query(row) ? last_key(row) - key : 0, there = at.is_query(row) ? at.length - key : 0;
      float most = largest[r];
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          const int j = 8 * n + 2 * at.t + e;
          x = __fmul_rn(x, scale);  // not fused with the difference below, in one form of the step only
          if (kMasked && j >= seen) x = j < there ? fill : kNone;
          most = gpu::Max()(x, most);
        }
      most = over_row(most, gpu::Max());
      const float base = most == kNone ? 0.0f : most, shrink = gpu::exp2_for<T>(largest[r] - base);
      largest[r] = most;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        y[n][2 * r] *= shrink;
        y[n][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
        const std::uint32_t bits = kMasked && keeps ? keeps.from(at.g + 8 * r, row, key + 8 * n) : 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          x = gpu::exp2_for<T>(x - base);
          sum[r] += x;
          if (kMasked && keeps) x *= keeps.kept(bits, keeps.in_bits(2 * at.t + e));
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kStep / 16; ++m) {
      std::uint32_t w[4];
      round_weights<T>(w, s[2 * m], s[2 * m + 1]);
      add_weighted_rows<kWidth>(y, w, sm_v + 16 * m * kStride, at.lane, width);
    }
    if (!kWhole) __syncwarp();  // before the next draws
  };
  walk_tiles<kWhole>(plan, 0, end, fetch, turn, [&](int tile, int buffer) {
    for (int i = 0; i < plan.tile && tile + i < my_end; i += kStep) {
      const T *const sm_k = sm.first(buffer) + i * kStride, *const sm_v = sm.second(buffer) + i * kStride;
      tile + i + kStep <= full_end ? step.template operator()<false>(tile + i, sm_k, sm_v)
                                   : step.template operator()<true>(tile + i, sm_k, sm_v);
    }
  });

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
  put_rows<kWidth>(a.y, columns, false, y, factor, at, a, plan, {}, sm.own + mine * kStride);
}

}  // namespace

template <class T>
void packed_attention_forward(const Stream& stream, const PackedAttention<T>& a) {
  const gpu::Drop<float> drop{cpu::DropRate(a.dropout.rate)};
  visit_half_width(a.width, [&]<int kWidth>() {
    const HalfPlan plan = plan_for_queries<kWidth>(a);
    const gpu::Grid grid = plan.grid(a, HalfMemory<T, kWidth, 1>::bytes(plan, WeightKeeps<T>::bytes(plan.rows())));
    plan.whole(a) ? gpu::launch(stream, grid, half_forward_kernel<T, kWidth, true>, a, plan, drop)
                  : gpu::launch(stream, grid, half_forward_kernel<T, kWidth, false>, a, plan, drop);
  });
}

LOCKSTEP_BF16(template void packed_attention_forward(const Stream&, const PackedAttention<bf16>&);)
LOCKSTEP_FP16(template void packed_attention_forward(const Stream&, const PackedAttention<f16>&);)

}  // namespace lockstep::ops::cuda
