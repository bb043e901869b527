#include "lockstep/base/units.hpp"

#include <charconv>
#include <map>
#include <string>

#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

/// One name for the usual spellings of a unit.
std::string unit_name(std::string_view text) {
  static const std::map<std::string_view, std::string_view> kNames = {{"kelvin", "K"},
                                                                      {"Kelvin", "K"},
                                                                      {"degK", "K"},
                                                                      {"deg_K", "K"},
                                                                      {"degree_K", "K"},
                                                                      {"degrees_K", "K"},
                                                                      {"C", "degC"},
                                                                      {"deg_C", "degC"},
                                                                      {"celsius", "degC"},
                                                                      {"Celsius", "degC"},
                                                                      {"degree_C", "degC"},
                                                                      {"degrees_C", "degC"},
                                                                      {"degreeC", "degC"},
                                                                      {"degree_Celsius", "degC"},
                                                                      {"degrees_Celsius", "degC"},
                                                                      {"\xC2\xB0"
                                                                       "C",
                                                                       "degC"},
                                                                      {"meter", "m"},
                                                                      {"meters", "m"},
                                                                      {"metre", "m"},
                                                                      {"metres", "m"},
                                                                      {"sec", "s"},
                                                                      {"second", "s"},
                                                                      {"seconds", "s"},
                                                                      {"percent", "%"},
                                                                      {"watt", "W"},
                                                                      {"Watt", "W"},
                                                                      {"pascal", "Pa"},
                                                                      {"Pascal", "Pa"}};
  const auto found = kNames.find(text);
  return std::string(found == kNames.end() ? text : found->second);
}

/// The exponent of each unit of a product; a number other than 1 is a unit of its own.
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
    // A dot separates units, but belongs to a number.
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
