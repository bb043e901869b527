#include <limits>

#include "sequence_classifier_block_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace classifier;

constexpr int kHeadThreads = 1024;

/// One block per window: the gradients of the classifier's layers and of the pooled vectors.
template <class T>
__global__ void __launch_bounds__(kHeadThreads)
    head_backward_kernel(gpu::Earlier earlier, ClassifierCall<T> call, std::int64_t widest) {
  earlier.wait();
  using R = real_t<T>;
  const ClassifierSizes& sizes = call.sizes;
  const ClassifierPlaces& places = call.places;
  const T* all = call.weights;
  const int thread = static_cast<int>(threadIdx.x), classes = static_cast<int>(sizes.classes);
  const std::int64_t window = blockIdx.x;
  R *sm_dy = reinterpret_cast<R*>(sm_bytes), *sm_dx = sm_dy + widest;
  for (int c = thread; c < classes; c += kHeadThreads)
    call.scratch.dlast[window * classes + c] = sm_dy[c] = gpu::load(call.dlogits + window * classes + c);
  int n = classes;
  /// The gradient of a layer's input (`width` values), from the gradient of its output in sm_dy.
  const auto back = [&](const ClassifierPlaces::Linear& at, int width, const auto& put) {
    __syncthreads();
    for (int c = thread; c < width; c += kHeadThreads) {
      R sum = 0;
#pragma unroll 8
      for (int i = 0; i < n; ++i)
        sum += sm_dy[i] * gpu::load(all + at.weight + static_cast<std::int64_t>(i) * width + c);
      put(c, sum);
    }
    __syncthreads();
  };
  for (int l = static_cast<int>(sizes.hidden_layers) - 1; l >= 0; --l) {
    const int width = static_cast<int>(sizes.hidden[l]);
    const ClassifierPlaces::Linear& after = l + 1 == sizes.hidden_layers ? places.last : places.hidden[l + 1];
    back(after, width, [&](int c, R sum) { sm_dx[c] = sum * call.kept.hidden_slope[l][window * width + c]; });
    const R* x = call.kept.hidden[l] + window * width;
    const R count = static_cast<R>(width);
    R sum = 0, squares = 0, sum_a = 0, sum_ah = 0;
    for (int c = thread; c < width; c += kHeadThreads) sum += x[c];
    const R mean = gpu::block_reduce(sum) / count;
    for (int c = thread; c < width; c += kHeadThreads) squares += (x[c] - mean) * (x[c] - mean);
    const R rstd = 1 / std::sqrt(gpu::block_reduce(squares) / count + static_cast<R>(sizes.eps));
    const T* gamma = all + places.hidden_norm[l].gamma;
    R *dgamma = call.scratch.dnorm[l] + window * width, *dbeta = dgamma + sizes.windows * width;
    for (int c = thread; c < width; c += kHeadThreads) {
      const R h = (x[c] - mean) * rstd, g = sm_dx[c];
      sum_a += g * gpu::load(gamma + c);
      sum_ah += g * gpu::load(gamma + c) * h;
      dgamma[c] = g * h;
      dbeta[c] = g;
    }
    const R mean_a = gpu::block_reduce(sum_a) / count, mean_ah = gpu::block_reduce(sum_ah) / count;
    for (int c = thread; c < width; c += kHeadThreads)
      call.scratch.dhidden[l][window * width + c] = sm_dy[c] =
          rstd * (sm_dx[c] * gpu::load(gamma + c) - mean_a - (x[c] - mean) * rstd * mean_ah);
    n = width;
  }
  const int width = static_cast<int>(sizes.sequences * sizes.dim);
  back(sizes.hidden_layers == 0 ? places.last : places.hidden[0], width,
       [&](int c, R sum) { call.scratch.dpooled[window * width + c] = sum; });
}

/// The matrices of the backward pass, in order: the scores' matrix; then down, up, output, queries, keys and values of
/// each layer, the last layer first.
template <class T>
struct BackwardOrder {
  static constexpr int kPerLayer = 6;
  const T* weights;
  const ClassifierSizes& sizes;
  const ClassifierPlaces& places;
  __device__ int count() const { return kPerLayer * static_cast<int>(sizes.layers) + (sizes.scores > 0 ? 1 : 0); }
  __device__ Matrix<T> operator()(int i) const {
    const int d = static_cast<int>(sizes.dim), a = static_cast<int>(sizes.heads * sizes.head_width),
              mlp = static_cast<int>(sizes.mlp);
    if (sizes.scores > 0 && i-- == 0) return {weights + places.score_hidden.weight, static_cast<int>(sizes.scores), d};
    const ClassifierPlaces::Layer& l = places.layers[static_cast<int>(sizes.layers) - 1 - i / kPerLayer];
    const int which = i % kPerLayer;
    if (which == 0) return {weights + l.down.weight, d, mlp};
    if (which == 1) return {weights + l.up.weight, mlp, d};
    if (which == 2) return {weights + l.output.weight, d, a};
    return {weights + l.qkv.weight + static_cast<std::int64_t>(which - 3) * a * d, a, d};
  }
};

/// Computes the gradient dx of a layer norm's input x (global memory) from dy (shared memory) for the block's rows, and
/// calls put(row, c, dx). Writes the rows' sums for the gradients of gamma and beta to sums (2, D). Begins and ends
/// with a barrier, and overwrites sm_wide2; put() may write to dy.
template <class T, class R, class Put>
__device__ void normalise_back(const Block<T>& b, const R* dy, int ld, const R* x, const T* gamma, R eps, R* sums,
                               const Put& put) {
  const int r = b.warp;
  const bool there = r < b.rows;
  const Ahead<R> ahead(x + b.at(there ? r : 0, 0, b.dim), b.dim, b.lane);
  const Ahead<T> weights(gamma, b.dim, b.lane);
  __syncthreads();
  R* h = b.sm_wide2 + r * b.ld_wide2;
  R s = 0, mean_a = 0, mean_ah = 0;
  if (there) {
    const R count = static_cast<R>(b.dim);
    b.each(b.dim, [&](int, int c) { h[c] = ahead[c]; });  // a lane uses its own columns only
    R m, sum_a = 0, sum_ah = 0;
    row_statistics(b.dim, b.lane, eps, m, s, [&](int c) { return h[c]; });
    b.each(b.dim, [&](int, int c) {
      const R a = dy[r * ld + c] * weights[c];
      h[c] = (h[c] - m) * s;
      sum_a += a;
      sum_ah += a * h[c];
    });
    mean_a = gpu::warp_reduce(sum_a) / count;
    mean_ah = gpu::warp_reduce(sum_ah) / count;
  }
  __syncthreads();
  constexpr int kColumns = 8, kParts = kWarp / kColumns;  // a lane adds every kParts-th row of a column
  for (int first = b.warp * kColumns; first < b.dim; first += kWarps * kColumns) {
    const int c = first + b.lane % kColumns < b.dim ? first + b.lane % kColumns : b.dim - 1;
    R dgamma = 0, dbeta = 0;
#pragma unroll 2
    for (int row = b.lane / kColumns; row < b.rows; row += kParts) {
      dgamma += dy[row * ld + c] * b.sm_wide2[row * b.ld_wide2 + c];
      dbeta += dy[row * ld + c];
    }
    for (int distance = kWarp / 2; distance >= kColumns; distance /= 2) {
      dgamma += __shfl_xor_sync(gpu::kWholeWarp, dgamma, distance);
      dbeta += __shfl_xor_sync(gpu::kWholeWarp, dbeta, distance);
    }
    if (b.lane >= kColumns || first + b.lane >= b.dim) continue;
    sums[c] = dgamma;
    sums[b.dim + c] = dbeta;
  }
  __syncthreads();
  b.each(b.dim, [&](int, int c) { put(r, c, s * (dy[r * ld + c] * weights[c] - mean_a - h[c] * mean_ah)); });
  __syncthreads();
}

/// Computes the gradients of queries, keys and values (sm_wide), in sm_wide2 and dqkv (rows, 3 A), from the gradient of
/// the weighted values in sm_columns. Begins with a barrier; the caller must call one after it.
template <class T, class R>
__device__ void attend_back(const Block<T>& b, const WeightDraws& draws, const Dropout& dropout,
                            const std::uint64_t* samples, gpu::Drop<R> drop, R scale, R* dqkv) {
  constexpr int kPack = gpu::pack_size<R>();
  constexpr R kNone = -std::numeric_limits<R>::infinity();
  const QueryLanes at(b.time, b.lane);
  const int queries = b.rows * b.heads;
  R *sm_kept = b.sm_pairs, *sm_ds = sm_kept + round_up(queries * b.time);
  __syncthreads();
  for (int first = b.warp * at.groups; first < queries; first += kWarps * at.groups) {
    const bool there = at.key < b.time;
    // All lanes take part in shuffles.
    const int query = first + at.group < queries ? first + at.group : queries - 1;
    const int key = there ? at.key : 0;
    const auto [s, head, i] = Query(b, query);
    const R* q = b.sm_wide + (s * b.time + i) * b.ld_wide + head * b.width;
    const R* k = b.sm_wide + (s * b.time + key) * b.ld_wide + b.columns + head * b.width;
    const R* v = k + b.columns;
    const R* dy = b.sm_columns + (s * b.time + i) * b.ld_columns + head * b.width;
    R product = 0, dp = 0;
    for (int c = 0; c < b.width; c += kPack) {
      const gpu::Pack<R, kPack> qc = gpu::load<kPack>(q + c), kc = gpu::load<kPack>(k + c),
                                vc = gpu::load<kPack>(v + c), dc = gpu::load<kPack>(dy + c);
#pragma unroll
      for (int p = 0; p < kPack; ++p) {
        product += qc.at[p] * kc.at[p];
        dp += dc.at[p] * vc.at[p];
      }
    }
    const R score = there ? scale * product : kNone;
    const R top = at.reduce(score, gpu::Max());
    const R e = there ? std::exp(score - top) : R{0};
    const R p = e / at.reduce(e);
    R kept = p;
    if (drop.threshold > 0) {
      const std::uint32_t draw = weight_draw(dropout.draws(samples[s]), draws, head, i, key);
      kept = drop(p, draw);
      dp = drop(dp, draw);
    }
    const R mean = at.reduce(p * dp);
    if (!there || first + at.group >= queries) continue;
    sm_kept[query * b.time + key] = kept;
    sm_ds[query * b.time + key] = p * (dp - mean) * scale;
  }
  __syncthreads();
  const int s = b.by_time(b.warp), own = b.warp - s * b.time;  // of the warp's row
  b.each(3 * b.columns, [&](int r, int c) {
    const int which = c < b.columns ? 0 : c < 2 * b.columns ? 1 : 2, h = b.by_width(c - which * b.columns);
    const R* pairs = (which == 2 ? sm_kept : sm_ds) + (s * b.heads + h) * b.time * b.time;
    // dq_i = sum_j ds_ij k_j, dk_i = sum_j ds_ji q_j, dv_i = sum_j drop(p_ji) dy_j
    const R* other = which == 0   ? b.sm_wide + s * b.time * b.ld_wide + c + b.columns
                     : which == 1 ? b.sm_wide + s * b.time * b.ld_wide + c - b.columns
                                  : b.sm_columns + s * b.time * b.ld_columns + c - 2 * b.columns;
    const int ld = which == 2 ? b.ld_columns : b.ld_wide, first = which == 0 ? own * b.time : own,
              stride = which == 0 ? 1 : b.time;
    R sum = 0;
    for (int j = 0; j < b.time; ++j) sum += pairs[first + j * stride] * other[j * ld];
    dqkv[r * 3 * b.columns + c] = b.sm_wide2[r * b.ld_wide2 + c] = sum;
  });
}

/// One block per few sequences: the gradients of their rows, from the pooled vectors to the patches. Reads all weights
/// and `kept`; writes the operands of the products for weights, and the block's sums for other vectors.
template <class T>
__global__ void __launch_bounds__(kThreads)
    encoder_backward_kernel(gpu::Earlier earlier, ClassifierCall<T> call, BlockPlan plan, gpu::Drop<real_t<T>> drop,
                            WeightDraws weight_draws, real_t<T> scale) {
  earlier.wait();
  using R = real_t<T>;
  const ClassifierSizes& sizes = call.sizes;
  const ClassifierPlaces& places = call.places;
  const ClassifierKept<R>& kept = call.kept;
  const ClassifierScratch<R>& scratch = call.scratch;
  const Block<T> b(sizes, plan);
  const T* all = call.weights;
  const int layers = static_cast<int>(sizes.layers), scores = static_cast<int>(sizes.scores), d = b.dim;
  const R eps = static_cast<R>(sizes.eps);
  const std::int64_t m = sizes.windows * sizes.sequences * sizes.time;
  const std::uint64_t step = call.dropout.step_on_gpu != nullptr ? *call.dropout.step_on_gpu : call.dropout.step;
  __shared__ std::uint64_t sm_samples[kMostRows];
  load_samples(b, call.dropout, drop.threshold > 0, sm_samples);
  const auto drops = [&](Site site, int width) {
    return Drops<R>(call.dropout, step, site, sm_samples, b.by_time, b.time, width, drop);
  };
  const auto nothing = [](int, int) { return R{0}; };
  R* sums = scratch.norms + blockIdx.x * ((4 + 4 * sizes.layers + sizes.time) * sizes.dim);
  const auto own_sums = [&](int pair) { return sums + 2 * pair * d; };
  const BackwardOrder<T> order{all, sizes, places};
  Weights<T, BackwardOrder<T>> weights(b.sm_slots, plan.slot, order.count(), order);
  const auto x = [&](int r, int c) -> R& { return b.sm_x[r * b.ld_x + c]; };
  const auto inner = [&](int r, int c) -> R& { return b.sm_inner[r * b.ld_inner + c]; };

  // Pooling: sm_x receives the gradient of the tokens.
  if (const int r = b.warp; r < b.rows) {
    const std::int64_t sequence = b.first_sequence + b.by_time(r);
    const R weight = kept.token_weights[b.first_row + r];
    const Ahead<R> dpooled(scratch.dpooled + sequence * d, d, b.lane), tokens(kept.tokens + b.at(r, 0, d), d, b.lane),
        pooled(kept.pooled + sequence * d, d, b.lane);
    R product = 0;
#pragma unroll 1
    for (int c = b.lane; c < d; c += kWarp) {
      const R g = dpooled[c];
      product += g * (tokens[c] - pooled[c]);
      x(r, c) = g * weight;
    }
    const R ds = scores == 0 ? R{0} : weight * gpu::warp_reduce(product);
    if (scores > 0 && b.lane == 0) scratch.dscore[b.first_row + r] = ds;
    for (int c = b.lane; c < round_up(scores); c += kWarp) {
      R da = 0;
      if (c < scores) {
        da = ds * gpu::load(all + places.score.weight + c) * kept.tanh_slope[b.at(r, c, scores)];
        scratch.dtanh[b.at(r, c, scores)] = da;
      }
      b.sm_columns[r * b.ld_columns + c] = da;
    }
  }
  if (scores > 0) {
    multiply_back(b, round_up(scores), d, b.sm_columns, b.ld_columns, weights.next(), x,
                  [&](int r, int c, R sum, R before) { x(r, c) = before + sum; });
  }
  normalise_back(b, b.sm_x, b.ld_x, kept.x + layers * m * d, all + places.output_norm.gamma, eps, own_sums(1),
                 [&](int r, int c, R dx) { x(r, c) = dx; });

  for (int l = layers - 1; l >= 0; --l) {
    const ClassifierPlaces::Layer& at = places.layers[l];
    const ClassifierDropout::LayerSites& sites = call.dropout.layers[l];
    const auto of = [&](R* array, int width) { return array + l * m * width; };
    const bool before = sizes.pre_norm != 0;
    if (!before)
      normalise_back(b, b.sm_x, b.ld_x, of(kept.other, d), all + at.mlp_norm.gamma, eps, own_sums(3 + 2 * l),
                     [&](int r, int c, R dx) { x(r, c) = dx; });
    Drops<R> attention_drops = drops(sites.attention, d), mlp_drops = drops(sites.mlp, d);
    b.each(d, [&](int r, int c) { of(scratch.dmlp, d)[b.at(r, c, d)] = inner(r, c) = mlp_drops(r, c, x(r, c)); });
    multiply_back(
        b, d, b.mlp, b.sm_inner, b.ld_inner, weights.next(),
        [&](int r, int c) { return of(kept.slope, b.mlp)[b.at(r, c, b.mlp)]; },
        [&](int r, int c, R sum, R slope) {
          of(scratch.dup, b.mlp)[b.at(r, c, b.mlp)] = b.sm_wide[r * b.ld_wide + c] = sum * slope;
        });
    if (before) {
      multiply_back(b, b.mlp, d, b.sm_wide, b.ld_wide, weights.next(), nothing,
                    [&](int r, int c, R sum, R) { inner(r, c) = sum; });
      normalise_back(b, b.sm_inner, b.ld_inner, of(kept.middle, d), all + at.mlp_norm.gamma, eps, own_sums(3 + 2 * l),
                     [&](int r, int c, R dx) { x(r, c) += dx; });
    } else {
      multiply_back(b, b.mlp, d, b.sm_wide, b.ld_wide, weights.next(), x,
                    [&](int r, int c, R sum, R old) { x(r, c) = old + sum; });
      __syncthreads();
    }
    b.each(d, [&](int r, int c) {
      of(scratch.dattention, d)[b.at(r, c, d)] = inner(r, c) = attention_drops(r, c, x(r, c));
    });
    constexpr int kQuad = 4;
    for (int c = kQuad * b.lane; b.warp < b.rows && c < 3 * b.columns; c += kQuad * kWarp)
      gpu::copy_async<kQuad * sizeof(R)>(b.sm_wide + b.warp * b.ld_wide + c,
                                         of(kept.qkv, 3 * b.columns) + b.at(b.warp, c, 3 * b.columns));
    multiply_back(b, d, b.columns, b.sm_inner, b.ld_inner, weights.next(), nothing,
                  [&](int r, int c, R sum, R) { b.sm_columns[r * b.ld_columns + c] = sum; });
    const Dropout weight_dropout{
        .rate = call.dropout.encoder, .seed = call.dropout.seed, .step = step, .site = sites.weights};
    attend_back(b, weight_draws, weight_dropout, sm_samples, drop, scale,
                of(scratch.dqkv, 3 * b.columns) + b.at(0, 0, 3 * b.columns));
    for (int which = 0; which < 3; ++which)  // one sum over the rows of all three matrices
      multiply_back(
          b, b.columns, d, b.sm_wide2 + which * b.columns, b.ld_wide2, weights.next(),
          [&](int r, int c) { return which == 0 ? R{0} : inner(r, c); },
          [&](int r, int c, R sum, R old) { inner(r, c) = old + sum; });
    normalise_back(b, b.sm_inner, b.ld_inner, of(kept.x, d), all + at.attention_norm.gamma, eps, own_sums(2 + 2 * l),
                   [&](int r, int c, R dx) { x(r, c) += dx; });
  }
  for (int i = static_cast<int>(threadIdx.x); i < b.time * d; i += kThreads) {
    R sum = 0;
    for (int s = 0; s < b.sequences; ++s) sum += x(s * b.time + i / d, i % d);
    own_sums(2 + 2 * layers)[i] = sum;
  }
  normalise_back(b, b.sm_x, b.ld_x, kept.embedded, all + places.stem_norm.gamma, eps, own_sums(0),
                 [&](int r, int c, R dx) { scratch.dembedded[b.at(r, c, d)] = dx; });
}

}  // namespace

template <class T>
void sequence_classifier_backward(const Stream& stream, const ClassifierCall<T>& call) {
  using R = real_t<T>;
  const ClassifierSizes& s = call.sizes;
  std::int64_t widest = std::max(s.sequences * s.dim, s.classes);
  for (std::int64_t l = 0; l < s.hidden_layers; ++l) widest = std::max(widest, s.hidden[l]);
  gpu::launch(
      stream,
      {.grid = s.windows, .block = kHeadThreads, .shared_bytes = static_cast<std::size_t>(2 * widest) * sizeof(R)},
      head_backward_kernel<T>, call, widest);
  const BlockPlan plan(s, sequences_per_block(stream, sizeof(T), sizeof(R), s), true);
  const std::int64_t blocks = gpu::ceil_div(s.windows * s.sequences, plan.sequences), a = s.heads * s.head_width;
  const std::int64_t layer = 4 * s.dim * a + 2 * s.dim * s.mlp + 5 * s.time * a;
  gpu::launch(stream,
              {.grid = blocks,
               .block = kThreads,
               .shared_bytes = plan.bytes(sizeof(T), sizeof(R)),
               .flops = 2 * static_cast<double>(s.windows * s.sequences * s.time) *
                        static_cast<double>(s.layers * layer + s.dim * s.scores)},
              encoder_backward_kernel<T>, call, plan, gpu::Drop<R>(cpu::DropRate(call.dropout.encoder)),
              WeightDraws(s.time), static_cast<R>(1 / std::sqrt(static_cast<double>(s.head_width))));
  sequence_classifier_gradients(stream, call, blocks);
}

LOCKSTEP_EACH_STORAGE(sequence_classifier_backward)

}  // namespace lockstep::ops::cuda
