#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {

/// Drives started collectives while the training thread computes. MPI moves data only inside its calls, so a helper
/// thread calls it every 50 us while requests are in progress and sleeps otherwise. Needs MPI_THREAD_MULTIPLE.
class Progress {
 public:
  Progress();
  /// Adds a collective in progress.
  void begin();
  /// Removes a collective that is complete, or that its rank now drives.
  void end();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  int in_progress_ = 0;
  std::jthread thread_;
};

}  // namespace lockstep
