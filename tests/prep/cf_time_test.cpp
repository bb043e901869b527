#include "lockstep/prep/cf_time.hpp"

#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
/// The date of a value, or what is not read.
std::string date(const std::string& units, double value, const std::string& calendar = "") {
  const auto known = parse_calendar(calendar);
  if (!known) return "calendar";
  const auto unit = TimeUnit::parse(units, *known);
  if (!unit) return "unit";
  const auto seconds = unit->seconds(value);
  return seconds ? date_text(*seconds, *known) : "value";
}
}  // namespace

TEST_SUITE("prep.cf_time") {
  TEST_CASE("seconds count from 1970-01-01 of the calendar") {
    const auto seconds = [](const char* units, double value, Calendar calendar = Calendar::standard) {
      return *TimeUnit::parse(units, calendar)->seconds(value);
    };
    CHECK(seconds("seconds since 1970-01-01 00:00:00", 5) == 5);
    CHECK(seconds("days since 2016-02-01 12:00", 1.5) == 1454328000 + 129600);
    CHECK(seconds("hours since 2000-01-01T06:30:00Z", 0) == 946684800 + 6 * 3600 + 1800);
    CHECK(seconds("minutes since 1900-01-01", 0) == -2208988800);
    CHECK(seconds("milliseconds since 1970-01-01", 1454328000499) == 1454328000);
    CHECK(seconds("days since 1969-12-31", 365, Calendar::noleap) == 364 * 86400);
    CHECK(seconds("days since 1968-01-01", 0, Calendar::noleap) == -730 * 86400);
    CHECK(seconds("days since 1968-01-01", 0) == -731 * 86400);
    CHECK(seconds("days since 1968-01-01", 0, Calendar::all_leap) == -732 * 86400);
    CHECK(seconds("days since 1968-01-01", 0, Calendar::days_360) == -720 * 86400);
  }

  TEST_CASE("dates are those of the calendar") {
    CHECK(date("days since 2000-02-28", 1) == "2000-02-29 00:00");
    CHECK(date("days since 1900-02-28", 1) == "1900-03-01 00:00");
    CHECK(date("days since 1900-02-28", 1, "julian") == "1900-02-29 00:00");
    CHECK(date("days since 2000-02-28", 1, "noleap") == "2000-03-01 00:00");
    CHECK(date("days since 2001-02-28", 1, "366_day") == "2001-02-29 00:00");
    CHECK(date("days since 2001-02-28", 2, "360_day") == "2001-02-30 00:00");
    CHECK(date("days since 0001-01-01 00:00:00", 740, "365_day") == "0003-01-11 00:00");  // 2 * 365 + 10
    CHECK(date("days since 0000-01-01", 59, "NOLEAP") == "0000-03-01 00:00");
    CHECK(date("days since 1850-01-01", 60225.5, "noleap") == "2015-01-01 12:00");  // 165 * 365
    CHECK(date("days since 1960-02-30", 360, "360_day") == "1961-02-30 00:00");
    CHECK(date("seconds since 1970-01-01", -1) == "1969-12-31 23:59:59");
  }

  TEST_CASE("the standard calendar is Julian before 1582-10-15") {
    CHECK(date("days since 1582-10-04", 1) == "1582-10-15 00:00");
    CHECK(date("days since 1582-10-04", 1, "proleptic_gregorian") == "1582-10-05 00:00");
    CHECK(date("days since 1582-10-15", -1, "gregorian") == "1582-10-04 00:00");
    CHECK(date("days since 1582-10-10", 0) == "unit");
    // Hours from year 1, as NOAA's reanalyses count, are two days more than in the proleptic calendar.
    CHECK(date("hours since 1-1-1 00:00:0.0", 17067072) == "1948-01-01 00:00");
    CHECK(date("days since 0001-01-01", 711128, "proleptic_gregorian") == "1948-01-03 00:00");
  }

  TEST_CASE("months and years are those of the calendar") {
    CHECK(date("months since 1960-01-01", 0.5, "360_day") == "1960-01-16 00:00");
    CHECK(date("months since 1960-01-01", 1.5) == "1960-02-15 12:00");  // half of 29 days
    CHECK(date("months since 1960-01-15", 13, "noleap") == "1961-02-15 00:00");
    CHECK(date("months since 2000-01-31", 1) == "2000-02-29 00:00");
    CHECK(date("months since 2000-01-01", -1) == "1999-12-01 00:00");
    CHECK(date("years since 1900-03-01", 2) == "1902-03-01 00:00");
    CHECK(date("common_years since 1900-01-01", 1, "noleap") == "1901-01-01 00:00");
  }

  TEST_CASE("units have many spellings, and zones are honoured") {
    for (const char* units :
         {"Days since 2016-2-1 0:0:0", "d since 2016-02-01 00:00:00.0 UTC", "day since 2016-02-01Z",
          "days since 2016-02-01T01:00+01:00", "days since 2016-02-01 01:00:00 +0100", "days since 2016-01-31 19:00 -5",
          "days since 2016-02-01 05:30:00 +05:30", " days  since 2016-02-01 00 "}) {
      CAPTURE(units);
      const std::string text = units;
      CHECK(date(text, 2) == (text.ends_with("01Z") ? "unit" : "2016-02-03 00:00"));
    }
    CHECK(date("msec since 2016-02-01", 1500) == "2016-02-01 00:00:02");
    CHECK(date("weeks since 2016-02-01", 1) == "2016-02-08 00:00");
    CHECK(date("microseconds since 2016-02-01", 6e7) == "2016-02-01 00:01");
  }

  TEST_CASE("what is not read is no time") {
    for (const char* units :
         {"time level", "days", "", "fortnights since 2000-01-01", "days since 2000-13-01", "days since 2001-02-29",
          "day as %Y%m%d.%f", "days since noon", "days since 2000-01-01 EST", "days since 2000-01-01 25:00",
          "days since 2000-01-01 00:00 +0100x", "days since 2000-01-01 00:00 +-2147483648",
          "days since -2147483648-01-01"}) {
      CAPTURE(units);
      CHECK(date(units, 1) == "unit");
    }
    for (const char* calendar : {"none", "lunar", "365.25"})
      CHECK(date("days since 2000-01-01", 1, calendar) == "calendar");
    CHECK(date("days since 2000-01-01", NAN) == "value");
    CHECK(date("days since 2000-01-01", 9.97e36) == "value");
    CHECK(date("months since 2000-01-01", 1e30) == "value");
  }
}
