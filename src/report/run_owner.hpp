#pragma once
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/report/run_log.hpp"

namespace lockstep {

/// Marks a run directory as in use by this process, from construction to destruction, also on file systems without
/// locks.
///
/// The file `.lock` names the process, and a thread renews its modification time. A second process is refused if it
/// cannot lock the file while the first one lives. Without locks, or if locks work only within a host, it uses the
/// process table if the first one runs on this host. Otherwise it watches the modification time: if that moves, the run
/// lives; if it stays the same for `stale_s`, the run was killed.
class RunOwner {
 public:
  struct Times {
    double renew_s = 5, stale_s = 60;
  };
  /// take_over  yes: takes the directory even from a live run, which then finds a successor()
  /// errors     Error (usage): the directory is in use, or not writable
  RunOwner(const std::filesystem::path& dir, TakeOver take_over, Times times);
  ~RunOwner();
  /// The run that has taken the directory over; "" if there is none.
  std::string successor() const;

 private:
  /// Returns once the directory is free.
  /// locked  another process has locked the file
  void await_end_of_owner(bool locked, const Times& times) const;
  void renew(const std::stop_token& stop, double every_s);

  std::filesystem::path dir_, file_;
  std::string text_;  ///< contents of the file
  int fd_ = -1;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep
