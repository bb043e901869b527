#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fit/columns.hpp"

namespace lockstep::fit {

/// Columns of past steps: of all that were observed, those with the smallest random keys, which is a uniform sample
/// without replacement. Key and draw depend on identity and step alone. Every rank knows all entries, and keeps the
/// columns of its own ones.
class Reservoir {
 public:
  Reservoir(std::int64_t capacity, std::uint64_t seed, const Columns& like)
      : capacity_(capacity), seed_(seed), width_(like.n_in + like.n_out + 1) {}
  std::int64_t capacity() const { return capacity_; }
  /// Adds `count` different entries, or all if there are fewer, to the end of a batch. Returns their number.
  ///
  /// here    columns of this rank, which receive those that it keeps
  /// counts  columns of each rank, before
  std::int64_t draw(std::int64_t step, std::int64_t count, int rank, std::vector<Run>& order, Columns& here,
                    std::vector<std::int64_t>& counts) const;
  /// Allocates what offer() needs for as many columns, of which `mine` are this rank's.
  void reserve(std::int64_t columns, std::int64_t mine);
  /// Offers the columns of a step, after reserve(): it does not fail.
  ///
  /// ids    of all of them, in the order of the batch
  /// parts  of the batch, of each rank; here: that of this rank
  void offer(std::int64_t step, std::span<const std::int64_t> ids, const std::vector<Shard>& parts, int rank,
             const Columns& here);
  /// All entries as bytes, the same on all ranks. Collective.
  std::string state(Communicator& comm) const;
  /// Takes the entries of a state, of which a smaller reservoir drops those with the largest keys.
  void set_state(std::string_view bytes, int rank, int ranks);

 private:
  struct Key {
    std::uint64_t key;
    std::int64_t id, step;
  };
  struct Entry : Key {
    int owner;
    std::int64_t row;  ///< of rows_, on the owner
  };
  /// Adds an entry. Returns the row of its column on the owner, and null on other ranks.
  float* push(const Key& key, int owner, int rank);
  /// Removes the entry with the largest key.
  void pop(int rank);
  std::size_t row_bytes() const { return static_cast<std::size_t>(width_) * sizeof(float); }

  std::int64_t capacity_;
  std::uint64_t seed_;
  std::int64_t width_;
  std::vector<Entry> entries_;      ///< a heap with the largest key first
  std::vector<float> rows_;         ///< inputs, outputs and weight of each column of this rank
  std::vector<std::int64_t> free_;  ///< rows that no entry has
};

}  // namespace lockstep::fit
