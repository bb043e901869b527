#include "deadline.hpp"

#include <unistd.h>

#include <chrono>

#include "lockstep/base/error.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

Deadline::Deadline(double limit_s, std::string who, std::string remedy) {
  if (limit_s <= 0) return;
  thread_ =
      helper_thread([this, limit_s, who = std::move(who), remedy = std::move(remedy)](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, stop, std::chrono::duration<double>(limit_s), [] { return false; });
        if (stop.stop_requested()) return;
        // Does not use the log: another thread of the rank may hold its lock.
        const std::string text =
            join("error [", who, "]: ", phase_.load(), " has not returned for ", human_seconds(limit_s),
                 ": another rank is missing, or the network hangs; ", remedy, "\n");
        (void)!write(STDERR_FILENO, text.data(), text.size());
        _exit(1);
      });
}

}  // namespace lockstep
