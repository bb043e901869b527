#include "lockstep/base/stop_request.hpp"

#include <csignal>

namespace lockstep {

std::string signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGINT:
      return "SIGINT";
    default:
      return "";
  }
}

void require_no_stop_request(const char* doing) {
  const int signal = stop_request.load(std::memory_order_relaxed);
  if (signal != 0)
    throw Error(kStopRequested, join(doing, ": stopped by ", signal_name(signal),
                                     "; files are as before, and the same command starts it again"));
}

}  // namespace lockstep
