#include "lockstep/device/event.hpp"

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

Event::Event([[maybe_unused]] Device device, [[maybe_unused]] Kind kind) {
  require(device.is_cuda() && kHasCuda, "creating an event of ", name(device), ": only GPUs have events");
  if constexpr (kHasCuda) event_.reset(gpu::make_event(device.index, kind == Kind::time));
}
void Event::Destroy::operator()([[maybe_unused]] void* event) const {
  if constexpr (kHasCuda) gpu::destroy_event(event);
}
void Event::record([[maybe_unused]] const Stream& stream) const {
  if constexpr (kHasCuda) gpu::record_event(event_.get(), stream.native());
}
bool Event::passed() const {
  if constexpr (kHasCuda) return gpu::event_passed(event_.get());
  return true;
}
void Event::wait() const {
  if constexpr (kHasCuda) gpu::wait_for_event(event_.get());
}
double Event::seconds_since([[maybe_unused]] const Event& earlier) const {
  if constexpr (kHasCuda) return gpu::seconds_between(earlier.event_.get(), event_.get());
  return 0;
}

}  // namespace lockstep
