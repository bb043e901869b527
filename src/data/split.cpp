#include "lockstep/data/split.hpp"

namespace lockstep {

const char* name(Split split) {
  constexpr const char* kNames[] = {"train", "validation", "test"};
  return kNames[static_cast<std::size_t>(split)];
}

}  // namespace lockstep
