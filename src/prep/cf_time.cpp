#include "lockstep/prep/cf_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kDay_s = 86400;
constexpr int kMostYears = 10'000'000;

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// The day of the Julian and the Gregorian calendar that began the latter, in days since 1970-01-01.
constexpr std::int64_t kReform = -141427;

bool leap(Calendar calendar, std::int64_t year) {
  switch (calendar) {
    case Calendar::noleap:
    case Calendar::days_360:
      return false;
    case Calendar::all_leap:
      return true;
    case Calendar::julian:
      return year % 4 == 0;
    default:
      return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  }
}

int days_in_month(Calendar calendar, std::int64_t year, int month) {
  constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (calendar == Calendar::days_360) return 30;
  return kDays[month - 1] + (month == 2 && leap(calendar, year) ? 1 : 0);
}

/// Days from year 0 to the start of a year.
std::int64_t days_before(Calendar calendar, std::int64_t year) {
  const std::int64_t past = year - 1;  // years whose leap day, if any, lies behind; year 0 counts from 1 on
  switch (calendar) {
    case Calendar::noleap:
      return 365 * year;
    case Calendar::all_leap:
      return 366 * year;
    case Calendar::days_360:
      return 360 * year;
    case Calendar::julian:
      return 365 * year + floor_div(past, 4);
    default:
      return 365 * year + floor_div(past, 4) - floor_div(past, 100) + floor_div(past, 400);
  }
}

/// Days since 1970-01-01 in a calendar with one rule for leap years.
std::int64_t plain_day(Calendar calendar, std::int64_t year, int month, int day) {
  std::int64_t days = days_before(calendar, year) - days_before(calendar, 1970) + day - 1;
  for (int m = 1; m < month; ++m) days += days_in_month(calendar, year, m);
  return days;
}

/// From a day of the Julian calendar's count to the same day in the Gregorian's.
std::int64_t julian_to_gregorian() { return kReform - plain_day(Calendar::julian, 1582, 10, 5); }

struct Date {
  std::int64_t year;
  int month, day;
};
Date plain_date(Calendar calendar, std::int64_t days) {
  std::int64_t year = 1970 + floor_div(days, 366);
  while (plain_day(calendar, year + 1, 1, 1) <= days) ++year;
  while (plain_day(calendar, year, 1, 1) > days) --year;
  int month = 1;
  while (month < 12 && plain_day(calendar, year, month + 1, 1) <= days) ++month;
  return {year, month, static_cast<int>(days - plain_day(calendar, year, month, 1)) + 1};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}
void skip_blanks(std::string_view& text) {
  while (take(text, ' ')) {
  }
}

/// Seconds of `12:30:15.5 +01:00`, `06`, `T00:00Z`, `1:30 UTC`, in UTC. nullopt for other texts.
std::optional<double> time_of_day(std::string_view text) {
  if (text.empty()) return 0;
  if (!take(text, ' ') && !take(text, 't')) return {};
  skip_blanks(text);
  int hour = 0, minute = 0;
  double second = 0;
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    if (!take_number(text, hour)) return {};
    if (take(text, ':') && (!take_number(text, minute) || (take(text, ':') && !take_number(text, second)))) return {};
  }
  if (hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(second >= 0 && second < 61)) return {};
  skip_blanks(text);
  if (text == "z" || text == "utc" || text == "gmt") text = {};
  const int sign = text.starts_with('-') ? 1 : -1;  // a clock that is ahead shows UTC plus its zone
  int zone_hour = 0, zone_minute = 0;
  if (!text.empty()) {
    if (!take(text, '+') && !take(text, '-')) return {};
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (!take_number(text, zone_hour)) return {};
    if (digits > 2) {
      zone_minute = zone_hour % 100;
      zone_hour /= 100;
    } else if (take(text, ':') && !take_number(text, zone_minute)) {
      return {};
    }
    if (!text.empty() || digits < 1 || digits > 4 || zone_hour > 14 || zone_minute < 0 || zone_minute > 59) return {};
  }
  return (hour + sign * zone_hour) * 3600 + (minute + sign * zone_minute) * 60 + second;
}
}  // namespace

std::optional<Calendar> parse_calendar(std::string_view name) {
  static const std::vector<std::pair<std::string_view, Calendar>> kNames = {
      {"", Calendar::standard},          {"standard", Calendar::standard},
      {"gregorian", Calendar::standard}, {"proleptic_gregorian", Calendar::proleptic},
      {"julian", Calendar::julian},      {"noleap", Calendar::noleap},
      {"no_leap", Calendar::noleap},     {"365_day", Calendar::noleap},
      {"365", Calendar::noleap},         {"all_leap", Calendar::all_leap},
      {"366_day", Calendar::all_leap},   {"366", Calendar::all_leap},
      {"360_day", Calendar::days_360},   {"360", Calendar::days_360}};
  const std::string wanted = lower(trim(name));
  for (const auto& [spelling, calendar] : kNames)
    if (spelling == wanted) return calendar;
  return {};
}

bool comparable(Calendar a, Calendar b) {
  const auto real = [](Calendar c) { return c == Calendar::standard || c == Calendar::proleptic; };
  return a == b || (real(a) && real(b));
}

std::optional<std::int64_t> day_number(Calendar calendar, int year, int month, int day) {
  if (year < -kMostYears || year > kMostYears || month < 1 || month > 12 || day < 1) return {};
  if (calendar == Calendar::standard) {
    if (const std::int64_t days = plain_day(Calendar::proleptic, year, month, day); days >= kReform)
      return day_number(Calendar::proleptic, year, month, day);
    const auto days = day_number(Calendar::julian, year, month, day);
    if (!days || *days + julian_to_gregorian() >= kReform) return {};
    return *days + julian_to_gregorian();
  }
  if (day > days_in_month(calendar, year, month)) return {};
  return plain_day(calendar, year, month, day);
}

std::string date_text(std::int64_t seconds, Calendar calendar) {
  const std::int64_t days = floor_div(seconds, kDay_s);
  const auto time = static_cast<int>(seconds - days * kDay_s);
  const bool old = calendar == Calendar::standard && days < kReform;
  const Date date = old ? plain_date(Calendar::julian, days - julian_to_gregorian()) : plain_date(calendar, days);
  return printed("%04lld-%02d-%02d %02d:%02d", static_cast<long long>(date.year), date.month, date.day, time / 3600,
                 time / 60 % 60) +
         (time % 60 != 0 ? printed(":%02d", time % 60) : "");
}

std::optional<TimeUnit> TimeUnit::parse(std::string_view units, Calendar calendar) {
  struct Unit {
    std::vector<std::string_view> names;
    double seconds;
    int months;
  };
  static const std::vector<Unit> kUnits = {{{"microsecond", "microsec", "us"}, 1e-6, 0},
                                           {{"millisecond", "millisec", "msec", "ms"}, 1e-3, 0},
                                           {{"second", "sec", "s"}, 1, 0},
                                           {{"minute", "min"}, 60, 0},
                                           {{"hour", "hr", "h"}, 3600, 0},
                                           {{"day", "d"}, kDay_s, 0},
                                           {{"week"}, 7 * kDay_s, 0},
                                           {{"month", "mon"}, 0, 1},
                                           {{"common_year"}, 365 * kDay_s, 0},
                                           {{"year", "yr"}, 0, 12}};
  const std::string text = lower(trim(units));
  const auto since = text.find(" since ");
  if (since == std::string::npos) return {};
  std::string word = trim(text.substr(0, since));
  const auto known = [&] {
    return std::ranges::find_if(kUnits,
                                [&](const Unit& u) { return std::ranges::find(u.names, word) != u.names.end(); });
  };
  auto found = known();
  if (found == kUnits.end() && word.ends_with('s')) {
    word.pop_back();
    found = known();
  }
  if (found == kUnits.end()) return {};
  TimeUnit out;
  out.calendar_ = calendar;
  out.seconds_ = found->seconds;
  out.months_ = found->months;
  const std::string date = trim(text.substr(since + 7));
  std::string_view rest = date;
  if (!take_number(rest, out.year_) || !take(rest, '-') || !take_number(rest, out.month_) || !take(rest, '-') ||
      !take_number(rest, out.day_))
    return {};
  const auto time = time_of_day(rest);
  if (!time || !day_number(calendar, out.year_, out.month_, out.day_)) return {};
  out.time_of_day_s_ = *time;
  return out;
}

std::optional<std::int64_t> TimeUnit::seconds(double value) const {
  constexpr double kMost = 1e15;
  if (!std::isfinite(value)) return {};
  if (months_ == 0) {
    const double offset = value * seconds_;
    if (std::abs(offset) >= kMost) return {};
    return *day_number(calendar_, year_, month_, day_) * kDay_s + std::llround(offset + time_of_day_s_);
  }
  const double all = value * months_, whole = std::floor(all);
  if (std::abs(all) >= kMost / kDay_s / 31) return {};
  const std::int64_t month = static_cast<std::int64_t>(whole) + month_ - 1;
  const std::int64_t year = year_ + floor_div(month, 12);
  const auto in_year = static_cast<int>(month - floor_div(month, 12) * 12) + 1;
  if (std::abs(year) > kMostYears) return {};
  const int length = days_in_month(calendar_, year, in_year);
  const auto days = day_number(calendar_, static_cast<int>(year), in_year, std::min(day_, length));
  if (!days) return {};
  return *days * kDay_s + std::llround((all - whole) * length * kDay_s + time_of_day_s_);
}

}  // namespace lockstep::prep
