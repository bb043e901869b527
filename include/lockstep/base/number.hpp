#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

/// Removes a number, written as std::from_chars takes it, from the start of a text. Returns false, and changes nothing,
/// if there is none, or if it is out of range.
template <class T>
bool take_number(std::string_view& text, T& out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failed != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}
/// The number that is a whole text; none if it is no number, or out of range.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  return take_number(text, value) && text.empty() ? std::optional(value) : std::nullopt;
}

}  // namespace lockstep
