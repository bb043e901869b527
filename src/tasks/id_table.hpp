#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

/// The identifiers of users or items in the raw data, by their numbers 0 .. size()-1, and their names.
class IdTable {
 public:
  IdTable() = default;
  /// names: of all ids, "" for none; or empty
  explicit IdTable(std::vector<std::string> ids, std::vector<std::string> names = {});
  IdTable(IdTable&&) noexcept = default;
  IdTable& operator=(IdTable&&) noexcept = default;
  /// The numbers 0 .. count-1 as ids.
  static IdTable numbers(std::int64_t count);

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  const std::string& id(std::int64_t number) const { return ids_[number]; }
  bool has_names() const { return !names_.empty(); }
  /// The name of a number, or "".
  const std::string& name(std::int64_t number) const;
  /// "NAME (ID)", or the id.
  std::string called(std::int64_t number) const;
  static constexpr std::int64_t kSeveral = -2;
  /// The number of an id, or else of a unique name; -1: none; kSeveral: a name of several ids.
  std::int64_t find(const std::string& text) const;
  /// Whether every id is an integer in canonical form.
  bool integers() const { return integers_; }
  std::size_t longest_id() const { return longest_id_; }
  std::size_t longest_name() const { return longest_name_; }
  /// "the 150 users of 'data.h5' ('1' .. '150')". what: "users"; path: of the data set
  std::string described(const std::string& what, const std::string& path) const;

 private:
  std::vector<std::string> ids_, names_;
  std::unordered_map<std::string_view, std::int64_t> by_id_, by_name_;
  bool integers_ = true;
  std::size_t longest_id_ = 1, longest_name_ = 1;
};

/// An identifier in a file or on the command line.
struct WrittenId {
  std::string text;
  std::int64_t line = 0;  ///< of a file, from 1; 0: on the command line
};
/// The identifiers of a text file, one per line; blank lines are skipped.
/// errors  usage: no such file; data: none in it
std::vector<WrittenId> read_ids(const std::string& path);
/// The numbers of identifiers.
/// errors  unknown identifiers, names of several ids, and identifiers that occur twice: data if they are from a file,
///         else usage. The message begins with `where` and lists up to ten of them with their lines; that of unknown
///         ones ends with `known`
std::vector<std::int64_t> find_ids(const std::vector<WrittenId>& wanted, const IdTable& table, const std::string& where,
                                   const std::string& known);
/// "'a' (line 3), 'b' (line 8)": up to ten of them, and how many more there are.
std::string listed(const std::vector<WrittenId>& ids);

}  // namespace lockstep
