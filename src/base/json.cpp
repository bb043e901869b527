#include "lockstep/io/json_depth.hpp"

#include <cstddef>

namespace lockstep {

bool nests_deeply(std::string_view json) {
  constexpr int kDeepest = 32;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size() && depth <= kDeepest; ++i) {
    const char c = json[i];
    if (c == '"') in_text = !in_text;
    if (in_text && c == '\\') ++i;
    if (in_text) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
  }
  return depth > kDeepest;
}

}  // namespace lockstep
