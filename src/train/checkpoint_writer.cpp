#include "train/checkpoint_writer.hpp"

#include <chrono>
#include <utility>

#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"

namespace lockstep {

void CheckpointWriter::start(std::function<void()> job) {
  busy_ = true;
  thread_ = helper_thread([this, job = std::move(job), rank = log::speaker().rank] {
    profile::name_helper(rank, "checkpoint writer");
    const Stopwatch watch;
    try {
      job();
    } catch (...) {
      failure_ = std::current_exception();
    }
    seconds_ = watch.seconds();
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    ended_.notify_all();
  });
}

void CheckpointWriter::wait(double seconds) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !busy_; });
}

double CheckpointWriter::finish() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return seconds_;
}

}  // namespace lockstep
