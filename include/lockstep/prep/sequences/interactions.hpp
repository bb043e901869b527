#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/prep/sequences/sequence_set.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// Distinct ids in the order of their first occurrence, with its file and line.
class IdTable {
 public:
  struct Place {
    std::int32_t file;
    std::int64_t line;
  };
  /// The number of this id, 0 .. size() - 1; new ids get the next number.
  std::int32_t intern(std::string_view id, Place place);
  std::size_t size() const { return ids_.size(); }
  const std::string& id(std::size_t number) const { return *ids_[number]; }
  Place place(std::size_t number) const { return places_[number]; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> numbers_;
  std::vector<const std::string*> ids_;  ///< keys of numbers_, whose nodes never move
  std::vector<Place> places_;
};

/// Raw interactions in file order.
struct Interactions {
  IdTable users, items;
  std::vector<std::int32_t> user, item;  ///< (lines) numbers in the tables
  std::vector<std::int64_t> time;        ///< (lines) s, or empty
  std::vector<double> fraction;          ///< (lines) of a second, 0 .. 1; empty when all times are whole
  bool has_time = false;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> formats;  ///< of each file, as detected
  std::vector<std::string> unused;   ///< columns, named by no option, of the first csv file without times

  std::size_t size() const { return user.size(); }
};

/// The names of the raw formats: movielens, tsv4, tsv3, pairs, triples, csv.
const std::vector<std::string>& raw_formats();

struct RawOptions {
  std::string format = "auto";
  std::string user_column = "user_id", item_column = "item_id";  ///< of csv
  std::string time_column;                                       ///< of csv; "" takes `timestamp` or `time` if present
};

/// Reads the files in order, with or without gzip compression. Ratings must be numbers and are ignored: every line is
/// an interaction. Times are seconds or ISO 8601 dates.
///
/// errors  usage: unreadable; data, naming file and line: a line of another form, an empty id or one that is not UTF-8,
///         a rating that is not a number, a time that is negative, too large or in another form; data: a format that
///         cannot be detected, files with and without times, no lines at all
Interactions read_interactions(const std::vector<std::filesystem::path>& files, const RawOptions& options);

/// The number of lines that repeat user, item and time of an earlier line; 0 without times.
std::int64_t repeated_lines(const Interactions& raw);

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
