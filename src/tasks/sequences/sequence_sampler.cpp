#include "lockstep/tasks/sequences/sequence_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/base/sequence_window.hpp"

namespace lockstep {
namespace {

/// Most draws of one negative; the last is used even if the user knows it. For a user who knows half of all items, that
/// has probability 2^-64.
constexpr std::uint64_t kTries = 64;

/// The number of tokens of a history with so many events.
std::int64_t tokens_of(const WindowShape& shape, std::int64_t events) {
  return shape.padded ? shape.slots : std::min(events, shape.slots);
}

/// The tokens of a user's training window.
std::int64_t window_tokens(const SequenceData& data, const WindowShape& shape, std::int64_t user) {
  return tokens_of(shape, static_cast<std::int64_t>(data.items(user, Seen::training).size()) - 1);
}

/// One window of T slots with padding, which pack() copies into a batch.
class Window {
 public:
  Window(Arena& arena, const WindowShape& shape)
      : seq(allocate(arena, DType::i32, {shape.slots})),
        pos(allocate(arena, DType::i32, {shape.slots})),
        time_(allocate(arena, DType::i64, {shape.slots})),
        shape_(shape) {}

  std::span<std::int64_t> time() const { return shape_.timed ? time_.span<std::int64_t>() : std::span<std::int64_t>{}; }

  /// Copies the last slots to the tokens of sample b.
  void pack(const SequenceBatch& batch, std::int64_t b) const {
    const auto* begin = batch.begin.data<std::int64_t>();
    const std::int64_t at = begin[b], count = begin[b + 1] - at, skip = shape_.slots - count;
    const auto tail = [&]<class T>(const Tensor& from, const Tensor& to) {
      std::copy_n(from.data<T>() + skip, count, to.data<T>() + at);
    };
    tail.template operator()<std::int32_t>(seq, batch.item);
    if (batch.pos) tail.template operator()<std::int32_t>(pos, batch.pos);
    if (batch.time) tail.template operator()<std::int64_t>(time_, batch.time);
    for (std::int64_t k = 0; k < count; ++k)
      batch.slot.data<std::int32_t>()[at + k] = static_cast<std::int32_t>(skip + k);
  }

  Tensor seq, pos;

 private:
  Tensor time_;
  WindowShape shape_;
};

}  // namespace

SequenceBatch training_batch(Arena& arena, const SequenceData& data, const WindowShape& shape, const Shard& shard,
                             std::int64_t negatives) {
  const Permutation order(data.size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  SequenceBatch batch = allocate_batch(
      arena, shape.slots, shape.timed, shard.count,
      [&](std::int64_t b, std::int64_t& user) {
        user = data.user(Split::train, order(shard.first + b));
        return window_tokens(data, shape, user);
      },
      shard.room);
  batch.pos = allocate(arena, DType::i32, {batch.tokens()});
  batch.neg = allocate(arena, DType::i32, {batch.tokens(), negatives});
  const std::int64_t used = batch.begin.data<std::int64_t>()[shard.count];
  std::ranges::fill(batch.pos.slice(used, batch.tokens() - used).span<std::int32_t>(), 0);
  std::ranges::fill(batch.neg.slice(used, batch.tokens() - used).span<std::int32_t>(), 0);
  const Arena::Mark end = arena.mark();  // of what the caller needs
  const Window window(arena, shape);
  // The training items of one user. Between users all entries are 0, so that a chunk of few samples clears nothing.
  thread_local std::vector<std::uint8_t> known;
  known.resize(std::max(known.size(), static_cast<std::size_t>(data.n_items) + 1));
  const auto set_known = [&](std::int32_t item, bool is) { known[static_cast<std::size_t>(item)] = is; };
  const auto is_known = [&](std::int32_t item) { return known[static_cast<std::size_t>(item)] != 0; };
  for (std::int64_t b = 0; b < shard.count; ++b) {
    const std::int64_t user = batch.user.data<std::int64_t>()[b];
    training_window(data.items(user, Seen::training), data.times(user, Seen::training), window.seq.span<std::int32_t>(),
                    window.pos.span<std::int32_t>(), window.time());
    window.pack(batch, b);
    for (const std::int32_t item : data.items(user, Seen::training)) set_known(item, true);
    const Philox draws(shard.seed, static_cast<std::uint64_t>(shard.step), "negatives",
                       static_cast<std::uint64_t>(user));
    for (std::int64_t t = batch.begin.data<std::int64_t>()[b]; t < batch.begin.data<std::int64_t>()[b + 1]; ++t) {
      const std::span<std::int32_t> drawn = batch.neg.slice(t, 1).span<std::int32_t>();
      std::ranges::fill(drawn, 0);
      if (batch.pos.data<std::int32_t>()[t] == 0) continue;
      ++batch.targets;
      std::uint64_t first = static_cast<std::uint64_t>(batch.slot.data<std::int32_t>()[t] * negatives) * kTries;
      for (std::int32_t& negative : drawn) {
        for (std::uint64_t k = 0; k < kTries; ++k) {
          negative = 1 + static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(data.n_items), first + k));
          if (!is_known(negative)) break;
        }
        first += kTries;
      }
    }
    for (const std::int32_t item : data.items(user, Seen::training)) set_known(item, false);
  }
  arena.rewind(end);
  return batch;
}

std::int64_t training_tokens(const SequenceData& data, const WindowShape& shape, const Shard& shard) {
  const Permutation order(data.size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch));
  std::int64_t tokens = 0;
  for (std::int64_t b = 0; b < shard.count; ++b)
    tokens += window_tokens(data, shape, data.user(Split::train, order(shard.first + b)));
  return tokens;
}

PopularItems::PopularItems(const SequenceData& data, double power)
    : up_to_(static_cast<std::size_t>(data.n_items) + 1) {
  for (std::int64_t u = 0; u < data.n_users; ++u)
    for (const std::int32_t item : data.items(u, Seen::training)) up_to_[static_cast<std::size_t>(item)] += 1;
  for (std::size_t i = 1; i < up_to_.size(); ++i) up_to_[i] = up_to_[i - 1] + std::pow(std::max(up_to_[i], 1.0), power);
}

void PopularItems::draw(Arena& arena, std::uint64_t seed, std::int64_t step, std::int64_t count, DType dtype,
                        SequenceBatch& batch) const {
  batch.candidates = allocate(arena, DType::i32, {count});
  batch.bias = allocate(arena, dtype, {count});
  const Philox draws(seed, static_cast<std::uint64_t>(step), "candidates");
  for (std::int64_t k = 0; k < count; ++k) {
    const double at = draws.uniform(static_cast<std::uint64_t>(k)) * up_to_.back();
    const auto found = std::upper_bound(up_to_.begin() + 1, up_to_.end() - 1, at);
    batch.candidates.data<std::int32_t>()[k] = static_cast<std::int32_t>(found - up_to_.begin());
    const double bias = -std::log(static_cast<double>(count) * (*found - *(found - 1)) / up_to_.back());
    visit_float(dtype, [&]<class T>() { batch.bias.data<T>()[k] = static_cast<T>(bias); });
  }
}

SequenceBatch newest_batch(Arena& arena, const WindowShape& shape, std::span<const UserHistory> histories) {
  const auto count = static_cast<std::int64_t>(histories.size());
  const auto of = [&](std::int64_t b) { return histories[static_cast<std::size_t>(b)]; };
  const SequenceBatch batch =
      allocate_batch(arena, shape.slots, shape.timed, count, [&](std::int64_t b, std::int64_t& user) {
        user = b;
        return tokens_of(shape, static_cast<std::int64_t>(of(b).items.size()));
      });
  const Window window(arena, shape);
  for (std::int64_t b = 0; b < count; ++b) {
    right_align(of(b).items, window.seq.span<std::int32_t>());
    if (shape.timed) right_align(of(b).times, window.time());
    window.pack(batch, b);
  }
  return batch;
}

void draw_unknown(const SequenceData& data, std::int64_t user, std::uint64_t seed, std::span<std::int32_t> out) {
  const Philox draws(seed, 0, "candidates", static_cast<std::uint64_t>(user));
  std::uint64_t index = 0, refused = 0;
  for (std::int32_t& item : out) {
    do {
      item = 1 + static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(data.n_items), index++));
      if (++refused < kTries * kTries) continue;
      throw Error(Fault::data, join("drawing candidates for user ", user + 1, " of '", data.path.string(),
                                    "': the user's history has nearly all of the ", data.n_items,
                                    " items; use eval.candidates = full"));
    } while (data.knows(user, item, true));
    refused = 0;
  }
}

}  // namespace lockstep
