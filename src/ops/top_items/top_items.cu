#include "lockstep/ops/top_items.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops {

namespace cuda {
namespace {

/// Scores of some users for items [first, first + width), and the best items so far.
template <class T>
struct BestItems {
  std::int64_t users, first, width, k;
  T* scores;                     ///< (users, width); those of excluded items are overwritten
  const std::int64_t* left_ptr;  ///< (users + 1)
  const std::int32_t* left_out;  ///< ascending items of each user that are excluded
  T* best;                       ///< (users, k), best first; each call updates it
  std::int32_t *item, *found;    ///< (users, k) item numbers, -1 after the last; (users) how many were found
};

/// Largest k.
constexpr std::int64_t kMostBestItems = 2048;

constexpr int kThreads = 256;

/// The candidates of a user in shared memory. The capacity is a power of two.
template <class T>
struct Candidates {
  T* score;
  std::int32_t* item;
  int capacity;
  /// Equal scores are ordered by ascending item.
  __device__ bool before(int a, int b) const {
    return score[a] > score[b] || (score[a] == score[b] && item[a] < item[b]);
  }
  __device__ void exchange(int a, int b) const {
    const T s = score[a];
    const std::int32_t i = item[a];
    score[a] = score[b];
    item[a] = item[b];
    score[b] = s;
    item[b] = i;
  }
  /// Sorts best first with all threads of the block (Batcher's bitonic network). Elements from `count` on count as
  /// worst.
  __device__ void sort(int count) const {
    for (int i = count + static_cast<int>(threadIdx.x); i < capacity; i += kThreads) {
      score[i] = -std::numeric_limits<T>::infinity();
      item[i] = std::numeric_limits<std::int32_t>::max();
    }
    for (int run = 2; run <= capacity; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < capacity; i += kThreads) {
          const int other = i ^ distance;
          if (other > i && before(other, i) == ((i & run) == 0)) exchange(i, other);
        }
      }
    }
    __syncthreads();
  }
};

/// Merges these scores into the best k so far, which are empty when `first` is 0.
///
/// One block per user. 256 scores at a time are compared with the K-th best so far. The few that are above it are
/// collected; when the list is full, it is sorted and cut to K. Items come in ascending order, so an item that only
/// equals the K-th best is not better. The order in which threads add candidates varies, but the kept set does not.
/// Reads each score once, from the second-level cache where the product has just written it.
template <class T>
__global__ void __launch_bounds__(kThreads) keep_best_kernel(gpu::Earlier earlier, BestItems<T> a, int capacity) {
  earlier.wait();
  __shared__ int sm_count;
  const Candidates<T> sm = {.score = reinterpret_cast<T*>(sm_bytes),
                            .item = reinterpret_cast<std::int32_t*>(sm_bytes + capacity * sizeof(T)),
                            .capacity = capacity};
  const std::int64_t user = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), k = static_cast<int>(a.k);
  T *row = a.scores + user * a.width, *best = a.best + user * a.k;
  std::int32_t* items = a.item + user * a.k;
  const T worst = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = a.left_ptr[user] + thread; i < a.left_ptr[user + 1]; i += kThreads) {
    const std::int64_t item = a.left_out[i] - a.first;
    if (item >= 0 && item < a.width) row[item] = worst;
  }
  int count = a.first == 0 ? 0 : a.found[user];
  for (int i = thread; i < count; i += kThreads) {
    sm.score[i] = best[i];
    sm.item[i] = items[i];
  }
  if (thread == 0) sm_count = count;
  __syncthreads();
  T threshold = count == k ? sm.score[k - 1] : worst;
  for (std::int64_t first = 0; first < a.width; first += kThreads) {
    const std::int64_t i = first + thread;
    const T score = i < a.width ? row[i] : worst;
    if (score > threshold) {
      const int place = atomicAdd(&sm_count, 1);
      sm.score[place] = score;
      sm.item[place] = static_cast<std::int32_t>(a.first + i);
    }
    __syncthreads();
    count = sm_count;
    __syncthreads();
    if (count + kThreads <= capacity && first + kThreads < a.width) continue;
    sm.sort(count);
    count = count < k ? count : k;
    if (count == k) threshold = sm.score[k - 1];
    if (thread == 0) sm_count = count;
    __syncthreads();
  }
  for (int i = thread; i < k; i += kThreads) {
    if (i < count) best[i] = sm.score[i];
    items[i] = i < count ? sm.item[i] : -1;
  }
  if (thread == 0) a.found[user] = count;
}

}  // namespace
}  // namespace cuda

namespace {
/// Items in a tile and users in a block: their scores (192 KiB) and the tile's codes stay in the second-level cache.
constexpr std::int64_t kItemTile = 512, kUserBlock = 96;
/// A user with this many candidates, or 4 K if that is more, loses the worst of them.
constexpr std::int64_t kCandidates = 1024;
/// Up to this many items are ranked by comparing all pairs; more items are sorted.
constexpr std::int64_t kMostRanked = 512;
/// The most columns of codes: sums over more could overflow 32 bits.
constexpr std::int64_t kMostCodeColumns = 32768;
/// The range of scores for codes: larger factors could overflow, smaller ones lose digits.
constexpr double kMostScore = 1e30, kLeastScore = 1e-20;
/// The longest rows of f64 that are rounded to f32: with longer ones the smallest numbers of f32 would matter.
constexpr double kMostRounded = 1e9;
/// Covers products below the smallest normal number, and the rounding errors of a bound itself.
constexpr double kTiny = 1e-30, kSlack = 1 + 1e-6;

using Excluded = std::function<std::span<const std::int32_t>(std::int64_t)>;
constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Bounds the rounding error of a sum of d products in T, as a share of the product of the factors' norms.
template <class T>
double rounding_of(std::int64_t d) {
  return 0.51 * static_cast<double>(d + 8) * static_cast<double>(std::numeric_limits<T>::epsilon());
}

/// The larger number; NaN if either is NaN.
double largest(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

template <class T>
double norm_of(std::int64_t d, const T* x) {
  double sum = 0;
  for (std::int64_t c = 0; c < d; ++c) sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  return std::sqrt(sum);
}

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Multiplies all users with one tile of items after another; the scores of a tile stay in the second-level cache.
template <class T>
void top_items_on_gpu(Stream& stream, Arena& scratch, const Tensor& items, const Tensor& users,
                      const Excluded& excluded, std::int64_t k, std::int32_t* top) {
  constexpr std::int64_t kTileScores = std::int64_t{4} << 20;
  require(k <= cuda::kMostBestItems, "top_items: the best ", k, " items: a GPU finds at most ", cuda::kMostBestItems);
  const std::int64_t count = users.rows();
  if (count == 0 || k == 0) return;
  std::int64_t* ptr = scratch.host().array<std::int64_t>(count + 1).data();
  ptr[0] = 0;
  for (std::int64_t u = 0; u < count; ++u) ptr[u + 1] = ptr[u] + static_cast<std::int64_t>(excluded(u).size());
  std::int32_t* left = scratch.host().array<std::int32_t>(ptr[count]).data();
  for (std::int64_t u = 0; u < count; ++u) std::ranges::copy(excluded(u), left + ptr[u]);
  std::fill_n(top, count * k, -1);

  constexpr DType kType = dtype_of<T>::value;
  const std::int64_t tile = std::clamp<std::int64_t>(kTileScores / count, 1, std::max<std::int64_t>(items.rows(), 1));
  const Tensor scores = allocate(scratch, kType, {count * tile}), best = allocate(scratch, kType, {count, k}),
               found = allocate(scratch, DType::i32, {count}), item = allocate(scratch, DType::i32, {count, k});
  int capacity = 2 * cuda::kThreads;
  while (capacity < k + cuda::kThreads) capacity *= 2;
  for (std::int64_t first = 0; first < items.rows(); first += tile) {
    const std::int64_t width = std::min(tile, items.rows() - first);
    const Tensor some = scores.slice(0, count * width).reshaped({count, width});
    gemm_nt(stream, {some}, users, items.slice(first, width));
    const cuda::BestItems<T> sofar = {.users = count,
                                      .first = first,
                                      .width = width,
                                      .k = k,
                                      .scores = some,
                                      .left_ptr = ptr,
                                      .left_out = left,
                                      .best = best,
                                      .item = item,
                                      .found = found};
    gpu::launch(stream,
                {.grid = count,
                 .block = cuda::kThreads,
                 .shared_bytes = static_cast<std::size_t>(capacity) * (sizeof(T) + sizeof(std::int32_t))},
                cuda::keep_best_kernel<T>, sofar, capacity);
  }
  if (items.rows() > 0) copy_bytes(stream, top, item.raw(), item.size_bytes());
}

}  // namespace

/// Items as the kernels of approximate scores read them.
struct ItemCodes {
  cpu::CodeKernels kernels;  ///< with levels = 0 the panels hold the rows in f32
  OwnedTensor panels;
  std::int64_t padded = 0, groups = 0;  ///< items in whole panels; codes of four columns
  // For codes only. Centred scores differ less from item to item, so their codes are finer.
  OwnedTensor centre, typical;      ///< (D): the mean of the items; zeros without a typical row
  OwnedTensor bias;                 ///< (padded): the centred items' products with the typical row
  OwnedTensor scale, rests, parts;  ///< (padded): of the codes; |item - centre - decoded|, |item - centre|
  /// The largest |item|, |item - centre|, its part that the codes miss, |bias|. Infinite or NaN if an item is.
  double norm = 0, part = 0, rest = 0, most_bias = 0;
  bool coded() const { return kernels.levels > 0; }
};

namespace {

template <class T>
void pack_codes(ItemCodes& codes, const Tensor& items, const T* rows) {
  const auto kernels = cpu::active_top_items_kernels<T>();
  const std::int64_t count = items.rows(), d = items.columns(), panel = codes.kernels.panel;
  const T *centre = codes.centre->data<const T>(), *typical = codes.typical->data<const T>();
  auto* panels = codes.panels->data<std::uint8_t>();
  auto* bias = codes.bias->data<float>();
  float *scales = codes.scale->data<float>(), *rests = codes.rests->data<float>(), *parts = codes.parts->data<float>();
#pragma omp parallel
  {
    double norm = 0, part = 0, rest = 0, most_bias = 0;
    std::vector<std::uint8_t> q(4 * codes.groups, static_cast<std::uint8_t>(codes.kernels.offset));
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < codes.padded; ++i) {
      bias[i] = kNever;  // pads a panel: never chosen
      if (i < count) {
        // Each item has a scale of its own: one long row must not make the codes of the others coarse.
        const double widest = static_cast<double>(kernels.widest(d, rows + i * d, centre));
        const double scale = std::max(widest / codes.kernels.levels, kTiny);
        const cpu::Codes of = kernels.encode(d, rows + i * d, centre, typical, scale, codes.kernels.offset, q.data());
        scales[i] = static_cast<float>(scale);
        rests[i] = static_cast<float>(kSlack * std::sqrt(of.rest_square));
        parts[i] = static_cast<float>(kSlack * std::sqrt(of.part_square));
        bias[i] = static_cast<float>(of.dot);
        norm = largest(norm, of.square);
        part = largest(part, of.part_square);
        rest = largest(rest, of.rest_square);
        most_bias = largest(most_bias, std::abs(of.dot));
      }
      for (std::int64_t g = 0; g < codes.groups; ++g)
        std::memcpy(panels + (i / panel * panel * codes.groups + g * panel + i % panel) * 4, q.data() + 4 * g, 4);
    }
#pragma omp critical(top_items_norms)
    {
      codes.norm = largest(codes.norm, std::sqrt(norm));
      codes.part = largest(codes.part, std::sqrt(part));
      codes.rest = largest(codes.rest, std::sqrt(rest));
      codes.most_bias = largest(codes.most_bias, most_bias);
    }
  }
}

/// Without codes: tiles of rows in f32, packed for a product.
template <class T>
void pack_rows(ItemCodes& codes, const Tensor& items, const T* rows) {
  const auto& gemm = cpu::active_gemm_kernels<float>();
  const std::int64_t count = items.rows(), d = items.columns();
  std::vector<float> single(kItemTile * d);
  for (std::int64_t first = 0; first < count; first += kItemTile) {
    const std::int64_t width = std::min(kItemTile, count - first);
    std::transform(rows + first * d, rows + (first + width) * d, single.data(),
                   [](T x) { return static_cast<float>(x); });
    gemm.pack_transposed(codes.panels->data<float>() + first * d, single.data(), d, width, d, 0, width);
    for (std::int64_t i = first; i < first + width; ++i) codes.norm = largest(codes.norm, norm_of(d, rows + i * d));
  }
}

template <class T>
std::shared_ptr<const ItemCodes> make_codes(const Tensor& items, const Tensor& typical) {
  const auto kernels = cpu::active_top_items_kernels<T>();
  const std::int64_t count = items.rows(), d = items.columns();
  const T* rows = items.data<const T>();
  auto codes = std::make_shared<ItemCodes>();
  codes->kernels = cpu::active_code_kernels();
  if (d > kMostCodeColumns) codes->kernels.levels = 0;
  if (!codes->coded()) {
    codes->padded = count;
    codes->panels = OwnedTensor(DType::f32, {round_up(count, cpu::kMostLanes) * d});
    pack_rows<T>(*codes, items, rows);
    return codes;
  }
  codes->centre = OwnedTensor(items.dtype(), {d});
  codes->typical = OwnedTensor(items.dtype(), {d});
  codes->padded = round_up(count, codes->kernels.panel);
  codes->groups = (d + 3) / 4;
  codes->panels = OwnedTensor(DType::u8, {codes->padded * codes->groups * 4});
  for (OwnedTensor* by_item : {&codes->bias, &codes->scale, &codes->rests, &codes->parts})
    *by_item = OwnedTensor(DType::f32, {codes->padded});
  if (typical) copy(Stream(), codes->typical, typical.reshaped({d}));
  std::vector<double> sum(d);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < d; ++c) sum[c] += static_cast<double>(rows[i * d + c]);
  T* centre = codes->centre->data<T>();
  for (std::int64_t c = 0; c < d && count > 0; ++c) centre[c] = static_cast<T>(sum[c] / static_cast<double>(count));
  double most = 0;
#pragma omp parallel
  {
    double own = 0;
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i)
      own = largest(own, static_cast<double>(kernels.widest(d, rows + i * d, centre)));
#pragma omp critical(top_items_widest)
    most = largest(most, own);
  }
  if (std::isfinite(most))
    pack_codes<T>(*codes, items, rows);
  else
    codes->norm = most;
  return codes;
}

/// The candidates of a user.
struct Candidates {
  double margin = 0;                 ///< twice the largest rounding error of a score; infinite without a bound
  float limit = 0;                   ///< the scores of the best K items exceed this
  std::int64_t count = 0, most = 0;  ///< when count reaches `most`, the worst are left out
  std::vector<std::int32_t> item;
  std::vector<float> score;            ///< approximate, plus the largest error of the codes
  std::span<const std::int32_t> left;  ///< excluded items that no tile has reached yet

  void reset(double margin_of_user, std::int64_t k, std::span<const std::int32_t> excluded) {
    margin = margin_of_user;
    limit = std::isfinite(margin) ? kNever : -kNever;
    count = 0;
    left = excluded;
    reserve(std::max(kCandidates, 4 * k));
  }
  void reserve(std::int64_t candidates) {
    most = candidates;
    item.resize(std::max(static_cast<std::size_t>(most + kItemTile + cpu::kMostLanes), item.size()));
    score.resize(item.size());
  }
};

/// Searches for blocks of users, on one thread.
template <class T>
class Search {
 public:
  void start(const ItemCodes& codes, const Tensor& rows, std::int64_t k) {
    codes_ = &codes;
    rows_ = rows.data<const T>();
    items_ = rows.rows();
    d_ = rows.columns();
    k_ = k;
    kernels_ = cpu::active_top_items_kernels<T>();
    if (block_.empty()) block_.resize(kUserBlock);
    const std::int64_t tile = codes.kernels.tile;
    user_codes_.resize(round_up(kUserBlock, tile) * codes.groups);
    begin_.resize(kUserBlock);
    for (auto* of_users : {&scale_, &code_norm_, &rest_norm_}) of_users->assign(begin_.size(), 0);
    row_codes_.assign(4 * codes.groups, 0);
    single_.resize(codes.coded() ? 0 : static_cast<std::size_t>(kUserBlock * d_));
  }

  /// top (count, K)
  void run(const T* users, std::int64_t count, const Excluded& excluded, std::int64_t first, std::int32_t* top) {
    for (std::int64_t u = 0; u < count; ++u) {
      const double bound = codes_->coded() ? encode(users + u * d_, u) : round(users + u * d_, u);
      of(u).reset(2 * bound, k_, excluded(first + u));
    }
    float* scores = cpu::thread_scratch<float>(cpu::Scratch::partial, kUserBlock * kItemTile);
    for (std::int64_t at = 0; at < codes_->padded; at += kItemTile) {
      const std::int64_t width = std::min(kItemTile, codes_->padded - at);
      approximate(count, at, width, scores);
      for (std::int64_t u = 0; u < count; ++u) offer(of(u), at, width, scores + u * width);
    }
    for (std::int64_t u = 0; u < count; ++u) finish(of(u), users + u * d_, excluded(first + u), top + u * k_);
  }

 private:
  Candidates& of(std::int64_t u) { return block_[u]; }

  /// Stores the user's codes. Returns a bound of the rounding errors of its approximate scores. An exact score exceeds
  /// the approximate one by a number that all items share, and by the error of the codes, the last line:
  ///
  ///   user . (item - centre) = typical . (item - centre) + decoded_user . decoded_item
  ///                            + decoded_user . rest_item + rest_user . (item - centre)
  double encode(const T* user, std::int64_t u) {
    const cpu::CodeKernels& k = codes_->kernels;
    const auto n = static_cast<std::size_t>(u);
    begin_[n] = 0;
    scale_[n] = code_norm_[n] = rest_norm_[n] = 0;
    const double widest = static_cast<double>(kernels_.widest(d_, user, codes_->typical->data<const T>()));
    if (!std::isfinite(widest) || !std::isfinite(codes_->norm)) return std::numeric_limits<double>::infinity();
    const double scale = std::max(widest / cpu::kUserLevels, kTiny);
    const cpu::Codes code =
        kernels_.encode(d_, user, codes_->typical->data<const T>(), nullptr, scale, 0, row_codes_.data());
    std::int32_t* to = user_codes_.data() + u / k.tile * k.tile * codes_->groups + u % k.tile;
    for (std::int64_t g = 0; g < codes_->groups; ++g, to += k.tile) std::memcpy(to, row_codes_.data() + 4 * g, 4);
    begin_[n] = -k.offset * code.code_sum;
    scale_[n] = static_cast<float>(scale);
    const double decoded = scale * std::sqrt(code.code_square), rest = std::sqrt(code.rest_square);
    code_norm_[n] = static_cast<float>(kSlack * decoded);
    rest_norm_[n] = static_cast<float>(kSlack * rest);
    const double largest_score = (decoded + rest) * (codes_->part + codes_->rest) + codes_->most_bias;
    return bound(std::sqrt(code.square),
                 8 * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest_score);
  }

  /// The same without codes: rounds the user to f32.
  double round(const T* user, std::int64_t u) {
    std::transform(user, user + d_, single_.data() + u * d_, [](T x) { return static_cast<float>(x); });
    const double norm = norm_of(d_, user);
    if (!(norm <= kMostRounded && codes_->norm <= kMostRounded)) return std::numeric_limits<double>::infinity();
    return bound(norm, rounding_of<float>(d_) * norm * codes_->norm);
  }

  double bound(double norm, double error) const {
    const double score = norm * codes_->norm;
    if (!(score <= kMostScore && score >= kLeastScore)) return std::numeric_limits<double>::infinity();
    return kSlack * (error + rounding_of<T>(d_) * score + kTiny);
  }

  void approximate(std::int64_t count, std::int64_t at, std::int64_t width, float* scores) const {
    if (codes_->coded())
      codes_->kernels.product({.users = count,
                               .groups = codes_->groups,
                               .first = at,
                               .count = width,
                               .scores = scores,
                               .user = user_codes_.data(),
                               .begin = begin_.data(),
                               .scale = scale_.data(),
                               .codes = code_norm_.data(),
                               .rest = rest_norm_.data(),
                               .item = codes_->panels->data<const std::uint8_t>(),
                               .bias = codes_->bias->data<const float>(),
                               .item_scale = codes_->scale->data<const float>(),
                               .item_rest = codes_->rests->data<const float>(),
                               .item_part = codes_->parts->data<const float>()});
    else
      cpu::active_gemm_kernels<float>().rows(count, width, d_, scores, single_.data(),
                                             codes_->panels->data<const float>() + at * d_, false, {});
  }

  void offer(Candidates& c, std::int64_t at, std::int64_t width, float* scores) {
    for (; !c.left.empty() && c.left.front() < at + width; c.left = c.left.subspan(1))
      scores[c.left.front() - at] = kNever;
    c.count += kernels_.above(width, scores, c.limit, static_cast<std::int32_t>(at), c.item.data() + c.count,
                              c.score.data() + c.count);
    if (c.count < c.most) return;
    narrow(c, k_ / 8);
    if (2 * c.count > c.most) c.reserve(2 * c.count);
  }

  /// Leaves out candidates if K others are better.
  void narrow(Candidates& c, std::int64_t slack) {
    if (c.count <= k_ || !std::isfinite(c.margin)) return;
    const float* lower = c.score.data();
    if (codes_->coded()) {
      const auto u = static_cast<std::size_t>(&c - block_.data());
      lower_.resize(std::max(lower_.size(), c.score.size()));
      kernels_.lower(c.count, c.item.data(), c.score.data(), code_norm_[u], rest_norm_[u],
                     codes_->rests->data<const float>(), codes_->parts->data<const float>(), lower_.data());
      lower = lower_.data();
    }
    const double least = static_cast<double>(kernels_.limit(c.count, k_, slack, lower)) - c.margin;
    c.limit = std::nextafter(static_cast<float>(least), kNever);
    c.count = kernels_.select(c.count, c.limit, c.item.data(), c.score.data());
  }

  void finish(Candidates& c, const T* user, std::span<const std::int32_t> excluded, std::int32_t* top) {
    narrow(c, 0);
    const bool all = !std::isfinite(c.margin);
    if (all) {
      c.reserve(items_);
      c.count = 0;
      for (std::int32_t i = 0; i < items_; ++i) {
        while (!excluded.empty() && excluded.front() < i) excluded = excluded.subspan(1);
        if (excluded.empty() || excluded.front() != i) c.item[c.count++] = i;
      }
    }
    exact_.resize(c.count + cpu::kMostLanes);
    kernels_.exact(c.count, d_, rows_, user, c.item.data(), exact_.data());
    if (all) {  // a score of NaN or minus infinity is never chosen
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < c.count; ++i) {
        const auto n = static_cast<std::size_t>(i), to = static_cast<std::size_t>(found);
        c.item[to] = c.item[n];
        exact_[to] = exact_[n];
        found += exact_[n] > -std::numeric_limits<T>::infinity();
      }
      c.count = found;
    }
    if (c.count > k_) kernels_.keep(c.count, k_, c.item.data(), exact_.data());
    const std::int64_t count = std::min(c.count, k_);
    rank_.resize(count + cpu::kMostLanes);
    if (count <= kMostRanked) {
      kernels_.rank(count, exact_.data(), rank_.data());
      for (std::int64_t i = 0; i < count; ++i) top[rank_[i]] = c.item[i];
    } else {
      for (std::int64_t i = 0; i < count; ++i) rank_[i] = static_cast<std::int32_t>(i);
      std::stable_sort(rank_.begin(), rank_.begin() + count,
                       [&](std::int32_t a, std::int32_t b) { return exact_[a] > exact_[b]; });
      for (std::int64_t i = 0; i < count; ++i) top[i] = c.item[rank_[i]];
    }
    std::fill(top + count, top + k_, -1);
  }

  const ItemCodes* codes_ = nullptr;
  const T* rows_ = nullptr;
  std::int64_t items_ = 0, d_ = 0, k_ = 0;
  cpu::TopItemsKernels<T> kernels_{};
  std::vector<Candidates> block_;
  std::vector<std::int32_t> user_codes_, begin_, rank_;
  std::vector<float> scale_, code_norm_, rest_norm_, lower_, single_;
  std::vector<std::uint8_t> row_codes_;
  std::vector<T> exact_;
};

}  // namespace

ItemTable::ItemTable(const Tensor& items, const Tensor& typical)
    : rows_(items.dtype(), {items.rows(), items.columns()}, items.device()) {
  copy(Stream(items.device()), rows_, items);
  if (items.device().is_cuda()) return;
  require(!typical || (typical.size() == columns() && typical.dtype() == dtype()), "top_items: the items have ",
          columns(), " columns of ", name(dtype()), ", the typical row is ", typical.shape(), " of ",
          name(typical.dtype()));
  visit_float(dtype(), [&]<class T>() { codes_ = make_codes<T>(rows_, typical); });
}

void top_items(Stream& stream, Arena& scratch, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top) {
  require(users.columns() == table.columns() && users.dtype() == table.dtype(), "top_items: the items have ",
          table.columns(), " columns of ", name(table.dtype()), ", the users are ", users.shape(), " of ",
          name(users.dtype()));
  on_gpu_in_floats(users,
                   [&]<class T>() { top_items_on_gpu<T>(stream, scratch, table.rows_, users, excluded, k, top); });
  on_cpu(users, [&]<class T>() {
    if (k == 0) return;
    thread_local Search<T> search;
    search.start(*table.codes_, table.rows_, k);
    for (std::int64_t first = 0; first < users.rows(); first += kUserBlock)
      search.run(users.data<const T>() + first * users.columns(), std::min(kUserBlock, users.rows() - first), excluded,
                 first, top + first * k);
  });
}

}  // namespace lockstep::ops
