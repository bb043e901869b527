#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// The stream and the arena of an OwnTape. A base class, so that they exist before the tape.
struct TapeMemory {
  explicit TapeMemory(Device device) : own_stream(device), own_arena(device) {}
  Stream own_stream;
  Arena own_arena;
};
/// A tape that owns its stream and its arena.
class OwnTape : private TapeMemory, public Tape {
 public:
  explicit OwnTape(DType dtype, Mode mode = Mode::forward, Gradients* gradients = nullptr, Device device = {})
      : TapeMemory(device), Tape(own_stream, own_arena, dtype, mode, gradients) {}
  /// For a forward pass with these parameters, on their device and in their storage dtype.
  explicit OwnTape(const ParamStore& params) : OwnTape(params.storage(), Mode::forward, nullptr, params.device()) {}
};

}  // namespace lockstep
