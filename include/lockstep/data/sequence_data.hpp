#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/placement.hpp"
#include "lockstep/data/split.hpp"

namespace lockstep {

class H5File;

/// How much of a user's history somebody may see.
enum class Seen : std::uint8_t {
  training,    ///< the training items
  validation,  ///< and the validation item
  everything,  ///< and the test item
};
/// What comes before the item that a held-out split asks for; of the training split: what may be learned from.
constexpr Seen seen_before(Split split) { return split == Split::test ? Seen::validation : Seen::training; }

/// A prepared interaction set (lockstep-seqrec) in memory: each user's items in the order of time, and who can be
/// trained on and judged.
///
/// Users are numbered 0 .. U-1 here, items 1 .. I; 0 is padding. A *sample* of the training split is a user with at
/// least two training items; one of the validation and test splits is a user with a validation and a test item.
struct SequenceData {
  std::filesystem::path path;
  std::int64_t n_users = 0, n_items = 0;
  Tensor offsets;  ///< i64 (U+1): interactions of user u are rows offsets[u] .. offsets[u+1]-1
  Tensor n_train;  ///< i32 (U): the first rows of a user that are for training
  Tensor item;     ///< i32 (N), 1..I
  Tensor time;     ///< i64 (N): scaled times, ascending per user, the first >= 1; empty when the source has none
  Tensor known;    ///< i32 (N): each user's training items in ascending order, then the held-out ones as they are
  Tensor trained, judged;  ///< i32: the users of the training split, and of the other two
  std::uint64_t hash = 0;  ///< XXH3 over offsets, n_train, item, time and sizes

  bool has_time() const { return static_cast<bool>(time); }
  std::int64_t size(Split split) const { return samples(split).size(); }
  /// The user of a sample.
  std::int64_t user(Split split, std::int64_t sample) const { return samples(split).data<std::int32_t>()[sample]; }
  /// A user's items and their times (empty without), the oldest first.
  std::span<const std::int32_t> items(std::int64_t user, Seen seen) const;
  std::span<const std::int64_t> times(std::int64_t user, Seen seen) const;
  /// The item that the validation or test split asks for.
  std::int32_t target(Split split, std::int64_t user) const;
  /// Whether an item is among the user's training items, or, with `held_out`, among all of them.
  bool knows(std::int64_t user, std::int32_t item, bool held_out) const;

  /// Reads a file that lockstep-prep wrote.
  /// errors  data, naming the file: another format or version; a missing attribute or dataset; a shape or type that
  ///         does not fit; offsets that do not ascend; an item out of range, with its row; times that go backwards; no
  ///         user with two training items
  static SequenceData read(const std::filesystem::path& path, Placement& placement);

 private:
  const Tensor& samples(Split split) const { return split == Split::train ? trained : judged; }
  std::int64_t first_row(std::int64_t user) const { return offsets.data<std::int64_t>()[user]; }
  std::int64_t rows(std::int64_t user, Seen seen) const;
};

/// What a file of this format is called by users and items in the raw data. errors  as SequenceData::read
struct SequenceNames {
  std::vector<std::string> users, items;  ///< of user 0 .. U-1 and of item 1 .. I at [0 .. I-1]
  static SequenceNames read(const H5File& file);
};

}  // namespace lockstep
