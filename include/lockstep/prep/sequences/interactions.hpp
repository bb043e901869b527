#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/io/interaction_file.hpp"
#include "lockstep/prep/distinct_texts.hpp"
#include "lockstep/prep/sequences/sequence_set.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// The file and line of an id.
struct IdPlace {
  std::int32_t file;
  std::int64_t line;
};
using IdTable = DistinctTexts<IdPlace>;

/// Raw interactions in file order.
struct Interactions {
  IdTable users, items;
  std::vector<std::int32_t> user, item;  ///< (lines) numbers in the tables
  std::vector<std::int64_t> time;        ///< (lines) s, or empty
  std::vector<double> fraction;          ///< (lines) of a second, 0 .. 1; empty when all times are whole
  bool has_time = false;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> readings;  ///< how files were read, each distinct one once
  bool left_aside = false;            ///< whether a file has columns that are not used
  InteractionFile::Counts counts;     ///< of all files

  std::size_t size() const { return user.size(); }
};

/// Reads the files in order, as InteractionFile does. Ratings are no condition: every line is an interaction.
///
/// errors  as InteractionFile; data: files with and without times, no lines at all
Interactions read_interactions(const std::vector<std::filesystem::path>& files, const InteractionOptions& options);

enum class Repeated : std::uint8_t { keep, drop };
/// Counts the lines that repeat user, item and time of an earlier line, 0 without times, and may drop them.
std::int64_t repeated_lines(Interactions& raw, Repeated what);

/// Dates, unit and number of distinct values of the times, with warnings where they are implausible.
void summarise_times(const Interactions& raw, const std::string& unit, Summary& summary);
/// Warns of ids that usually stand for a missing value.
void summarise_ids(const IdTable& table, const std::vector<std::int32_t>& lines, const char* what, Summary& summary);

struct SequenceOptions {
  std::int64_t min_user = 5, min_item = 5, min_split = 3;
  bool keep_ids = false;
  std::string ids = "auto";  ///< auto | integer | text
  std::string time_scale = "per_user_min";
};

/// How many interactions were read and dropped.
struct SequenceReport {
  std::int64_t lines = 0, raw_users = 0, raw_items = 0, few_user = 0, few_item = 0;
};

/// Filters in one pass (users and items are counted in the whole input), numbers users and items densely in ascending
/// order of their raw ids, sorts stably by time and its fraction, scales whole seconds and splits.
///
/// errors  data: the filter leaves nothing; no user keeps two train interactions; an id that `ids` = integer or
///         `keep_ids` does not allow, with file and line
SequenceSet make_sequences(const Interactions& raw, const SequenceOptions& options, SequenceReport& report);
/// What was read and kept, then lengths, splits and times of the set.
void summarise(const SequenceReport& report, const SequenceSet& set, Summary& summary);
void summarise(const SequenceSet& set, Summary& summary);

}  // namespace lockstep::prep
