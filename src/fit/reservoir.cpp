#include "fit/reservoir.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep::fit {

std::int64_t Reservoir::draw(std::int64_t step, std::int64_t count, int rank, std::vector<Run>& order, Columns& here,
                             std::vector<std::int64_t>& counts) const {
  count = std::min(count, std::ssize(entries_));
  if (count == 0) return 0;
  const Permutation shuffled(std::ssize(entries_), seed_, static_cast<std::uint64_t>(step));
  for (std::int64_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[shuffled(i)];
    order.push_back({entry.owner, counts[entry.owner]++, 1});
    if (entry.owner != rank) continue;
    const float* values = rows_.data() + entry.row * width_;
    here.x.insert(here.x.end(), values, values + here.n_in);
    here.y.insert(here.y.end(), values + here.n_in, values + here.n_in + here.n_out);
    here.weights.push_back(values[width_ - 1]);
  }
  return count;
}

void Reservoir::reserve(std::int64_t columns, std::int64_t mine) {
  entries_.reserve(std::min(capacity_, std::ssize(entries_) + columns));
  if (capacity_ == 0) return;
  rows_.reserve(rows_.size() + static_cast<std::size_t>(std::min(capacity_, mine) * width_));
  free_.reserve(rows_.capacity() / static_cast<std::size_t>(width_) + 1);
}

void Reservoir::offer(std::int64_t step, std::span<const std::int64_t> ids, const std::vector<Shard>& parts, int rank,
                      const Columns& here) {
  if (capacity_ == 0) return;
  int owner = 0;
  for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
    while (i >= parts[owner].first + parts[owner].count) ++owner;
    const auto id = ids[i];
    const Philox random(seed_, static_cast<std::uint64_t>(step), "reservoir", static_cast<std::uint64_t>(id));
    const Key key = {random.bits64(0), id, step};
    if (std::ssize(entries_) == capacity_) {
      if (key.key >= entries_.front().key) continue;
      pop(rank);
    }
    float* const values = push(key, owner, rank);
    if (values == nullptr) continue;
    const std::int64_t at = i - parts[rank].first;
    std::copy_n(here.x.begin() + at * here.n_in, here.n_in, values);
    std::copy_n(here.y.begin() + at * here.n_out, here.n_out, values + here.n_in);
    values[width_ - 1] = here.weights[at];
  }
}

float* Reservoir::push(const Key& key, int owner, int rank) {
  Entry entry = {key, owner, 0};
  if (owner == rank) {
    if (free_.empty()) {
      free_.push_back(std::ssize(rows_) / width_);
      rows_.resize(rows_.size() + static_cast<std::size_t>(width_));
    }
    entry.row = free_.back();
    free_.pop_back();
  }
  entries_.push_back(entry);
  std::ranges::push_heap(entries_, {}, &Entry::key);
  return owner == rank ? rows_.data() + entry.row * width_ : nullptr;
}

void Reservoir::pop(int rank) {
  std::ranges::pop_heap(entries_, {}, &Entry::key);
  if (entries_.back().owner == rank) free_.push_back(entries_.back().row);
  entries_.pop_back();
}

std::string Reservoir::state(Communicator& comm) const {
  std::vector<float> mine;
  for (const Entry& entry : entries_)
    if (entry.owner == comm.rank())
      mine.insert(mine.end(), rows_.begin() + entry.row * width_, rows_.begin() + (entry.row + 1) * width_);
  Gathered all = comm.all_gather(std::as_bytes(std::span(mine)), "reservoir");
  std::string bytes;
  const auto append = [&](const void* from, std::size_t size) { bytes.append(static_cast<const char*>(from), size); };
  for (const Entry& entry : entries_) {
    const Key& key = entry;
    std::int64_t& at = all.begin[entry.owner];
    append(&key, sizeof key);
    append(all.bytes.data() + at, row_bytes());
    at += static_cast<std::int64_t>(row_bytes());
  }
  return bytes;
}

void Reservoir::set_state(std::string_view bytes, int rank, int ranks) {
  const std::size_t size = sizeof(Key) + row_bytes();
  require_data(bytes.size() % size == 0, "a state's reservoir has ", bytes.size(), " bytes, no multiple of ", size);
  const auto count = static_cast<std::int64_t>(bytes.size() / size);
  for (int owner = 0; owner < ranks; ++owner) {
    const Shard part = parts_of({.count = count}, owner, owner + 1, ranks);
    for (std::int64_t i = part.first; i < part.first + part.count; ++i) {
      const char* const from = bytes.data() + i * static_cast<std::int64_t>(size);
      Key key{};
      std::memcpy(&key, from, sizeof key);
      if (float* const values = push(key, owner, rank)) std::memcpy(values, from + sizeof key, row_bytes());
    }
  }
  while (std::ssize(entries_) > capacity_) pop(rank);
}

}  // namespace lockstep::fit
