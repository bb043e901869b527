#include "lockstep/ops/training_windows.hpp"

#include "ops/common/on_gpu.hpp"
#include "training_windows_kernels.hpp"

namespace lockstep::ops {

void training_windows([[maybe_unused]] Stream& stream, const WindowArrays& to, const HistoryTable& table,
                      const WindowRule& rule, [[maybe_unused]] const RowDraw* draw) {
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
  const cuda::Windows windows = {.begin = to.begin,
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
  const bool ran = on_gpu(to.item.device(), [&] { cuda::training_windows(stream, samples, windows, draw); });
  require(ran, "training windows: the arrays must be on a GPU");
}

void draw_candidates([[maybe_unused]] Stream& stream, const Tensor& items, const Tensor& bias,
                     std::span<const double> up_to, std::span<const double> biases, [[maybe_unused]] std::uint64_t seed,
                     [[maybe_unused]] const WindowRule& rule) {
  require(items.size() == bias.size() && up_to.size() == biases.size() && up_to.size() >= 2,
          "drawing candidates: ", items.shape(), " items, ", bias.shape(), " biases; of all items ", up_to.size(),
          " and ", biases.size());
  const bool ran = on_gpu_in_floats(bias, [&]<class T>() {
    cuda::draw_candidates<T>(stream, items.size(), items, bias, up_to.data(), biases.data(), std::ssize(up_to) - 1,
                             seed, rule);
  });
  require(ran, "drawing candidates: the arrays must be on a GPU");
}

}  // namespace lockstep::ops
