#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {

/// Keeps started collectives moving while the thread that trains computes: MPI moves data only inside its calls, so a helper thread calls it
/// every 50 us for as long as something is under way, and sleeps otherwise. Needs MPI_THREAD_MULTIPLE.
class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  /// One more collective is under way.
  void begin();
  /// One of them has ended, or its starter now waits for it and moves it himself.
  void end();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  int under_way_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
