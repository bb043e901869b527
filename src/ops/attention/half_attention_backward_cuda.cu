#include <limits>

#include "half_attention_tiles_cuda.hpp"
#include "lockstep/device/cuda_scratch.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kQueries = 16;  ///< of a step of half_keys_kernel, limited by registers
/// Warps of a block with keys of a longer sequence. The block's keys share groups of draws, 128 keys each.
constexpr int kKeyWarps = 4;
/// Stride of the rows of a whole head's gradients of scores in shared memory, see kHalfStride.
template <int kWidth>
constexpr int kWholeStride = kWholeRows<kWidth> + 8;

/// Row sums sum_c dy_ic y_ic = sum_j p_ij dp_ij of the lane's rows. A lane adds groups of 8 columns, whatever a load
/// holds.
template <int kWidth, class T>
__device__ void sum_rows(float (&sums)[2], const HalfPlace<T>& at, const PackedAttention<T>& a, const HalfPlan& plan) {
  const std::int64_t columns = a.heads * a.width;
  visit_pack(plan.pack, [&]<int N>() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      const int width = at.is_query(row) ? static_cast<int>(a.width) : 0;
      const T *const dy = at.in(a.dy, a, columns) + row * columns, *const y = at.in(a.y, a, columns) + row * columns;
      sums[r] = 0;
#pragma unroll
      for (int i = 0; i < kWidth / 4; i += N) {
        const int c = i / 8 * 32 + 8 * at.t + i % 8;
        if (c >= width) continue;
        const gpu::Pack<float, N> u = gpu::load<N>(dy + c), v = gpu::load<N>(y + c);
#pragma unroll
        for (int k = 0; k < N; ++k) sums[r] += u.at[k] * v.at[k];
      }
      sums[r] = over_row(sums[r], gpu::Add());
    }
  });
}

/// The gradient of the queries, with the same grid as the forward: ds_ij from recomputed scores, dq_i = sum_j ds_ij
/// k_j. Also the row sums mean_i = sum_j p_ij dp_ij, laid out as lse; without a dq only these.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kQueryWarps<kWidth>, 2)
    half_queries_kernel(gpu::Earlier earlier, PackedAttention<T> a, HalfPlan plan, float* __restrict__ mean,
                        gpu::Drop<float> drop) {
  earlier.wait();
  constexpr int kStride = kHalfStride<kWidth>;
  const HalfPlace<T> at(a);
  if (at.behind >= 0) return at.zero_behind(a, a.add_dq ? nullptr : a.dq, a.stride);
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const HalfMemory<T, kWidth, 2> sm(sm_bytes, at.rows, plan);
  const int mine = at.warp * kFragmentRows;
  T *const sm_q = sm.own, *const sm_dy = sm.own + at.rows * kStride;
  WeightKeeps<T> keeps(a, at, drop, reinterpret_cast<std::uint32_t*>(sm.rest) + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const HalfRows<T, kWidth> queries(at, a, plan, a.q, a.stride, turned), dys(at, a, plan, a.dy, a.heads * a.width),
      keys(at, a, plan, a.k, a.kv_stride, turned), values(at, a, plan, a.v, a.kv_stride);

  const auto last_key = [&](int row) { return a.causal && row < at.length ? row + 1 : at.length; };
  const int end = last_key(at.first + at.rows - 1);  // a fill has no gradient
  const int my_end = at.mine() >= at.length ? 0 : last_key(at.mine() + kFragmentRows - 1);
  const auto fetch = [&](int tile, int buffer) {
    keys.fetch(sm.first(buffer), tile, plan.rows_at(tile, end));
    values.fetch(sm.second(buffer), tile, plan.rows_at(tile, end));
  };
  const auto turn = [&](int tile, int buffer) { keys.turn(sm.first(buffer), tile, plan.rows_at(tile, end)); };
  queries.fetch(sm_q, at.first, at.rows);
  dys.fetch(sm_dy, at.first, at.rows);
  fetch(0, 0);
  float lse[2], middle[2];
  sum_rows<kWidth>(middle, at, a, plan);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool asks = at.is_query(at.row(r));
    lse[r] = asks ? a.lse[at.in_lse(a, at.row(r))] * kLog2E<float> : 0.0f;
    if (asks && at.t == 0) mean[at.in_lse(a, at.row(r))] = middle[r];
  }
  gpu::wait_for_copies();
  queries.turn(sm_q, at.first, at.rows);
  turn(0, 0);
  __syncthreads();

  const HalfFragments<kWidth> q(sm_q + mine * kStride, at.lane), dy(sm_dy + mine * kStride, at.lane);
  float dq[kWidth / 8][4] = {};
  const float one[2] = {1, 1};
  const float scale = a.scale * kLog2E<float>;
  // From this key on, a step of the warp needs masks.
  const int full_end =
      keeps || at.mine() < at.first_query || at.mine() + kFragmentRows > at.length ? 0 : last_key(at.mine());
  const auto step = [&]<bool kMasked>(int key, const T* sm_k, const T* sm_v) {
    if (kMasked && keeps && key % gpu::kGroupDraws == 0) {
      keeps.draw(at.mine(), kFragmentRows, key, at.lane);
      __syncwarp();
    }
    float s[kStep / 8][4], dp[kStep / 8][4];
    row_products<kWidth, kStep>(s, q, sm_k, at.lane, width);
    row_products<kWidth, kStep>(dp, dy, sm_v, at.lane, width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      const int seen = at.is_query(row) ? last_key(row) - key : 0;
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
        const std::uint32_t bits = kMasked && keeps ? keeps.from(at.g + 8 * r, row, key + 8 * n) : 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          float d = dp[n][2 * r + e];
          if (kMasked && keeps) d *= keeps.kept(bits, keeps.in_bits(2 * at.t + e));
          x = gpu::exp2_for<T>(__fmul_rn(x, scale) - lse[r]) * (d - middle[r]) * a.scale;
          if (kMasked && 8 * n + 2 * at.t + e >= seen) x = 0;
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kStep / 16; ++m) {
      std::uint32_t w[4];
      round_weights<T>(w, s[2 * m], s[2 * m + 1]);
      add_weighted_rows<kWidth>(dq, w, sm_k + 16 * m * kStride, at.lane, width);
    }
    __syncwarp();  // before the next draws
  };
  walk_tiles<false>(plan, 0, end, fetch, turn, [&](int tile, int buffer) {
    for (int i = 0; i < plan.tile && tile + i < my_end; i += kStep) {
      const T *const sm_k = sm.first(buffer) + i * kStride, *const sm_v = sm.second(buffer) + i * kStride;
      tile + i + kStep <= full_end ? step.template operator()<false>(tile + i, sm_k, sm_v)
                                   : step.template operator()<true>(tile + i, sm_k, sm_v);
    }
  });
  put_rows<kWidth>(a.dq, a.stride, a.add_dq, dq, one, at, a, plan, turned, sm_q + mine * kStride);
}

/// The gradients of keys and values: warps own rows of keys, queries are processed in steps. Scores are recomputed
/// again, so each gradient has one owner and needs no atomics. The block draws once for all its warps.
///
/// With kWhole a block has all rows of a head of equal sequences and also computes the row sums and the gradient of
/// the queries: the warps leave ds, rounded to halves as for dk, in shared memory; then each takes 16 queries. Scores
/// are computed once, and each array passes through memory once.
template <class T, int kWidth, bool kWhole>
__global__ void __launch_bounds__(kWarp* kWholeRows<kWidth> / kFragmentRows, 2)
    half_keys_kernel(gpu::Earlier earlier, PackedAttention<T> a, HalfPlan plan, const float* __restrict__ mean,
                     gpu::Drop<float> drop) {
  earlier.wait();
  constexpr int kStride = kHalfStride<kWidth>, kScores = kWholeStride<kWidth>;
  const HalfPlace<T> at(a, LongestTile::first);
  if (at.behind >= 0) {
    at.zero_behind(a, a.add_dkv ? nullptr : a.dk, a.kv_stride);
    return at.zero_behind(a, a.add_dkv ? nullptr : a.dv, a.kv_stride);
  }
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const HalfMemory<T, kWidth, 2> sm(sm_bytes, at.rows, plan);
  const int mine = at.warp * kFragmentRows, thread = at.warp * kWarp + at.lane;
  const int threads = at.rows / kFragmentRows * kWarp;
  T *const sm_k = sm.own, *const sm_v = sm.own + at.rows * kStride;
  // For the queries of each tile: lse, mean and the bits of the draws.
  auto* const sm_lse = reinterpret_cast<float*>(sm.rest);
  float* const sm_mean = sm_lse + plan.buffers * plan.tile;
  auto* const sm_keeps = reinterpret_cast<std::uint32_t*>(sm_mean + plan.buffers * plan.tile);
  T* const sm_ds = reinterpret_cast<T*>(sm_keeps + plan.buffers * plan.tile * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const HalfRows<T, kWidth> queries(at, a, plan, a.q, a.stride, turned), dys(at, a, plan, a.dy, a.heads * a.width),
      keys(at, a, plan, a.k, a.kv_stride, turned), values(at, a, plan, a.v, a.kv_stride);

  const float scale = a.scale * kLog2E<float>, fill = a.fill * kLog2E<float>;
  const bool filled = a.fill > -std::numeric_limits<float>::infinity();
  // The first query of a key's column, in steps.
  const auto first_query = [&](int key) {
    return (!kWhole && a.causal && !filled && key > at.first_query ? key : at.first_query) / kQueries * kQueries;
  };
  const int from = first_query(at.first);
  WeightKeeps<T> keeps(a, at, drop, sm_keeps);
  const auto fetch = [&](int tile, int buffer) {
    const int count = plan.rows_at(tile, at.length), row = buffer * plan.tile;
    queries.fetch(sm.first(buffer), tile, count);
    dys.fetch(sm.second(buffer), tile, count);
    for (int i = thread; i < count; i += threads) {
      const bool asks = at.is_query(tile + i);
      if (asks) gpu::copy_async<sizeof(float)>(sm_lse + row + i, a.lse + at.in_lse(a, tile + i));
      if (!kWhole && asks) gpu::copy_async<sizeof(float)>(sm_mean + row + i, mean + at.in_lse(a, tile + i));
    }
    if (keeps) keeps.draw_all(tile, count, at.first, at, row);
  };
  const auto turn = [&](int tile, int buffer) { queries.turn(sm.first(buffer), tile, plan.rows_at(tile, at.length)); };
  keys.fetch(sm_k, at.first, at.rows);
  values.fetch(sm_v, at.first, at.rows);
  fetch(from, 0);
  if constexpr (kWhole) {
    float sums[2];
    sum_rows<kWidth>(sums, at, a, plan);
    if (at.t < 2) sm_mean[mine + at.g + 8 * at.t] = at.t == 0 ? sums[0] : sums[1];
  }
  gpu::wait_for_copies();
  keys.turn(sm_k, at.first, at.rows, kWhole ? sm.first(0) : nullptr);
  if (!kWhole) turn(from, 0);
  __syncthreads();

  float dk[kWidth / 8][4] = {}, dv[kWidth / 8][4] = {};
  const HalfFragments<kWidth> k(sm_k + mine * kStride, at.lane), v(sm_v + mine * kStride, at.lane);
  // Whether a step needs masks: its queries do not all see all of the warp's keys, or dropout takes weights.
  const bool some_keys = at.mine() + kFragmentRows > at.length;
  const auto masked = [&](int query) {
    return keeps || some_keys || query < at.first_query || query + kQueries > at.length ||
           (!kWhole && a.causal && query < at.mine() + kFragmentRows - 1);
  };
  const auto step = [&]<bool kMasked>(int tile, int i, int buffer) {
    const T *const sm_q = sm.first(buffer) + i * kStride, *const sm_dy = sm.second(buffer) + i * kStride;
    const int row = buffer * plan.tile + i;
    float s[kQueries / 8][4], dp[kQueries / 8][4];
    row_products<kWidth, kQueries>(s, k, sm_q, at.lane, width);
    row_products<kWidth, kQueries>(dp, v, sm_dy, at.lane, width);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * n + 2 * at.t + e, query = tile + i + j;
        const bool asks = !kMasked || at.is_query(query);
        const float lse = sm_lse[row + j] * kLog2E<float>, middle = sm_mean[row + j];
        const std::uint32_t bits = kMasked && keeps ? keeps.from(row + j, query, at.mine()) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float &x = s[n][2 * r + e], &d = dp[n][2 * r + e];
          const bool seen = !kMasked || (kWhole ? at.row(r) < at.length : !a.causal || at.row(r) <= query);
          const float p = asks ? gpu::exp2_for<T>((seen ? __fmul_rn(x, scale) : fill) - lse) : 0.0f;
          const float kept = kMasked && keeps ? keeps.kept(bits, keeps.in_bits(at.g + 8 * r)) : 1.0f;
          x = p * kept;
          d = asks && seen ? p * (d * kept - middle) * a.scale : 0.0f;
        }
      }
    std::uint32_t w[4];
    round_weights<T>(w, s[0], s[1]);
    add_weighted_rows<kWidth>(dv, w, sm_dy, at.lane, width);
    round_weights<T>(w, dp[0], dp[1]);
    add_weighted_rows<kWidth>(dk, w, sm_q, at.lane, width);
    if constexpr (kWhole) {
      auto* const to = reinterpret_cast<std::uint32_t*>(sm_ds + (mine + at.g) * kScores + i + 2 * at.t);
#pragma unroll
      for (int part = 0; part < 4; ++part) to[part % 2 * 4 * kScores + part / 2 * 4] = w[part];
    }
  };
  const int my_from = at.mine() < at.length ? first_query(at.mine()) : at.length;
  walk_tiles<kWhole>(plan, from, at.length, fetch, turn, [&](int tile, int buffer) {
    for (int i = my_from > tile ? my_from - tile : 0; i < plan.tile && tile + i < at.length; i += kQueries)
      masked(tile + i) ? step.template operator()<true>(tile, i, buffer)
                       : step.template operator()<false>(tile, i, buffer);
  });
  if constexpr (kWhole) __syncthreads();  // ds is complete; q and dy are free
  const float one[2] = {1, 1};
  T *const sm_dk = kWhole ? sm.first(0) : sm_k, *const sm_dv = kWhole ? sm.second(0) : sm_v;
  put_rows<kWidth>(a.dk, a.kv_stride, a.add_dkv, dk, one, at, a, plan, turned, sm_dk + mine * kStride);
  put_rows<kWidth>(a.dv, a.kv_stride, a.add_dkv, dv, one, at, a, plan, {}, sm_dv + mine * kStride);
  if constexpr (kWhole) {
    float dq[kWidth / 8][4] = {};
    for (int key = 0; key < at.rows; key += 16) {
      std::uint32_t w[4];
      gpu::load_transposed(w, sm_ds + (key + at.lane % 8 + at.lane / 16 * 8) * kScores + mine + at.lane / 8 % 2 * 8);
      add_weighted_rows<kWidth>(dq, w, sm_k + key * kStride, at.lane, width);
    }
    put_rows<kWidth>(a.dq, a.stride, a.add_dq, dq, one, at, a, plan, turned, sm_v + mine * kStride);
  }
}

}  // namespace

template <class T>
void packed_attention_backward(const Stream& stream, const PackedAttention<T>& a, std::int64_t rows) {
  const gpu::Drop<float> drop{cpu::DropRate(a.dropout.rate)};
  visit_half_width(a.width, [&]<int kWidth>() {
    using Memory = HalfMemory<T, kWidth, 2>;
    const HalfPlan for_keys(a, kWholeRows<kWidth>, kTileRows<kWidth>, kKeyWarps);
    const auto tile_rows = static_cast<std::size_t>(for_keys.buffers * for_keys.tile);
    const std::size_t bytes = Memory::bytes(
        for_keys, tile_rows * 2 * sizeof(float) + WeightKeeps<T>::bytes(for_keys.buffers * for_keys.tile));
    if (for_keys.whole(a)) {
      const std::size_t scores = static_cast<std::size_t>(for_keys.rows() * kWholeStride<kWidth>) * sizeof(T);
      return gpu::launch(stream, for_keys.grid(a, bytes + scores), half_keys_kernel<T, kWidth, true>, a, for_keys,
                         nullptr, drop);
    }
    float* mean = gpu::scratch<float>(stream, rows * a.heads);
    const HalfPlan plan = plan_for_queries<kWidth>(a);
    gpu::launch(stream, plan.grid(a, Memory::bytes(plan, WeightKeeps<T>::bytes(plan.rows()))),
                half_queries_kernel<T, kWidth>, a, plan, mean, drop);
    gpu::launch(stream, for_keys.grid(a, bytes), half_keys_kernel<T, kWidth, false>, a, for_keys, mean, drop);
  });
}

LOCKSTEP_BF16(template void packed_attention_backward(const Stream&, const PackedAttention<bf16>&, std::int64_t rows);)
LOCKSTEP_FP16(template void packed_attention_backward(const Stream&, const PackedAttention<f16>&, std::int64_t rows);)

}  // namespace lockstep::ops::cuda
