#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

/// A thread that writes files while training continues, one job at a time. The destructor waits for the job.
class CheckpointWriter {
 public:
  /// Starts a job. Call finish() for the previous job first.
  void start(std::function<void()> job);
  /// Whether a job is running.
  bool busy() const { return busy_; }
  /// Waits until the job has ended, or for `seconds` at most.
  void wait(double seconds);
  /// Waits for the job and rethrows its exception. Returns its wall seconds.
  double finish();

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<bool> busy_ = false;
  std::exception_ptr failure_;
  double seconds_ = 0;
  std::jthread thread_;
};

}  // namespace lockstep
