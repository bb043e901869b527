#include "lockstep/ops/training_windows.hpp"

#include <algorithm>

#include "lockstep/device/staged_copy.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// The pointers of WindowArrays and HistoryTable; null for empty arrays.
struct Windows {
  std::int64_t *begin, *user, *time, *first_query;
  std::int32_t *item, *slot, *pos, *neg, *position;
  std::int64_t rows, negatives;
  const HistorySample* samples;
  const std::int32_t *items, *known;
  const std::int64_t* times;
  std::int64_t n_items;
  WindowRule rule;
};

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / gpu::kWarp;

/// Negative j of a row, and for j = 0 the row's other entries.
__device__ void make_token(const Windows& w, const HistorySample& sample, std::uint64_t seed, std::int64_t row,
                           std::int64_t slot, std::int64_t j) {
  const std::int64_t event = window_event(w.rule.slots, sample.items - 1, slot);
  const bool padding = event < 0;
  if (j == 0) {
    w.item[row] = padding ? 0 : w.items[sample.first + event];
    w.slot[row] = static_cast<std::int32_t>(slot);
    w.pos[row] = padding ? 0 : w.items[sample.first + event + 1];
    if (w.time != nullptr) w.time[row] = padding ? 0 : w.times[sample.first + event];
    if (w.position != nullptr) w.position[row] = padding ? 0 : static_cast<std::int32_t>(slot) + 1;
  }
  if (w.negatives == 0) return;
  constexpr Site kSite("negatives");
  const Philox draws(seed, w.rule.step_on_gpu != nullptr ? *w.rule.step_on_gpu : w.rule.step, kSite,
                     static_cast<std::uint64_t>(sample.user));
  const std::int32_t* known = w.known + sample.first;
  w.neg[row * w.negatives + j] =
      padding ? 0 : drawn_negative(draws, w.n_items, slot * w.negatives + j, [&](std::int32_t item) {
        const std::int64_t after = first_above(known, sample.items, item);
        return after > 0 && known[after - 1] == item;
      });
}

__device__ void clear_row(const Windows& w, std::int64_t row, std::int64_t j) {
  if (j == 0) {
    w.item[row] = w.slot[row] = w.pos[row] = 0;
    if (w.time != nullptr) w.time[row] = 0;
    if (w.position != nullptr) w.position[row] = 0;
  }
  if (w.negatives > 0) w.neg[row * w.negatives + j] = 0;
}

/// A block makes `per_block` rows, one negative per thread and iteration. The first row of a window depends on the
/// lengths of all earlier samples: each block adds these itself, kThreads samples at a time, up to its last row. This
/// is one lookup per thread for a batch of 128, and saves a launch that the others would wait for. Block 0 adds the
/// lengths of all samples and writes the arrays of samples. Latency bound: a lookup is three dependent loads, a
/// negative is a search in the history.
[[maybe_unused]] __global__ void __launch_bounds__(kThreads)
    training_windows_kernel(gpu::Earlier earlier, Windows w, std::int64_t samples, std::int64_t per_block,
                            const RowDraw* draw) {
  earlier.wait();
  __shared__ std::int64_t sm_first[kThreads], sm_end[kThreads], sm_warp[kWarps];  // sm_end: row after a window
  __shared__ std::int32_t sm_items[kThreads], sm_user[kThreads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % gpu::kWarp, warp = thread / gpu::kWarp;
  const std::int64_t first_row = blockIdx.x * per_block,
                     last_row = first_row + per_block < w.rows ? first_row + per_block : w.rows;
  const std::int64_t slots = w.rule.slots, width = w.negatives > 1 ? w.negatives : 1;
  const bool writes_samples = blockIdx.x == 0;
  if (writes_samples && thread == 0) w.begin[0] = 0;
  std::int64_t base = 0;  // row of the chunk's first window
  for (std::int64_t chunk = 0; chunk < samples && (writes_samples || base < last_row); chunk += kThreads) {
    const std::int64_t b = chunk + thread;
    HistorySample sample;
    std::int64_t tokens = 0;
    if (b < samples) {
      sample = w.samples[(*draw)(b)];
      tokens = w.rule.padded ? slots : sample.targets(slots);
    }
    std::int64_t end = tokens;  // summed over the warp up to this lane, then over the block
    for (int distance = 1; distance < gpu::kWarp; distance *= 2) {
      const std::int64_t before = __shfl_up_sync(gpu::kWholeWarp, end, static_cast<unsigned>(distance));
      if (lane >= distance) end += before;
    }
    if (lane == gpu::kWarp - 1) sm_warp[warp] = end;
    __syncthreads();
    end += base;
    for (int k = 0; k < warp; ++k) end += sm_warp[k];
    sm_first[thread] = sample.first, sm_items[thread] = sample.items, sm_user[thread] = sample.user;
    sm_end[thread] = end;
    if (writes_samples && b < samples) {
      w.begin[b + 1] = end;
      w.user[b] = sample.user;
      if (w.first_query != nullptr) w.first_query[b] = tokens - sample.targets(slots);
    }
    __syncthreads();
    const std::int64_t chunk_end = sm_end[kThreads - 1];
    const std::int64_t from = base > first_row ? base : first_row, to = chunk_end < last_row ? chunk_end : last_row;
    for (std::int64_t i = thread; i < (to - from) * width; i += kThreads) {
      const std::int64_t row = from + gpu::quotient(i, width), of = first_above(sm_end, kThreads, row);
      // Slots are counted from the end: the newest event has the last one.
      make_token(w, {sm_first[of], sm_items[of], sm_user[of]}, draw->seed, row, slots - (sm_end[of] - row),
                 gpu::remainder(i, width));
    }
    __syncthreads();
    base = chunk_end;
  }
  const std::int64_t from = base > first_row ? base : first_row;
  for (std::int64_t i = thread; i < (last_row - from) * width; i += kThreads)
    clear_row(w, from + gpu::quotient(i, width), gpu::remainder(i, width));
}

/// One candidate per thread. Latency bound: a search in the sums.
template <class T>
struct Candidates {
  std::int32_t* items;
  T* bias;
  const double *up_to, *biases;
  std::int64_t n_items;
  std::uint64_t seed;
  WindowRule rule;
  template <int N>
  __device__ void at(std::int64_t k) const {
    constexpr Site kSite("candidates");
    const Philox draws(seed, rule.step_on_gpu != nullptr ? *rule.step_on_gpu : rule.step, kSite);
    const std::int64_t item = drawn_candidate(draws, up_to, n_items, k);
    items[k] = static_cast<std::int32_t>(item);
    bias[k] = static_cast<T>(biases[item]);
  }
};

}  // namespace

void training_windows(Stream& stream, const WindowArrays& to, const HistoryTable& table, const WindowRule& rule,
                      const RowDraw* draw) {
  const std::int64_t samples = to.user.size(), rows = to.item.size();
  const auto has = [&](const Tensor& t, std::int64_t size) { return t.size() == size; };
  const auto may_have = [&](const Tensor& t, std::int64_t size) { return !t || t.size() == size; };
  require(has(to.begin, samples + 1) && may_have(to.first_query, samples) && has(to.slot, rows) && has(to.pos, rows) &&
              may_have(to.time, rows) && may_have(to.position, rows) && to.neg.shape()[0] == rows,
          "training windows of ", samples, " samples: item ", to.item.shape(), ", begin ", to.begin.shape(),
          ", first_query ", to.first_query.shape(), ", slot ", to.slot.shape(), ", pos ", to.pos.shape(), ", time ",
          to.time.shape(), ", position ", to.position.shape(), ", neg ", to.neg.shape());
  require(!to.time || table.times.size() == table.items.size(), "training windows with times: ", table.times.size(),
          " times of ", table.items.size(), " items");
  const Windows windows = {.begin = to.begin,
                           .user = to.user,
                           .time = to.time,
                           .first_query = to.first_query,
                           .item = to.item,
                           .slot = to.slot,
                           .pos = to.pos,
                           .neg = to.neg,
                           .position = to.position,
                           .rows = rows,
                           .negatives = to.neg.columns(),
                           .samples = table.samples.data(),
                           .items = table.items.data(),
                           .known = table.known.data(),
                           .times = table.times.data(),
                           .n_items = table.n_items,
                           .rule = rule};
  // One negative per thread, as long as the grid allows it: latency bound, so the more threads the better.
  const std::int64_t width = std::max<std::int64_t>(1, windows.negatives),
                     per_block = std::max({std::int64_t{1}, kThreads / width, gpu::ceil_div(rows, gpu::kMostBlocks)}),
                     blocks = std::max<std::int64_t>(1, gpu::ceil_div(rows, per_block));
  const bool ran = on_gpu(stream, [&](const auto& of_gpu) {
    gpu::launch(of_gpu, {.grid = blocks, .block = kThreads}, training_windows_kernel, windows, samples, per_block,
                staged_copy(draw));
  });
  require(ran, "training windows: the arrays must be on a GPU");
}

void draw_candidates(Stream& stream, const Tensor& items, const Tensor& bias, std::span<const double> up_to,
                     std::span<const double> biases, std::uint64_t seed, const WindowRule& rule) {
  require(items.size() == bias.size() && up_to.size() == biases.size() && up_to.size() >= 2,
          "drawing candidates: ", items.shape(), " items, ", bias.shape(), " biases; of all items ", up_to.size(),
          " and ", biases.size());
  const bool ran = on_gpu_in_floats(bias, [&]<class T>() {
    gpu::map<1>(stream, items.size(), false,
                Candidates<T>{items, bias, up_to.data(), biases.data(), std::ssize(up_to) - 1, seed, rule});
  });
  require(ran, "drawing candidates: the arrays must be on a GPU");
}

}  // namespace lockstep::ops
