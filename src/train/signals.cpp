#include "lockstep/train/signals.hpp"

#include <atomic>

namespace lockstep {

namespace {
std::atomic<int> received_signal = 0;  // must be lock-free, because a signal handler writes it
static_assert(std::atomic<int>::is_always_lock_free);
extern "C" void remember_signal(int signal) { received_signal = signal; }
}  // namespace

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &term_);
  sigaction(SIGUSR1, &action, &usr1_);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);  // Ctrl-C twice: at once
  sigaction(SIGINT, &action, &int_);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &term_, nullptr);
  sigaction(SIGUSR1, &usr1_, nullptr);
  sigaction(SIGINT, &int_, nullptr);
}

int StopSignals::received() const { return received_signal; }

std::string StopSignals::name() const {
  switch (received_signal) {
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

}  // namespace lockstep
