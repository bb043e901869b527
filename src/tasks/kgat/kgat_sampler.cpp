#include "lockstep/tasks/kgat/kgat_sampler.hpp"

#include <algorithm>
#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/data/gpu_copy.hpp"

namespace lockstep {

namespace {

/// Smaller batches are drawn by one thread.
constexpr std::int64_t kParallelFrom = 512;

/// Samples that are drawn together.
constexpr std::int64_t kBlock = 64;
/// Items of a user that are prefetched, and bytes of a cache line.
constexpr std::size_t kItemsAhead = 256, kLine = 64;

}  // namespace

void RowUses::index(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
                    std::span<const std::int32_t> third) {
  const std::size_t count = first.size();
  keys_.resize(3 * count);
  place_.resize(3 * count);
  use_.resize(3 * count);
  const auto key = [](std::int32_t row, std::size_t use) { return static_cast<std::uint64_t>(row) << 32 | use; };
  for (std::size_t b = 0; b < count; ++b) {
    keys_[3 * b] = key(first[b], 3 * b);
    keys_[3 * b + 1] = key(second[b], 3 * b + 1);
    keys_[3 * b + 2] = key(third[b], 3 * b + 2);
  }
  sort_by_row();
  rows_.clear();
  use_ptr_.clear();
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto row = static_cast<std::int32_t>(keys_[i] >> 32);
    use_[i] = static_cast<std::int32_t>(keys_[i] & 0xffffffffu);
    if (rows_.empty() || rows_.back() != row) {
      rows_.push_back(row);
      use_ptr_.push_back(static_cast<std::int64_t>(i));
    }
    place_[use_[i]] = static_cast<std::int32_t>(rows_.size()) - 1;
  }
  use_ptr_.push_back(std::ssize(keys_));
}

void RowUses::sort_by_row() {
  constexpr int kDigit = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kDigit;
  std::uint64_t used = 0;
  for (const std::uint64_t k : keys_) used |= k >> 32;
  sorted_.resize(keys_.size());
  for (int shift = 0; used >> shift != 0; shift += kDigit) {
    const auto digit = [&](std::uint64_t k) { return (k >> (32 + shift)) % kDigits; };
    std::array<std::uint32_t, kDigits> next{};
    for (const std::uint64_t k : keys_) ++next[digit(k)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::uint32_t{0});
    for (const std::uint64_t k : keys_) sorted_[next[digit(k)]++] = k;
    keys_.swap(sorted_);
  }
}

void CfBatch::index() {
  uses.index(user, liked, other);
  for (auto* at : {&user_at_, &liked_at_, &other_at_}) at->resize(user.size());
  for (std::size_t b = 0; b < user.size(); ++b) {
    user_at_[b] = uses.place()[3 * b];
    liked_at_[b] = uses.place()[3 * b + 1];
    other_at_[b] = uses.place()[3 * b + 2];
  }
}

ops::RankedPairs CfBatch::pairs() const { return {user_at_, liked_at_, other_at_, uses.use_ptr(), uses.use()}; }

void KgBatch::index() {
  // A stable counting sort by relation.
  next_.clear();
  for (const std::int32_t r : relation) {
    if (static_cast<std::size_t>(r) >= next_.size()) next_.resize(static_cast<std::size_t>(r) + 1);
    ++next_[r];
  }
  std::exclusive_scan(next_.begin(), next_.end(), next_.begin(), std::int64_t{0});
  order_.resize(head.size());
  for (std::size_t i = 0; i < relation.size(); ++i) order_[next_[relation[i]]++] = static_cast<std::int64_t>(i);
  for (std::vector<std::int32_t>* column : {&head, &tail, &other, &relation}) {
    sorted_.resize(column->size());
    for (std::size_t i = 0; i < sorted_.size(); ++i) sorted_[i] = (*column)[order_[i]];
    column->swap(sorted_);
  }
  chunks.clear();
  relations.clear();
  relation_chunks.clear();
  chunk_at_.clear();
  for (std::int64_t i = 0; i < count(); ++i) {
    const std::int32_t r = relation[i];
    const bool next = relations.empty() || relations.back() != r;
    if (next) {
      relations.push_back(r);
      relation_chunks.push_back(std::ssize(chunks));
    }
    if (next || chunks.back().count == kChunk) chunks.push_back({r, i, 0});
    ++chunks.back().count;
    chunk_at_.push_back(static_cast<std::int32_t>(chunks.size()) - 1);
  }
  relation_chunks.push_back(std::ssize(chunks));
  uses.index(head, tail, other);
}

KgatSampler::KgatSampler(const KgData& data, std::uint64_t seed) : data_(data), seed_(seed) {
  for (std::int64_t u = 0; u < data.users; ++u) {
    const auto has = static_cast<std::int64_t>(data.train.of(u).size());
    if (has > 0 && has < data.items) users_.push_back(static_cast<std::int32_t>(u));
  }
  require_data(!users_.empty(), "data set ", data.path,
               ": no user has a training item and lacks another, so no interaction can be drawn");
  for (std::int64_t n = 0; n < data.graph.nodes; ++n) {
    const auto i = static_cast<std::size_t>(n);
    if (data.graph.indptr[i + 1] > data.graph.indptr[i]) heads_.push_back(static_cast<std::int32_t>(n));
  }
  require_data(!heads_.empty(), "data set ", data.path, ": the graph has no triples");
}

ops::PoolDraw KgatSampler::draw_of(Batch kind, std::int64_t step, std::int64_t count) const {
  if (kind == Batch::interactions) return {std::ssize(users_), seed_, "kgat.interactions", step, count};
  return {std::ssize(heads_), seed_, "kgat.triples", step, count};
}

std::optional<KgatTables> KgatSampler::tables(Device device, bool triples) const {
  const UserItems& train = data_.train;
  const KgGraph graph = triples ? data_.graph : KgGraph{};
  const std::span<const std::int32_t> users(users_), heads(heads_.data(), triples ? heads_.size() : 0);
  const std::size_t bytes = users.size_bytes() + train.indptr.size_bytes() + train.item.size_bytes() +
                            heads.size_bytes() + graph.indptr.size_bytes() + graph.tail.size_bytes() +
                            graph.rel.size_bytes();
  if (!may_copy_to_gpu(device, "interactions and triples", bytes)) return {};
  return KgatTables{.users = {users, device},
                    .user_ptr = {train.indptr, device},
                    .item = {train.item, device},
                    .heads = {heads, device},
                    .node_ptr = {graph.indptr, device},
                    .tail = {graph.tail, device},
                    .rel = {graph.rel, device}};
}

void KgatSampler::interactions(std::int64_t step, std::int64_t count, CfBatch& batch, std::int64_t first_user,
                               std::int64_t first_item) const {
  const ops::PoolDraw draw = draw_of(Batch::interactions, step, count);
  for (auto* column : {&batch.user, &batch.liked, &batch.other}) column->resize(count);
  const auto items = static_cast<std::uint64_t>(data_.items);
  // In passes over a block, each of which prefetches what the next one reads.
#pragma omp parallel for schedule(static) if (count >= kParallelFrom)
  for (std::int64_t first = 0; first < count; first += kBlock) {
    std::array<std::int32_t, kBlock> users;
    const std::int64_t last = std::min(first + kBlock, count);
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t user = users[b - first] = users_[draw.place(b)];
      __builtin_prefetch(&data_.train.indptr[user]);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const auto mine = data_.train.of(users[b - first]);
      for (std::size_t at = 0; at < mine.size() && at < kItemsAhead; at += kLine / sizeof(std::int32_t))
        __builtin_prefetch(&mine[at]);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const Philox draws = draw.draws(b);
      const std::int32_t user = users[b - first];
      const auto mine = data_.train.of(user);
      const auto k = static_cast<std::int64_t>(draws.below(items - mine.size(), 2));
      const auto i = static_cast<std::size_t>(b);
      batch.user[i] = static_cast<std::int32_t>(first_user + user);
      batch.liked[i] = static_cast<std::int32_t>(first_item + mine[draws.below(mine.size(), 1)]);
      batch.other[i] = static_cast<std::int32_t>(first_item + k + ops::items_before(mine.data(), std::ssize(mine), k));
    }
  }
  batch.index();
}

void KgatSampler::triples(std::int64_t step, std::int64_t count, KgBatch& batch) const {
  const KgGraph& graph = data_.graph;
  const auto nodes = static_cast<std::uint64_t>(graph.nodes);
  const ops::PoolDraw draw = draw_of(Batch::triples, step, count);
  for (std::vector<std::int32_t>* column : {&batch.head, &batch.relation, &batch.tail, &batch.other})
    column->resize(count);
    // In passes over a block, each of which prefetches what the next one reads: places all over the graph.
#pragma omp parallel for schedule(static) if (count >= kParallelFrom)
  for (std::int64_t first = 0; first < count; first += kBlock) {
    std::array<std::size_t, kBlock> chosen;
    const std::int64_t last = std::min(first + kBlock, count);
    for (std::int64_t b = first; b < last; ++b) {
      const std::size_t place = chosen[b - first] = static_cast<std::size_t>(draw.place(b));
      __builtin_prefetch(&heads_[place]);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t head = batch.head[b] = heads_[chosen[b - first]];
      __builtin_prefetch(&graph.indptr[head]);
      __builtin_prefetch(&graph.indptr[static_cast<std::size_t>(head) + 1]);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const auto i = static_cast<std::size_t>(b), h = static_cast<std::size_t>(batch.head[i]);
      const std::int64_t begin = graph.indptr[h], triples = graph.indptr[h + 1] - begin;
      const auto at = static_cast<std::size_t>(
          begin + static_cast<std::int64_t>(draw.draws(b).below(static_cast<std::uint64_t>(triples), 1)));
      chosen[b - first] = at;
      __builtin_prefetch(&graph.rel[at]);
      __builtin_prefetch(&graph.tail[at]);
      __builtin_prefetch(&graph.tail[begin + triples / 2]);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const auto i = static_cast<std::size_t>(b), at = chosen[b - first];
      batch.relation[i] = graph.rel[at], batch.tail[i] = graph.tail[at];
      batch.other[i] = static_cast<std::int32_t>(draw.draws(b).below(nodes, 2));
    }
    std::array<bool, kBlock> found;
    const auto block = [&](const std::vector<std::int32_t>& column) {
      return std::span(column).subspan(first, last - first);
    };
    graph.find(block(batch.head), block(batch.relation), block(batch.other), found);
    for (std::int64_t b = first; b < last; ++b) {
      const auto i = static_cast<std::size_t>(b);
      if (!found[b - first]) continue;
      batch.other[i] =
          ops::next_other_tail(draw.draws(b), graph.nodes, batch.other[i], batch.tail[i],
                               [&](std::int32_t node) { return graph.has(batch.head[i], batch.relation[i], node); });
    }
  }
  batch.index();
}

}  // namespace lockstep
