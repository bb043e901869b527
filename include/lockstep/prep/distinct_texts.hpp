#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::prep {

/// Distinct texts, such as ids, numbered in the order of their first occurrence, and the place of that.
template <class Where = std::monostate>
class DistinctTexts {
 public:
  using Place = Where;
  /// The number of this text, 0 .. size() - 1; new ones get the next number. errors  data: more than 2^31 - 2 of them
  std::int32_t intern(std::string_view text, const Place& place = {}) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
    require_data(size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - 1),
                 "reading interactions: more than 2^31 - 2 distinct ids");
    const auto entry = numbers_.emplace(std::string(text), static_cast<std::int32_t>(size())).first;
    texts_.push_back(&entry->first);
    places_.push_back(place);
    return entry->second;
  }
  bool knows(std::string_view text) const { return numbers_.contains(text); }
  std::size_t size() const { return texts_.size(); }
  const std::string& id(std::size_t number) const { return *texts_[number]; }
  const Place& place(std::size_t number) const { return places_[number]; }
  std::vector<std::string> ids() const {
    std::vector<std::string> all;
    for (const std::string* text : texts_) all.push_back(*text);
    return all;
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> numbers_;
  std::vector<const std::string*> texts_;  ///< keys of numbers_, whose nodes never move
  std::vector<Place> places_;
};

}  // namespace lockstep::prep
