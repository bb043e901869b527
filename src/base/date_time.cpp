#include "lockstep/base/date_time.hpp"

#include <charconv>
#include <chrono>

#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {
/// Days since 1970-01-01 of a date of the Gregorian calendar; nullopt if there is no such day.
std::optional<std::int64_t> day_number(int year, int month, int day) {
  using namespace std::chrono;
  // std::chrono stores a year in 16 bits, a month and a day in 8: larger numbers would wrap.
  if (year < -32767 || year > 32767 || month < 1 || month > 12 || day < 1 || day > 31) return {};
  const year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return {};
  return sys_days(date).time_since_epoch().count();
}

/// Removes exactly `digits` digits, of a value up to `largest`, from the start of `text`.
bool take(std::string_view& text, std::size_t digits, int largest, int& out) {
  if (text.size() < digits || text.substr(0, digits).find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  std::from_chars(text.data(), text.data() + digits, out);
  text.remove_prefix(digits);
  return out <= largest;
}
bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}
}  // namespace

std::optional<Moment> parse_date_time(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  if (!take(text, 4, 9999, year) || !take(text, '-') || !take(text, 2, 12, month) || !take(text, '-') ||
      !take(text, 2, 31, day))
    return {};
  const auto days = day_number(year, month, day);
  if (!days) return {};
  Moment out{*days * 86400, 0};
  if (text.empty()) return out;
  if (!take(text, 'T') && !take(text, ' ')) return {};
  if (!take(text, 2, 23, hour)) return {};
  const bool minutes = take(text, ':');
  if (minutes && !take(text, 2, 59, minute)) return {};
  if (minutes && take(text, ':')) {
    if (!take(text, 2, 60, second)) return {};
    if (text.starts_with('.')) {
      const auto [end, failed] =
          std::from_chars(text.data(), text.data() + text.size(), out.fraction, std::chars_format::fixed);
      if (failed != std::errc{}) return {};
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    }
  }
  out.seconds += hour * 3600 + minute * 60 + second;
  if (text.empty() || text == "Z") return out;
  const int sign = text.front() == '+' ? 1 : -1;
  int zone_hour = 0, zone_minute = 0;
  if (!take(text, '+') && !take(text, '-')) return {};
  if (!take(text, 2, 23, zone_hour)) return {};
  if (!text.empty() && ((take(text, ':'), !take(text, 2, 59, zone_minute)) || !text.empty())) return {};
  out.seconds -= sign * (zone_hour * 3600 + zone_minute * 60);
  return out;
}

std::string date_time_text(std::int64_t seconds) {
  using namespace std::chrono;
  constexpr std::int64_t kDay = 86400, kCycle = 146097;  // the calendar repeats after 400 years
  const std::int64_t day = seconds / kDay, rest = seconds % kDay;
  const year_month_day date{sys_days(days(day % kCycle))};
  return printed("%04lld-%02u-%02u %02lld:%02lld:%02lld",
                 static_cast<long long>(static_cast<int>(date.year()) + day / kCycle * 400),
                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                 static_cast<long long>(rest / 3600), static_cast<long long>(rest / 60 % 60),
                 static_cast<long long>(rest % 60));
}

}  // namespace lockstep
