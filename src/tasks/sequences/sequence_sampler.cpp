#include "lockstep/tasks/sequences/sequence_sampler.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {
namespace {

/// The number of tokens of a history with so many events.
std::int64_t tokens_of(const WindowShape& shape, std::int64_t events) {
  return shape.padded ? shape.slots : std::min(events, shape.slots);
}

/// Fills the tokens of sample b with the newest of the first `inputs` events of a history.
void fill_window(const SequenceBatch& batch, std::int64_t b, const UserHistory& history, std::int64_t inputs) {
  const auto* begin = batch.begin.data<std::int64_t>();
  auto *item = batch.item.data<std::int32_t>(), *slot = batch.slot.data<std::int32_t>();
  auto* time = batch.time.data<std::int64_t>();
  auto* pos = batch.pos.data<std::int32_t>();
  for (std::int64_t t = begin[b], s = batch.slots - (begin[b + 1] - t); t < begin[b + 1]; ++t, ++s) {
    const std::int64_t event = ops::window_event(batch.slots, inputs, s);
    slot[t] = static_cast<std::int32_t>(s);
    item[t] = event < 0 ? 0 : history.items[event];
    if (time != nullptr) time[t] = event < 0 ? 0 : history.times[event];
    if (pos != nullptr) pos[t] = event < 0 ? 0 : history.items[event + 1];
  }
}

}  // namespace

ops::HistorySample history_sample(const SequenceData& data, std::int64_t user) {
  return {.first = data.offsets.data<std::int64_t>()[user],
          .items = data.n_train.data<std::int32_t>()[user],
          .user = static_cast<std::int32_t>(user)};
}

SequenceBatch training_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, const Shard& shard,
                             std::int64_t negatives) {
  const Permutation order(data.size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  SequenceBatch batch = allocate_batch(
      arena, shape.slots, shape.timed, shard.count,
      [&](std::int64_t b, std::int64_t& user) {
        user = data.user(Split::train, order(shard.first + b));
        const ops::HistorySample sample = history_sample(data, user);
        batch.targets += sample.targets(shape.slots);
        return tokens_of(shape, sample.items - 1);
      },
      shard.token_capacity);
  batch.pos = allocate(arena, DType::i32, {batch.tokens()});
  batch.neg = allocate(arena, DType::i32, {batch.tokens(), negatives});
  const std::int64_t used = batch.begin.data<std::int64_t>()[shard.count];
  std::ranges::fill(batch.pos.slice(used, batch.tokens() - used).span<std::int32_t>(), 0);
  std::ranges::fill(batch.neg.slice(used, batch.tokens() - used).span<std::int32_t>(), 0);
  // The training items of one user. Between users all entries are 0, so that a chunk of few samples clears nothing.
  thread_local std::vector<std::uint8_t> known;
  known.resize(std::max(known.size(), static_cast<std::size_t>(data.n_items) + 1));
  const auto set_known = [&](std::int32_t item, bool is) { known[item] = is; };
  const auto is_known = [&](std::int32_t item) { return known[item] != 0; };
  for (std::int64_t b = 0; b < shard.count; ++b) {
    const std::int64_t user = batch.user.data<std::int64_t>()[b];
    const UserHistory history = data.history(user, Seen::training);
    fill_window(batch, b, history, std::ssize(history.items) - 1);
    if (negatives == 0) continue;
    for (const std::int32_t item : history.items) set_known(item, true);
    const Philox draws(shard.seed, static_cast<std::uint64_t>(shard.step), "negatives",
                       static_cast<std::uint64_t>(user));
    for (std::int64_t t = batch.begin.data<std::int64_t>()[b]; t < batch.begin.data<std::int64_t>()[b + 1]; ++t) {
      const std::span<std::int32_t> drawn = batch.neg.slice(t, 1).span<std::int32_t>();
      const bool target = batch.pos.data<std::int32_t>()[t] != 0;
      std::int64_t place = batch.slot.data<std::int32_t>()[t] * negatives;
      for (std::int32_t& negative : drawn)
        negative = target ? ops::drawn_negative(draws, data.n_items, place++, is_known) : 0;
    }
    for (const std::int32_t item : history.items) set_known(item, false);
  }
  return batch;
}

RowCounts count_windows(const SequenceData& data, const WindowShape& shape, const Shard& shard,
                        std::span<std::int64_t> tokens_each) {
  const Permutation order(data.size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  RowCounts counts;
  for (std::int64_t b = 0; b < shard.count; ++b) {
    const ops::HistorySample sample = history_sample(data, data.user(Split::train, order(shard.first + b)));
    const std::int64_t tokens = tokens_of(shape, sample.items - 1);
    if (!tokens_each.empty()) tokens_each[b] = tokens;
    counts.rows += tokens;
    counts.pairs += tokens * (tokens + 1) / 2;
    counts.targets += sample.targets(shape.slots);
  }
  return counts;
}

PopularItems::PopularItems(std::span<const std::int64_t> training_counts, double power, std::int64_t count)
    : count_(count), up_to_(training_counts.begin(), training_counts.end()), bias_(up_to_.size()) {
  for (std::size_t i = 1; i < up_to_.size(); ++i) up_to_[i] = up_to_[i - 1] + std::pow(std::max(up_to_[i], 1.0), power);
  for (std::size_t i = 1; i < up_to_.size(); ++i)
    bias_[i] = -std::log(static_cast<double>(count) * (up_to_[i] - up_to_[i - 1]) / up_to_.back());
}

void PopularItems::draw(Arena& arena, std::uint64_t seed, std::int64_t step, DType dtype, SequenceBatch& batch) const {
  batch.candidates = allocate(arena, DType::i32, {count_});
  batch.bias = allocate(arena, dtype, {count_});
  const Philox draws(seed, static_cast<std::uint64_t>(step), "candidates");
  visit_float(dtype, [&]<class T>() {
    for (std::int64_t k = 0; k < count_; ++k) {
      const std::int64_t item = ops::drawn_candidate(draws, up_to_.data(), std::ssize(up_to_) - 1, k);
      batch.candidates.data<std::int32_t>()[k] = static_cast<std::int32_t>(item);
      batch.bias.data<T>()[k] = static_cast<T>(bias_[item]);
    }
  });
}

SequenceBatch newest_batch(Arena& arena, const WindowShape& shape, std::span<const UserHistory> histories) {
  const auto count = std::ssize(histories);
  const auto of = [&](std::int64_t b) { return histories[b]; };
  const SequenceBatch batch =
      allocate_batch(arena, shape.slots, shape.timed, count, [&](std::int64_t b, std::int64_t& user) {
        user = b;
        return tokens_of(shape, std::ssize(of(b).items));
      });
  for (std::int64_t b = 0; b < count; ++b) fill_window(batch, b, of(b), std::ssize(of(b).items));
  return batch;
}

std::int64_t Rivals::count(std::int64_t user) const {
  return data.n_items - (repeats == Repeats::keep ? 1 : std::ssize(data.distinct_items(user)));
}

void Rivals::draw(std::int64_t user, std::int32_t target, std::uint64_t seed, std::span<std::int32_t> out) const {
  const Philox draws(seed, 0, "candidates", static_cast<std::uint64_t>(user));
  const std::vector<std::int32_t> others =
      repeats == Repeats::keep ? std::vector{target} : data.distinct_items(user);  // that are no rivals
  const auto is_rival = [&](std::int32_t item) { return !std::ranges::binary_search(others, item); };
  if (data.n_items - std::ssize(others) >= enough_for(std::ssize(out))) {
    std::uint64_t index = 0;
    for (std::int32_t& item : out) {
      do {
        item = 1 + static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(data.n_items), index++));
      } while (!is_rival(item));
    }
    return;
  }
  std::vector<std::int32_t> all;
  for (std::int32_t item = 1; item <= data.n_items; ++item)
    if (is_rival(item)) all.push_back(item);
  std::ranges::fill(out, 0);
  for (std::size_t k = 0; k < std::min(all.size(), out.size()); ++k) {
    std::swap(all[k], all[k + draws.below(all.size() - k, k)]);
    out[k] = all[k];
  }
}

}  // namespace lockstep
