#include "status.hpp"

#include <ctime>

namespace lockstep {

std::int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void Status::at(const char* phase, std::int64_t step) {
  now_.phase.set(phase);
  now_.step = step;
  tell(Activity::working);
}

void Status::enter(const char* channel, const Signature& call) {
  now_.channel.set(channel);
  now_.sequence = call.sequence;
  if (now_.channel.view() == "world" && call.sequence > now_.world_sequence) now_.world_sequence = call.sequence;
  now_.operation = call.operation;
  now_.count = call.count;
  now_.type = call.type;
  now_.what.set(call.what.view());
  tell(Activity::in_collective);
}

void Status::tell(Activity activity) {
  now_.activity = activity;
  now_.since_ns = monotonic_ns();
  board_->whereabouts.store(now_);
}

}  // namespace lockstep
