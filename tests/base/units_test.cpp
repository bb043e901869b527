#include "lockstep/base/units.hpp"

#include "support/test.hpp"

TEST_SUITE("base.units") {
  TEST_CASE("spellings of one unit are equal, different units are not") {
    constexpr std::pair<const char*, const char*> kEqual[] = {{"W m-2", "W/m^2"},        {"W m-2", "W m**-2"},
                                                              {"W m-2", "watt/m2"},      {"m s-1", "m/s"},
                                                              {"m.s-1", "m/s"},          {"kg kg-1", "1"},
                                                              {"kg m-2 s-1", "kg/m2/s"}, {"degC", "Celsius"},
                                                              {"degC", "degrees_C"},     {"degC", "deg C"},
                                                              {"K", "kelvin"},           {"1e-3", "1e-3"},
                                                              {" m ", "meters"},         {"", "1"}};
    for (const auto& [a, b] : kEqual) {
      CAPTURE(a);
      CAPTURE(b);
      CHECK(same_units(a, b));
      CHECK(same_units(b, a));
    }
    constexpr std::pair<const char*, const char*> kDifferent[] = {{"K", "degC"},      {"m", "cm"},    {"m", "m2"},
                                                                  {"m s-1", "m s-2"}, {"m/s", "s/m"}, {"1", "%"},
                                                                  {"1", "1e-3"},      {"Pa", "hPa"},  {"**", "m"}};
    for (const auto& [a, b] : kDifferent) {
      CAPTURE(a);
      CAPTURE(b);
      CHECK_FALSE(same_units(a, b));
    }
  }
}
