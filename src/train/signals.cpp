#include "lockstep/train/signals.hpp"

#include "lockstep/base/stop_request.hpp"

namespace lockstep {

namespace {
extern "C" void remember_signal(int signal) { stop_request = signal; }
}  // namespace

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &term_);
  sigaction(SIGUSR1, &action, &usr1_);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);  // a second Ctrl-C ends the process at once
  sigaction(SIGINT, &action, &int_);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &term_, nullptr);
  sigaction(SIGUSR1, &usr1_, nullptr);
  sigaction(SIGINT, &int_, nullptr);
}

int StopSignals::received() const { return stop_request; }

std::string StopSignals::name() const { return signal_name(stop_request); }

}  // namespace lockstep
