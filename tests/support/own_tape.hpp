#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep::test {

/// What a tape refers to, made before it.
struct TapeMemory {
  Stream own_stream;
  Arena own_arena;
};
/// A tape on the CPU with a stream and an arena of its own.
class OwnTape : private TapeMemory, public Tape {
 public:
  explicit OwnTape(DType dtype, Mode mode = Mode::forward, Gradients* gradients = nullptr)
      : Tape(own_stream, own_arena, dtype, mode, gradients) {}
};

}  // namespace lockstep::test
