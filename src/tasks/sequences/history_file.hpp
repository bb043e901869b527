#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/io/interaction_file.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "tasks/id_table.hpp"

namespace lockstep {

/// What happens to events of items that the table lacks, and to users without an event.
enum class Unknown : std::uint8_t { refuse, skip };

/// Histories of users who may be missing in the data set.
struct Histories {
  std::vector<std::string> users;     ///< their ids, in the order of the file
  std::vector<std::int64_t> offsets;  ///< (users + 1)
  std::vector<std::int32_t> item;     ///< 1..I, oldest first
  std::vector<std::int64_t> time;     ///< scaled as the data set's times; empty without times
  std::string reading;                ///< InteractionFile::reading(); empty for a user per line
  std::string times;                  ///< the first and the last as dates; empty if the model needs no times
  std::string left_out;  ///< "3 events of 2 unknown items, 1 users without a known item: 'bob' (line 7)"; "": nothing
  UserHistory of(std::int64_t user) const;
};

/// Reads a file of histories: interactions, as InteractionFile reads them for lockstep-prep, or one user per line in
/// JSON, {"user": "anna", "items": ["12", "7"], "times": [10, "2026-01-02"]}, whose ids may be numbers.
///
/// Items are ids or names of the table. Times order the events (ties in the order of the file); without times the file
/// is in order, oldest first.
///
/// scale    the data set's time_scale
/// errors   as InteractionFile; data, with lines: unknown items and histories without an event (up to ten are listed),
///          unless they are skipped, a user twice in JSON, `timed` and no times; data: no history
Histories read_histories(const std::string& path, const InteractionOptions& options, const IdTable& items,
                         const std::string& known_items, Unknown unknown, bool timed, const std::string& scale);

}  // namespace lockstep
