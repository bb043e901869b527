#include "tasks/id_table.hpp"

#include <algorithm>
#include <unordered_set>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {
namespace {

bool is_integer(const std::string& text) {
  const auto value = number_in<std::int64_t>(text);
  return value && std::to_string(*value) == text;
}

/// A name in UTF-8, the encoding of all outputs. A name that is not valid UTF-8 is taken as ISO 8859-1, as in
/// movies.dat of MovieLens.
std::string utf8_of(const std::string& name) {
  if (is_clean_utf8(name)) return name;
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned>(static_cast<unsigned char>(c));
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0u | byte >> 6);
      text += static_cast<char>(0x80u | (byte & 0x3Fu));
    }
  }
  return text;
}

}  // namespace

IdTable::IdTable(std::vector<std::string> ids, std::vector<std::string> names)
    : ids_(std::move(ids)), names_(std::move(names)) {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    by_id_.emplace(ids_[i], static_cast<std::int64_t>(i));
    integers_ = integers_ && is_integer(ids_[i]);
    longest_id_ = std::max(longest_id_, ids_[i].size());
  }
  for (std::size_t i = 0; i < names_.size(); ++i) {
    names_[i] = utf8_of(names_[i]);
    const auto [at, first] = by_name_.emplace(names_[i], static_cast<std::int64_t>(i));
    if (!first || names_[i].empty()) at->second = names_[i].empty() ? -1 : kSeveral;
    longest_name_ = std::max(longest_name_, names_[i].size());
  }
}

IdTable IdTable::numbers(std::int64_t count) {
  std::vector<std::string> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(std::to_string(i));
  return IdTable(std::move(ids));
}

const std::string& IdTable::name(std::int64_t number) const {
  static const std::string kNone;
  return names_.empty() ? kNone : names_[number];
}

std::string IdTable::called(std::int64_t number) const {
  return name(number).empty() ? id(number) : join(name(number), " (", id(number), ")");
}

std::int64_t IdTable::find(const std::string& text) const {
  if (const auto found = by_id_.find(text); found != by_id_.end()) return found->second;
  const auto found = by_name_.find(text);
  return found == by_name_.end() ? -1 : found->second;
}

std::string IdTable::described(const std::string& what, const std::string& path) const {
  return join("the ", size(), " ", what, " of '", path, "' ('", id(0), "' .. '", id(size() - 1), "')");
}

std::vector<WrittenId> read_ids(const std::string& path) {
  std::ifstream in = open_text(path);
  std::vector<WrittenId> ids;
  std::string line;
  for (std::int64_t number = 0; next_line(in, line, number, path);)
    if (std::string text = trim(line); !text.empty()) ids.push_back({std::move(text), number});
  require_data(!ids.empty(), "reading '", path, "': it is empty; write one identifier per line");
  return ids;
}

std::string listed(const std::vector<WrittenId>& ids) {
  constexpr std::size_t kMost = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, ids.size()); ++i) {
    text += (i == 0 ? "'" : ", '") + ids[i].text + "'";
    if (ids[i].line > 0) text += join(" (line ", ids[i].line, ")");
  }
  return ids.size() <= kMost ? text : join(text, " and ", ids.size() - kMost, " more");
}

std::vector<std::int64_t> find_ids(const std::vector<WrittenId>& wanted, const IdTable& table, const std::string& where,
                                   const std::string& known) {
  std::vector<std::int64_t> numbers;
  std::vector<WrittenId> unknown, several, twice;
  std::unordered_set<std::int64_t> seen;
  for (const WrittenId& id : wanted) {
    const std::int64_t number = table.find(id.text);
    if (number < 0)
      (number == IdTable::kSeveral ? several : unknown).push_back(id);
    else if (!seen.insert(number).second)
      twice.push_back(id);
    numbers.push_back(number);
  }
  const Fault fault = !wanted.empty() && wanted[0].line > 0 ? Fault::data : Fault::usage;
  if (!unknown.empty())
    throw Error(fault, join(where, ": ", listed(unknown), unknown.size() == 1 ? " is" : " are", " none of ", known));
  if (!several.empty())
    throw Error(fault, join(where, ": ", listed(several), several.size() == 1 ? " is a name" : " are names",
                            " of several; give the id instead"));
  if (!twice.empty())
    throw Error(fault, join(where, ": ", listed(twice), twice.size() == 1 ? " occurs" : " occur", " twice"));
  return numbers;
}

}  // namespace lockstep
