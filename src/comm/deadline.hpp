#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

/// Ends this process with a message and exit code 1 if the start or the end of the job, which no watchdog observes,
/// takes too long.
class Deadline {
 public:
  /// limit_s  0: none
  /// who      "rank 3, node04"
  /// remedy   what to do, for the message
  Deadline(double limit_s, std::string who, std::string remedy);
  /// Names the phase that begins, such as "MPI_Init_thread". The text must outlive the object.
  void at(const char* phase) { phase_ = phase; }

 private:
  std::atomic<const char*> phase_{"start"};
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep
