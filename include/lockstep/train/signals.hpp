#pragma once
#include <csignal>
#include <string>

namespace lockstep {

/// During its lifetime SIGTERM, SIGUSR1 and SIGINT request a stop instead of ending the process. The destructor
/// restores the previous handlers. A second signal has no effect, but a second SIGINT ends the process. Scopes may be
/// nested; all of them see a received signal.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  /// The number of the received signal, or 0.
  int received() const;
  /// "SIGTERM", "SIGUSR1", "SIGINT" or "".
  std::string name() const;

 private:
  struct sigaction term_, usr1_, int_;
};

}  // namespace lockstep
