#pragma once
#include <string_view>

namespace lockstep {

/// Whether a JSON text nests more than 32 lists and objects. nlohmann::json recurses into each to copy or print it: a
/// file of brackets would exhaust the stack.
bool nests_deeply(std::string_view json);

}  // namespace lockstep
