#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/split.hpp"

namespace lockstep {

class H5File;

/// The part of a user's history that a model may see.
enum class Seen : std::uint8_t {
  training,    ///< the training items
  validation,  ///< also the validation item
  everything,  ///< also the test item
};
/// The history before a split's target.
constexpr Seen seen_before(Split split) { return split == Split::test ? Seen::validation : Seen::training; }

/// A user's items, 1..I, and their scaled times (empty if the set has none), oldest first.
struct UserHistory {
  std::span<const std::int32_t> items;
  std::span<const std::int64_t> times;
};

/// A prepared interaction set (lockstep-seqrec): each user's items in chronological order, and the users of
/// each split.
///
/// Users are numbered 0 .. U-1, items 1 .. I; item 0 is padding. A *sample* of the training split is a user with at
/// least two training items; a sample of the validation and test splits is a user with a validation and a test item.
struct SequenceData {
  std::filesystem::path path;
  std::int64_t n_users = 0, n_items = 0;
  Tensor offsets;  ///< i64 (U+1); user u has the interactions offsets[u] .. offsets[u+1]-1
  Tensor n_train;  ///< i32 (U), number of training items; they come first
  RowArray item;   ///< i32 (N), 1..I; a user is a row
  RowArray time;   ///< i64 (N), scaled times, ascending per user, the first >= 1; empty if the source has none
  Tensor trained, evaluated;     ///< i32, users of the training split, and of the other two
  std::uint64_t hash = 0;        ///< XXH3 over offsets, n_train, item, time and sizes
  std::uint64_t item_names = 0;  ///< hash_of_names() of the raw ids of items

  bool has_time() const { return static_cast<bool>(time); }
  std::int64_t size(Split split) const { return samples(split).size(); }
  /// The user of a sample.
  std::int64_t user(Split split, std::int64_t sample) const { return samples(split).data<std::int32_t>()[sample]; }
  std::span<const std::int32_t> items(std::int64_t user, Seen seen) const;
  std::span<const std::int64_t> times(std::int64_t user, Seen seen) const;
  UserHistory history(std::int64_t user, Seen seen) const { return {items(user, seen), times(user, seen)}; }
  /// The held-out item of the validation or test split.
  std::int32_t target(Split split, std::int64_t user) const;
  /// Whether the user had a split's target before.
  bool recurs(Split split, std::int64_t user) const;
  /// The user's items, ascending, each once.
  std::vector<std::int32_t> distinct_items(std::int64_t user) const;
  /// The number of training interactions of each item (I + 1). Collective unless all rows are here.
  std::vector<std::int64_t> training_counts() const;

  /// Reads a file that lockstep-prep wrote.
  /// errors  data, naming the file: another format or version; a missing attribute or dataset; a wrong shape or type;
  ///         offsets that do not ascend; an item out of range, with its row; times that go backwards; no user with two
  ///         training items
  static SequenceData read(const std::filesystem::path& path, DataMemory& data_memory);

 private:
  const Tensor& samples(Split split) const { return split == Split::train ? trained : evaluated; }
  std::int64_t first_row(std::int64_t user) const { return offsets.data<std::int64_t>()[user]; }
  std::int64_t rows(std::int64_t user, Seen seen) const;
};

/// The raw data's identifiers of users and items. errors  see SequenceData::read
struct SequenceNames {
  std::vector<std::string> users, items;  ///< users 0 .. U-1; items 1 .. I at [0 .. I-1]
  static SequenceNames read(const H5File& file);
};

}  // namespace lockstep
