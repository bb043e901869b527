#pragma once
#include <cstdint>
#include <memory>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// A point in a GPU's stream: the end of the work that was enqueued before the last record().
class Event {
 public:
  enum class Kind : std::uint8_t { order, time };
  /// time  the GPU also notes when it passes the point
  /// errors  Error for the CPU
  explicit Event(Device device, Kind kind = Kind::order);
  /// Call it outside of captures.
  void record(const Stream& stream) const;
  /// Whether the GPU has passed the point. errors  Error if any work before it failed
  bool passed() const;
  /// Waits until the GPU has passed the point; later work continues. errors  as passed()
  void wait() const;
  /// The GPU's time from an earlier point to this one, after wait(). Both events have Kind::time.
  double seconds_since(const Event& earlier) const;

 private:
  struct Destroy {
    void operator()(void* event) const;
  };
  std::unique_ptr<void, Destroy> event_;
};

}  // namespace lockstep
