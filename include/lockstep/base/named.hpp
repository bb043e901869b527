#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

/// An enumeration whose values 0, 1, ... have names, the same in options, files and messages. Beside it:
///
///     enum class Pool : std::uint8_t { attention, mean };
///     constexpr auto names_of(Pool) { return std::array{"attention", "mean"}; }
template <class E>
concept Named = std::is_enum_v<E> && requires(E value) {
  names_of(value)[0];
};

template <Named E>
constexpr const char* name(E value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
/// The value with this name, or nothing.
template <Named E>
std::optional<E> named(std::string_view text) {
  constexpr auto kNames = names_of(E{});
  const auto* found = std::ranges::find(kNames, text);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<E>(found - kNames.begin()));
}
/// All names in order, as an option that is a choice has them.
template <Named E>
std::vector<std::string> choices() {
  constexpr auto kNames = names_of(E{});
  return {kNames.begin(), kNames.end()};
}
/// The value with this name.
///
/// errors   Error (usage): "activation 'swish': unknown; choose one of none, gelu, relu"
template <Named E>
E named(std::string_view text, const char* what) {
  if (const std::optional<E> value = named<E>(text)) return *value;
  std::string known;
  for (const char* each : names_of(E{})) known += join(known.empty() ? "" : ", ", each);
  throw Error(Fault::usage, join(what, " '", text, "': unknown; choose one of ", known));
}

}  // namespace lockstep
