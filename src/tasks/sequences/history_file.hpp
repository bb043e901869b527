#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "tasks/id_table.hpp"

namespace lockstep {

/// Histories of users who may be missing in the data set.
struct Histories {
  std::vector<std::string> users;     ///< their ids, in the order of the file
  std::vector<std::int64_t> offsets;  ///< (users + 1)
  std::vector<std::int32_t> item;     ///< 1..I, oldest first
  std::vector<std::int64_t> time;     ///< scaled as the data set's times; empty without times
  UserHistory of(std::int64_t user) const;
};

/// Reads a file of histories: JSON lines, when the first character is '{', or CSV.
///
///   CSV         a header with `user`, `item` and, with times, `time`; one event per line. Other columns are ignored
///   JSON lines  {"user": "anna", "items": ["12", "7"], "times": [10, 35]}; ids may be numbers, one user per line
///
/// Items are ids or names of the table. Times are seconds, and order the events (ties in the order of the file);
/// without times the file is in order, oldest first.
///
/// scale    the data set's time_scale
/// errors   usage: no such file. data, with lines: another format, unknown items (up to ten are listed), histories
///          without an event, a user twice in JSON lines, `timed` and no times, a time that is no integer in 0 .. 2^62
Histories read_histories(const std::string& path, const IdTable& items, const std::string& known_items, bool timed,
                         const std::string& scale);

}  // namespace lockstep
