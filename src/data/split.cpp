#include "lockstep/data/split.hpp"

namespace lockstep {

const char* name(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::validation:
      return "validation";
    case Split::test:
      return "test";
  }
  return "?";
}

}  // namespace lockstep
