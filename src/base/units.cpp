#include "lockstep/base/units.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

/// Maps the usual spellings of a unit to one name.
std::string unit_name(std::string_view text) {
  static const std::map<std::string_view, std::vector<std::string_view>> kSpellings = {
      {"K", {"kelvin", "Kelvin", "degK", "deg_K", "degree_K", "degrees_K"}},
      {"degC",
       {"C", "deg_C", "celsius", "Celsius", "degree_C", "degrees_C", "degreeC", "degree_Celsius", "degrees_Celsius",
        "\u00B0C"}},
      {"m", {"meter", "meters", "metre", "metres"}},
      {"s", {"sec", "second", "seconds"}},
      {"%", {"percent", "Percent", "percentage", "pct"}},
      {"W", {"watt", "Watt"}},
      {"Pa", {"pascal", "Pascal"}}};
  for (const auto& [name, spellings] : kSpellings)
    if (std::ranges::find(spellings, text) != spellings.end()) return std::string(name);
  return std::string(text);
}

/// The exponent of each unit of a product. A number other than 1 counts as a unit.
std::map<std::string, int> parse_units(std::string_view text) {
  const std::string all = trim(text) == "deg C" ? "degC" : trim(text);
  constexpr std::string_view kBetween = " .*/";
  std::map<std::string, int> powers;
  int sign = 1;
  for (std::size_t at = 0; at < all.size();) {
    if (all[at] == '/') sign = -1;
    if (kBetween.find(all[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    std::string_view word = std::string_view(all).substr(at, std::min(all.find_first_of(" */", at), all.size()) - at);
    // A dot separates units, except inside a number.
    if (const auto dot = word.find('.'); dot != std::string_view::npos && (word[0] < '0' || word[0] > '9'))
      word = word.substr(0, dot);
    at += word.size();
    int power = 1;
    const std::size_t digits = word.find_last_not_of("0123456789");
    const bool number = word.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
    if (!number && digits + 1 < word.size()) {
      const bool minus = word[digits] == '-', plus = word[digits] == '+';
      std::from_chars(word.data() + digits + 1, word.data() + word.size(), power);
      if (minus) power = -power;
      word = word.substr(0, digits + (minus || plus ? 0 : 1));
      while (word.ends_with('^')) word.remove_suffix(1);
    } else if (std::string_view(all).substr(at).starts_with("**")) {
      const auto [end, failed] = std::from_chars(all.data() + at + 2, all.data() + all.size(), power);
      if (failed == std::errc{}) at = static_cast<std::size_t>(end - all.data());
    }
    if (word != "1") powers[unit_name(word)] += sign * power;
    sign = 1;
  }
  std::erase_if(powers, [](const auto& entry) { return entry.second == 0; });
  return powers;
}

}  // namespace

bool same_units(std::string_view a, std::string_view b) { return parse_units(a) == parse_units(b); }

}  // namespace lockstep
