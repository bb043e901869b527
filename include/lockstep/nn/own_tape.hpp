#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// What a tape refers to, made before it.
struct TapeMemory {
  explicit TapeMemory(Device device) : own_stream(device), own_arena(device) {}
  Stream own_stream;
  Arena own_arena;
};
/// A tape with a stream and an arena of its own.
class OwnTape : private TapeMemory, public Tape {
 public:
  explicit OwnTape(DType dtype, Mode mode = Mode::forward, Gradients* gradients = nullptr, Device device = {})
      : TapeMemory(device), Tape(own_stream, own_arena, dtype, mode, gradients) {}
  /// A forward pass with these parameters, where they are and as they are stored.
  explicit OwnTape(const ParamStore& params) : OwnTape(params.storage(), Mode::forward, nullptr, params.device()) {}
};

}  // namespace lockstep
