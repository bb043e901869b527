#pragma once
#include <csignal>
#include <string>

namespace lockstep {

/// While it lives, SIGTERM and SIGUSR1 ask for a stop instead of ending the process; the former handlers come back afterwards.
/// A second signal changes nothing: the checkpoint is on its way. Scopes may be nested; what one has received, all know.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  /// The signal that came, or 0.
  int received() const;
  /// "SIGTERM", "SIGUSR1" or "".
  std::string name() const;

 private:
  struct sigaction term_, usr1_;
};

}  // namespace lockstep
