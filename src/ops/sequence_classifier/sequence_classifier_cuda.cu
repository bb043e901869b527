#include <limits>

#include "sequence_classifier_block_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace classifier;

constexpr int kHeadThreads = 1024;

/// The matrices of the forward pass, in order: the stem's; queries, keys, values, output, up and down of each layer;
/// the scores'.
template <class T>
struct ForwardOrder {
  static constexpr int kPerLayer = 6;
  const T* weights;
  const ClassifierSizes& sizes;
  const ClassifierPlaces& places;
  __device__ int count() const { return 1 + kPerLayer * static_cast<int>(sizes.layers) + (sizes.scores > 0 ? 1 : 0); }
  __device__ Matrix<T> operator()(int i) const {
    const int d = static_cast<int>(sizes.dim), a = static_cast<int>(sizes.heads * sizes.head_width),
              mlp = static_cast<int>(sizes.mlp), layer = (i - 1) / kPerLayer, which = (i - 1) % kPerLayer;
    if (i == 0) return {weights + places.stem.weight, d, static_cast<int>(sizes.patch)};
    if (layer == sizes.layers) return {weights + places.score_hidden.weight, static_cast<int>(sizes.scores), d};
    const ClassifierPlaces::Layer& l = places.layers[layer];
    if (which < 3) return {weights + l.qkv.weight + static_cast<std::int64_t>(which) * a * d, a, d};
    if (which == 3) return {weights + l.output.weight, d, a};
    if (which == 4) return {weights + l.up.weight, mlp, d};
    return {weights + l.down.weight, d, mlp};
  }
};

/// Computes y_i = sum_j drop(p_ij) v_j for all heads, in sm_columns, from queries, keys and values in sm_wide.
template <class T, class R>
__device__ void attend(const Block<T>& b, const WeightDraws& draws, const Dropout& dropout,
                       const std::uint64_t* samples, gpu::Drop<R> drop, R scale) {
  constexpr int kPack = gpu::pack_size<R>();
  constexpr R kNone = -std::numeric_limits<R>::infinity();
  const QueryLanes at(b.time, b.lane);
  const int queries = b.rows * b.heads;
  for (int first = b.warp * at.groups; first < queries; first += kWarps * at.groups) {
    const bool mine = first + at.group < queries;
    const int query = mine ? first + at.group : queries - 1;  // all lanes take part in shuffles
    const auto [s, h, i] = Query(b, query);
    const bool there = at.key < b.time;
    const R* base = b.sm_wide + s * b.time * b.ld_wide + h * b.width;
    const R *q = base + i * b.ld_wide, *k = base + (there ? at.key : 0) * b.ld_wide + b.columns,
            *v = base + 2 * b.columns;
    R product = 0;
    for (int c = 0; c < b.width; c += kPack) {
      const gpu::Pack<R, kPack> x = gpu::load<kPack>(q + c), y = gpu::load<kPack>(k + c);
#pragma unroll
      for (int p = 0; p < kPack; ++p) product += x.at[p] * y.at[p];
    }
    const R score = there ? scale * product : kNone;
    const R top = at.reduce(score, gpu::Max());
    const R p = there ? std::exp(score - top) : R{0};
    const R total = at.reduce(p);
    R kept = p;
    if (drop.threshold > 0) kept = drop(p, weight_draw(dropout.draws(samples[s]), draws, h, i, there ? at.key : 0));
    for (int c = at.key; c < gpu::ceil_div(b.width, at.lanes) * at.lanes; c += at.lanes) {
      R sum = 0;
      for (int j = 0; j < b.time; ++j)
        sum += __shfl_sync(gpu::kWholeWarp, kept, at.group * at.lanes + j) * v[j * b.ld_wide + (c < b.width ? c : 0)];
      if (mine && c < b.width) b.sm_columns[(s * b.time + i) * b.ld_columns + h * b.width + c] = sum / total;
    }
  }
}

/// One block per few sequences, whose tokens stay in shared memory from the patches to the pooled vectors. Reads the
/// patches and all weights; writes the pooled vectors and, if a backward follows, `kept`. Bound by latency and by
/// shared memory: a multiplication reads 3/2 values, most of them shared with other lanes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    encoder_forward_kernel(gpu::Earlier earlier, ClassifierCall<T> call, BlockPlan plan, gpu::Drop<real_t<T>> drop,
                           WeightDraws weight_draws, real_t<T> scale) {
  earlier.wait();
  using R = real_t<T>;
  const ClassifierSizes& sizes = call.sizes;
  const ClassifierPlaces& places = call.places;
  const ClassifierKept<R>& kept = call.kept;
  const bool keeps = kept.x != nullptr;
  const Block<T> b(sizes, plan);
  const T* all = call.weights;
  const int patch = static_cast<int>(sizes.patch), layers = static_cast<int>(sizes.layers),
            scores = static_cast<int>(sizes.scores);
  const R eps = static_cast<R>(sizes.eps);
  const std::int64_t m = sizes.windows * sizes.sequences * sizes.time;
  const std::uint64_t step = call.dropout.step_on_gpu != nullptr ? *call.dropout.step_on_gpu : call.dropout.step;
  __shared__ std::uint64_t sm_samples[kMostRows];
  load_samples(b, call.dropout, drop.threshold > 0, sm_samples);
  const auto drops = [&](Site site, int width) {
    return Drops<R>(call.dropout, step, site, sm_samples, b.by_time, b.time, width, drop);
  };
  const ForwardOrder<T> order{all, sizes, places};
  Weights<T, ForwardOrder<T>> weights(b.sm_slots, plan.slot, order.count(), order);

  b.each(patch, [&](int r, int c) {
    const R value = gpu::load(call.patches + b.at(r, c, patch));
    b.sm_wide[r * b.ld_wide + c] = value;
    if (kept.patches != nullptr) kept.patches[b.at(r, c, patch)] = value;
  });
  multiply(b, b.dim, patch, b.sm_wide, b.ld_wide, weights.next(), all + places.stem.bias, [&](int r, int c, R value) {
    b.sm_inner[r * b.ld_inner + c] = value;
    if (keeps) kept.embedded[b.at(r, c, b.dim)] = value;
  });
  __syncthreads();
  normalise(b, b.sm_inner, b.ld_inner, all, places.stem_norm, eps, [&](int r, int c, R y) {
    const R value = y + gpu::load(all + places.positions + r % b.time * b.dim + c);
    b.sm_x[r * b.ld_x + c] = value;
    if (keeps) kept.x[b.at(r, c, b.dim)] = value;
  });
  for (int l = 0; l < layers; ++l) {
    const ClassifierPlaces::Layer& at = places.layers[l];
    const ClassifierDropout::LayerSites& sites = call.dropout.layers[l];
    const auto to = [&](R* array, int width) { return array + l * m * width; };
    __syncthreads();
    normalise(b, b.sm_x, b.ld_x, all, at.attention_norm, eps, [&](int r, int c, R y) {
      b.sm_inner[r * b.ld_inner + c] = y;
      if (keeps) to(kept.inner, b.dim)[b.at(r, c, b.dim)] = y;
    });
    for (int which = 0; which < 3; ++which) {
      const int first = which * b.columns;
      multiply(b, b.columns, b.dim, b.sm_inner, b.ld_inner, weights.next(), all + at.qkv.bias + first,
               [&](int r, int c, R value) {
                 b.sm_wide[r * b.ld_wide + first + c] = value;
                 if (keeps) to(kept.qkv, 3 * b.columns)[b.at(r, first + c, 3 * b.columns)] = value;
               });
    }
    __syncthreads();
    const Dropout weight_dropout{
        .rate = call.dropout.encoder, .seed = call.dropout.seed, .step = step, .site = sites.weights};
    attend(b, weight_draws, weight_dropout, sm_samples, drop, scale);
    Drops<R> attention_drops = drops(sites.attention, b.dim), gelu_drops = drops(sites.gelu, b.mlp),
             mlp_drops = drops(sites.mlp, b.dim);
    multiply(b, b.dim, b.columns, b.sm_columns, b.ld_columns, weights.next(), all + at.output.bias,
             [&](int r, int c, R value) {
               R& x = b.sm_x[r * b.ld_x + c];
               x += attention_drops(r, c, value);
               if (keeps) to(kept.middle, b.dim)[b.at(r, c, b.dim)] = x;
             });
    if (keeps) {
      b.each(b.columns, [&](int r, int c) {
        to(kept.attended, b.columns)[b.at(r, c, b.columns)] = b.sm_columns[r * b.ld_columns + c];
      });
    }
    const bool before = sizes.pre_norm != 0;
    if (before) {
      __syncthreads();
      normalise(b, b.sm_x, b.ld_x, all, at.mlp_norm, eps, [&](int r, int c, R y) {
        b.sm_inner[r * b.ld_inner + c] = y;
        if (keeps) to(kept.other, b.dim)[b.at(r, c, b.dim)] = y;
      });
    }
    multiply(b, b.mlp, b.dim, before ? b.sm_inner : b.sm_x, before ? b.ld_inner : b.ld_x, weights.next(),
             all + at.up.bias, [&](int r, int c, R value) {
               R y, slope;
               gpu::Gelu::apply(value, y, slope);
               gelu_drops.apply(r, c, y, slope);
               b.sm_wide[r * b.ld_wide + c] = y;
               if (!keeps) return;
               to(kept.gelu, b.mlp)[b.at(r, c, b.mlp)] = y;
               to(kept.slope, b.mlp)[b.at(r, c, b.mlp)] = slope;
             });
    multiply(b, b.dim, b.mlp, b.sm_wide, b.ld_wide, weights.next(), all + at.down.bias, [&](int r, int c, R value) {
      R& x = b.sm_x[r * b.ld_x + c];
      x += mlp_drops(r, c, value);
      if (keeps) (before ? to(kept.x, b.dim) + m * b.dim : to(kept.other, b.dim))[b.at(r, c, b.dim)] = x;
    });
    if (before) continue;
    __syncthreads();
    normalise(b, b.sm_x, b.ld_x, all, at.mlp_norm, eps, [&](int r, int c, R y) {
      b.sm_x[r * b.ld_x + c] = y;
      if (keeps) to(kept.x, b.dim)[m * b.dim + b.at(r, c, b.dim)] = y;
    });
  }
  __syncthreads();
  normalise(b, b.sm_x, b.ld_x, all, places.output_norm, eps, [&](int r, int c, R y) {
    b.sm_inner[r * b.ld_inner + c] = y;
    if (keeps) kept.tokens[b.at(r, c, b.dim)] = y;
  });
  if (scores > 0) {
    multiply(b, scores, b.dim, b.sm_inner, b.ld_inner, weights.next(), all + places.score_hidden.bias,
             [&](int r, int c, R value) {
               R y, slope;
               gpu::Tanh::apply(value, y, slope);
               b.sm_columns[r * b.ld_columns + c] = y;
               if (!keeps) return;
               kept.tanh[b.at(r, c, scores)] = y;
               kept.tanh_slope[b.at(r, c, scores)] = slope;
             });
    __syncthreads();
    R score = 0;
    for (int c = b.lane; b.warp < b.rows && c < scores; c += kWarp)
      score += b.sm_columns[b.warp * b.ld_columns + c] * gpu::load(all + places.score.weight + c);
    score = gpu::warp_reduce(score);
    if (b.warp < b.rows && b.lane == 0) b.sm_token[b.warp] = score + gpu::load(all + places.score.bias);
  }
  __syncthreads();
  for (int s = b.warp; s < b.sequences; s += kWarps) {
    const bool there = b.lane < b.time;
    R& weight = b.sm_token[s * b.time + (there ? b.lane : 0)];
    R share = 1 / static_cast<R>(b.time);
    if (scores > 0) {
      const R score = there ? weight : -std::numeric_limits<R>::infinity();
      const R largest = gpu::warp_reduce(score, gpu::Max()), e = there ? std::exp(score - largest) : R{0};
      share = e / gpu::warp_reduce(e);
    }
    if (!there) continue;
    weight = share;
    if (keeps) kept.token_weights[b.first_row + s * b.time + b.lane] = share;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < b.sequences * b.dim; i += kThreads) {
    const int s = i / b.dim, c = i % b.dim;
    R sum = 0;
    for (int t = s * b.time; t < (s + 1) * b.time; ++t) sum += b.sm_token[t] * b.sm_inner[t * b.ld_inner + c];
    kept.pooled[(b.first_sequence + s) * b.dim + c] = sum;
  }
}

/// One block per window: the classifier, a warp per output of a layer. Reads the classifier's weights, from the L2
/// cache, once per window.
template <class T>
__global__ void __launch_bounds__(kHeadThreads)
    head_forward_kernel(gpu::Earlier earlier, ClassifierCall<T> call, std::int64_t widest, gpu::Drop<real_t<T>> drop) {
  earlier.wait();
  using R = real_t<T>;
  const ClassifierSizes& sizes = call.sizes;
  const ClassifierPlaces& places = call.places;
  const T* all = call.weights;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t window = blockIdx.x;
  R *sm_in = reinterpret_cast<R*>(sm_bytes), *sm_out = sm_in + widest;
  int width = static_cast<int>(sizes.sequences * sizes.dim);
  for (int c = thread; c < width; c += kHeadThreads) sm_in[c] = call.kept.pooled[window * width + c];
  __syncthreads();
  const auto layer = [&](const ClassifierPlaces::Linear& at, int n, const auto& put) {
    for (int i = warp; i < n; i += kHeadThreads / kWarp) {
      const T* w = all + at.weight + static_cast<std::int64_t>(i) * width;
      R sum = 0;
#pragma unroll 8
      for (int c = lane; c < width; c += kWarp) sum += sm_in[c] * gpu::load(w + c);
      sum = gpu::warp_reduce(sum);
      if (lane == 0) put(i, sum + gpu::load(all + at.bias + i));
    }
  };
  const ClassifierDropout& d = call.dropout;
  for (int l = 0; l < sizes.hidden_layers; ++l) {
    const int n = static_cast<int>(sizes.hidden[l]);
    layer(places.hidden[l], n, [&](int i, R value) { sm_out[i] = value; });
    __syncthreads();
    const R count = static_cast<R>(n);
    R sum = 0, squares = 0;
    for (int c = thread; c < n; c += kHeadThreads) sum += sm_out[c];
    const R mean = gpu::block_reduce(sum) / count;
    for (int c = thread; c < n; c += kHeadThreads) squares += (sm_out[c] - mean) * (sm_out[c] - mean);
    const R rstd = 1 / std::sqrt(gpu::block_reduce(squares) / count + static_cast<R>(sizes.eps));
    const Dropout dropout{
        .rate = d.head, .seed = d.seed, .step = d.step, .site = d.hidden[l], .step_on_gpu = d.step_on_gpu};
    for (int c = thread; c < n; c += kHeadThreads) {
      const R before = sm_out[c];
      R y, slope;
      gpu::Gelu::apply((before - mean) * rstd * gpu::load(all + places.hidden_norm[l].gamma + c) +
                           gpu::load(all + places.hidden_norm[l].beta + c),
                       y, slope);
      if (drop.threshold > 0) {
        constexpr int kGroup = static_cast<int>(gpu::kGroupDraws);
        const std::uint32_t draw =
            gpu::LaneDraws(dropout.draws(d.window_samples[window]), static_cast<std::uint64_t>(c / kGroup), c % kWarp)
                .at(c % kGroup / kWarp);
        y = drop(y, draw);
        slope = drop(slope, draw);
      }
      sm_in[c] = y;
      if (call.kept.x == nullptr) continue;
      call.kept.hidden[l][window * n + c] = before;
      call.kept.hidden_gelu[l][window * n + c] = y;
      call.kept.hidden_slope[l][window * n + c] = slope;
    }
    width = n;
    __syncthreads();
  }
  const int classes = static_cast<int>(sizes.classes);
  layer(places.last, classes, [&](int i, R value) { gpu::store(call.logits + window * classes + i, value); });
}

}  // namespace

template <class T>
void sequence_classifier_forward(const Stream& stream, const ClassifierCall<T>& call) {
  using R = real_t<T>;
  const ClassifierSizes& s = call.sizes;
  const BlockPlan plan(s, sequences_per_block(stream, sizeof(T), sizeof(R), s), false);
  const double rows = static_cast<double>(s.windows * s.sequences * s.time);
  const std::int64_t a = s.heads * s.head_width;
  const std::int64_t layer = 4 * s.dim * a + 2 * s.dim * s.mlp + 2 * s.time * a;
  gpu::launch(stream,
              {.grid = gpu::ceil_div(s.windows * s.sequences, plan.sequences),
               .block = kThreads,
               .shared_bytes = plan.bytes(sizeof(T), sizeof(R)),
               .flops = 2 * rows * static_cast<double>(s.layers * layer + s.dim * (s.patch + s.scores))},
              encoder_forward_kernel<T>, call, plan, gpu::Drop<R>(cpu::DropRate(call.dropout.encoder)),
              WeightDraws(s.time), static_cast<R>(1 / std::sqrt(static_cast<double>(s.head_width))));
  std::int64_t widest = s.sequences * s.dim;
  for (std::int64_t l = 0; l < s.hidden_layers; ++l) widest = std::max(widest, s.hidden[l]);
  gpu::launch(
      stream,
      {.grid = s.windows, .block = kHeadThreads, .shared_bytes = static_cast<std::size_t>(2 * widest) * sizeof(R)},
      head_forward_kernel<T>, call, widest, gpu::Drop<R>(cpu::DropRate(call.dropout.head)));
}

std::int64_t sequences_per_block(const Stream& stream, std::size_t stored_bytes, std::size_t real_bytes,
                                 const ClassifierSizes& sizes) {
  std::int64_t count = kMostRows / sizes.time;
  while (count > 0 && BlockPlan(sizes, count, true).bytes(stored_bytes, real_bytes) > gpu::most_shared_bytes(stream))
    --count;
  return count;
}

LOCKSTEP_EACH_STORAGE(sequence_classifier_forward)

}  // namespace lockstep::ops::cuda
