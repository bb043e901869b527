#include "progress.hpp"

#include <mpi.h>

#include <chrono>

#include "lockstep/base/helper_thread.hpp"

namespace lockstep {

Progress::Progress() {
  thread_ = helper_thread([this](const std::stop_token& stop) { run(stop); });
}

void Progress::begin() {
  {
    const std::lock_guard lock(mutex_);
    ++in_progress_;
  }
  wake_.notify_one();
}

void Progress::end() {
  const std::lock_guard lock(mutex_);
  --in_progress_;
}

void Progress::run(const std::stop_token& stop) {
  // MPI_Test of one request drives all requests. This request completes only when the rank sends itself a message at
  // the end. A probe drives requests in Open MPI, but not in MPICH.
  MPI_Request last = MPI_REQUEST_NULL;
  MPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &last);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (in_progress_ == 0) {
      wake_.wait(lock, stop, [&] { return in_progress_ > 0; });
      continue;
    }
    lock.unlock();
    int received = 0;
    MPI_Test(&last, &received, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF);
  MPI_Wait(&last, MPI_STATUS_IGNORE);
}

}  // namespace lockstep
