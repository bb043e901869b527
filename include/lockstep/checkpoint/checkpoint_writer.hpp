#pragma once
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/stopwatch.hpp"

namespace lockstep {

/// A thread that writes files while training continues, one job at a time. The destructor waits for the job.
class CheckpointWriter {
 public:
  /// Starts a job. Call finish() for the previous job first.
  void start(std::function<void()> job) {
    std::packaged_task<double()> task([job = std::move(job), rank = log::speaker().rank] {
      profile::name_helper(rank, "checkpoint writer");
      const Stopwatch watch;
      job();
      return watch.seconds();
    });
    result_ = task.get_future();
    thread_ = helper_thread(std::move(task));
  }
  /// Whether a job is running.
  bool busy() const {
    return result_.valid() && result_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  /// Waits until a running job has ended, or for `seconds` at most.
  void wait(double seconds) const { result_.wait_for(std::chrono::duration<double>(seconds)); }
  /// Waits for the job and rethrows its exception. Returns its wall seconds.
  double finish() { return result_.get(); }

 private:
  std::future<double> result_;
  std::jthread thread_;
};

}  // namespace lockstep
