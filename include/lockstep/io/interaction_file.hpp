#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/date_time.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

/// The names of the formats of InteractionFile.
const std::vector<std::string>& interaction_formats();
/// The names of the units of times that are numbers: s, ms, us, ns, day, yyyymmdd.
const std::vector<std::string>& time_units();

struct InteractionOptions {
  std::string format = "auto";
  /// Names of all columns of a file without a header: `user`, `item`, at most one `time`; `-` or others are left aside.
  std::vector<std::string> columns;
  /// Columns or keys of a file that names them; "": the usual name that the file has, such as user_id or user.
  std::string user_column, item_column, time_column;  ///< time_column "-": no times
  std::string time_unit = "s";
  std::vector<std::string> where;  ///< conditions on columns, such as `rating >= 4`, that all must hold
};

/// A text file of interactions, read one by one, as users have it: compressed with gzip or not, with or without a
/// header. Both `lockstep-prep sequences` and `lockstep predict --histories` read with it.
///
///   movielens             user::item::rating::timestamp
///   tsv4, tsv3            user, item, rating, time; user, item, time; separated by tabs
///   triples, pairs        user item time; user item; separated by blanks (pairs also by tabs)
///   csv                   a header names the columns, also as name:type; separated by tabs, commas, semicolons, bars
///                         (quotes as in split_csv()) or blanks
///   json                  an object per line
///   (options.columns)     no header; any separator
///
/// `auto` takes the format that the first line has. Blanks around fields are removed, empty lines are skipped; both are
/// counted. Times are numbers of options.time_unit or ISO 8601 dates.
///
/// errors  usage: unreadable, a contradictory option; data, naming file and line: a format that cannot be told, a line
///         of another form, a missing column, an empty id or one that is not UTF-8, a time that is negative, too large
///         or in another form, a condition that compares a text with a number
class InteractionFile {
 public:
  InteractionFile(const std::filesystem::path& path, const InteractionOptions& options);
  ~InteractionFile();
  /// Reads the next interaction for which all conditions hold. Returns false at the end of the file.
  bool next();
  const std::string& user() const;
  const std::string& item() const;
  Moment time() const;  ///< 0 without times
  bool has_time() const;
  /// The number of the current line, from 1.
  std::int64_t line() const;
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(Fault::data, join("reading '", path().string(), "', line ", line(), ": ", parts...));
  }

  const std::filesystem::path& path() const;
  const std::string& format() const;
  /// "csv, separated by commas; user = userId, item = movieId, time = timestamp; left aside: rating".
  std::string reading() const;
  /// The columns or keys that are not used.
  std::vector<std::string> left_aside() const;
  /// Counts of what was read so far.
  struct Counts {
    std::vector<std::int64_t> left_out;  ///< lines that each condition left out
    std::int64_t trimmed = 0;            ///< fields with blanks around
    std::int64_t empty = 0;              ///< empty lines amid others
    std::int64_t dates = 0;              ///< times that are dates
  };
  const Counts& counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
