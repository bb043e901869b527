#pragma once
#include <csignal>
#include <string>

namespace lockstep {

/// During its lifetime SIGTERM and SIGUSR1 request a stop instead of ending the process. The destructor restores the
/// previous handlers. A second signal has no effect. Scopes may be nested; all of them see a received signal.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  /// The number of the received signal, or 0.
  int received() const;
  /// "SIGTERM", "SIGUSR1" or "".
  std::string name() const;

 private:
  struct sigaction term_, usr1_;
};

}  // namespace lockstep
