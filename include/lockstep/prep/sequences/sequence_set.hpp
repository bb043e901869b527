#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/dataset_file.hpp"
#include "lockstep/samples/sequence_window.hpp"

namespace lockstep::prep {

/// Raw ids of the users or items with dense numbers 1 .. n: integers or text.
struct RawIds {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> texts;
  bool is_text = false;
  std::size_t size() const { return is_text ? texts.size() : numbers.size(); }
  /// The raw id of dense number `dense` >= 1, as text.
  std::string name(std::int64_t dense) const;
  bool operator==(const RawIds&) const = default;
};

/// The rule of generated sessions.
struct GapRule {
  std::vector<std::int32_t> category, cluster;  ///< (n_items) of each item
  std::int64_t categories = 0, clusters = 0;
  std::int64_t unit_s = 0;  ///< time unit of the pauses
  double noise = 0;         ///< probability that an item ignores the rule
  std::uint64_t seed = 0;
};

/// An interaction data set in memory, as data/README.md describes it (format lockstep-seqrec).
struct SequenceSet {
  std::vector<std::int64_t> offsets;   ///< (U+1)
  std::vector<std::int32_t> n_train;   ///< (U)
  RawIds users, items;                 ///< (U), (I)
  std::vector<std::int32_t> item;      ///< (N), 1..I
  std::vector<std::int64_t> time_raw;  ///< (N) s, or empty when the source has no times
  std::vector<std::int64_t> time_scaled;
  std::vector<std::int32_t> item_count;  ///< (I) train interactions
  std::int64_t min_user = 1, min_item = 1, min_split = 3, time_max = 0;
  std::string time_scale = "per_user_min";
  bool keep_ids = false;  ///< dense numbers are the raw ids
  std::string source_name, source_sha256;
  std::optional<GapRule> rule;  ///< only in generated data
  DatasetNotes notes;           ///< further attributes

  std::int64_t n_users() const { return static_cast<std::int64_t>(n_train.size()); }
  std::int64_t n_items() const { return static_cast<std::int64_t>(item_count.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(item.size()); }
  bool has_time() const { return !time_raw.empty(); }
  std::int64_t length(std::int64_t user) const;  ///< interactions of user 0 .. U-1
  /// Items and scaled times (empty without times) of user 0 .. U-1.
  std::span<const std::int32_t> items_of(std::int64_t user) const;
  std::span<const std::int64_t> times_of(std::int64_t user) const;
};

/// Computes n_train, time_scaled, time_max and item_count from the other fields. errors  internal: an unknown scale
void derive(SequenceSet& set, std::int64_t n_items);

/// Writes the file atomically. errors  internal: the disk is full; usage: not writable
void write_sequence_set(const std::filesystem::path& path, const SequenceSet& set);
/// Reads a file back. errors  data: not of this format, a dataset missing or of another shape or type
SequenceSet read_sequence_set(const H5File& file, std::vector<std::string>* problems = nullptr);

/// Problems of a prepared file, one line each: schema, offsets, ranges, order in time, and splits, scaled times,
/// counts, checksum or a generator's rates that differ from the recomputed ones.
std::vector<std::string> check_sequence_set(const H5File& file, std::vector<std::string>& remarks);
/// Prints a page about a prepared file: users, items, lengths, splits, times, origin.
void describe_sequence_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
