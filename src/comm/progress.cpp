#include "progress.hpp"

#include <mpi.h>

#include <chrono>

#include "lockstep/base/helper_thread.hpp"

namespace lockstep {

Progress::Progress() {
  thread_ = helper_thread([this] { run(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Progress::begin() {
  {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  wake_.notify_one();
}

void Progress::end() {
  const std::lock_guard lock(mutex_);
  --under_way_;
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (under_way_ == 0) {
      wake_.wait(lock, [&] { return stop_ || under_way_ > 0; });
      continue;
    }
    lock.unlock();
    // Any MPI call drives all requests. This one probes for a message that no rank sends.
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
}

}  // namespace lockstep
