#pragma once
#include <string_view>

namespace lockstep {

/// Whether two texts name one unit: `W m-2`, `W/m^2` and `W m**-2`; `degC`, `Celsius` and `degrees_C`; `K` and
/// `kelvin`; `1` and `kg kg-1`. Unknown spellings match only if they are equal.
bool same_units(std::string_view a, std::string_view b);

}  // namespace lockstep
