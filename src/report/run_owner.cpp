#include "report/run_owner.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/stop_request.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/disk_sync.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// Identifies the process table that a PID refers to: the boot of the host, and the PID namespace of the container.
std::string process_table() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string host;
  std::error_code failed;
  const fs::path container = fs::read_symlink("/proc/self/ns/pid", failed);
  return std::getline(boot, host) && !failed ? host + container.string() : "";
}

/// " 17 2": the Slurm job of this process, and how often it was restarted. "" without Slurm.
std::string slurm_start() {
  const char *job = std::getenv("SLURM_JOB_ID"), *restarts = std::getenv("SLURM_RESTART_COUNT");
  return job == nullptr ? "" : join(" ", job, " ", restarts == nullptr ? "0" : restarts);
}

/// Two lines: one for people, one for life_of().
std::string description_of_this_run() {
  std::string job;
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE"})
    if (const char* value = std::getenv(name); value != nullptr && job.empty()) job = join(", job ", value);
  return join("process ", ::getpid(), " on ", host_name(), job, ", since ", local_time(), "\n", ::getpid(), " ",
              process_started(::getpid()), " ", process_table(), slurm_start(), "\n");
}

/// A snapshot of the file that names the owner.
struct Snapshot {
  std::string who, identity;  ///< the two lines of the file
  timespec changed{};
  bool operator==(const Snapshot& other) const {
    return who == other.who && identity == other.identity && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

/// Opens the file each time, so that a network file system asks its server.
Snapshot read_owner(const fs::path& file) {
  Snapshot seen;
  std::ifstream in(file);
  std::getline(in, seen.who);
  std::getline(in, seen.identity);
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) seen.changed = status.st_mtim;
  return seen;
}

/// Seconds since then by the clock of the directory's file system.
double age_s(const timespec& then, const fs::path& dir) {
  std::string probe = (dir / ".lock.XXXXXX").string();
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (const int fd = ::mkstemp(probe.data()); fd >= 0) {
    struct stat status {};
    if (::fstat(fd, &status) == 0) now = status.st_mtim;
    ::close(fd);
    ::unlink(probe.c_str());
  }
  return static_cast<double>(now.tv_sec - then.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec - then.tv_nsec);
}

enum class Life : std::uint8_t { ended, alive, unknown };

/// Whether the owner lives, as far as this host can tell.
Life life_of(const Snapshot& owner) {
  std::istringstream in(owner.identity);
  std::int64_t pid = 0, started = 0;
  std::string table;
  in >> pid >> started >> table;
  if (owner.who.empty()) return Life::ended;
  if (table.empty() || table != process_table()) return Life::unknown;
  return process_state(pid, started) == Process::dead ? Life::ended : Life::alive;
}

/// Whether the owner is an earlier start of this process's job: Slurm has ended it.
bool was_requeued(const Snapshot& owner) {
  std::istringstream in(owner.identity);
  std::string skipped, job, start;
  in >> skipped >> skipped >> skipped >> job >> start;
  const std::string mine = slurm_start();
  return !start.empty() && mine.starts_with(" " + job + " ") && mine != " " + job + " " + start;
}

}  // namespace

DirectoryOwner owner_of(const fs::path& dir) {
  const Snapshot owner = read_owner(dir / ".lock");
  const Life life = life_of(owner);
  const auto age = static_cast<double>(std::time(nullptr) - owner.changed.tv_sec);
  return {owner.who, life == Life::alive || (life == Life::unknown && age < RunOwner::Times{}.stale_s)};
}

RunOwner::RunOwner(const fs::path& dir, TakeOver take_over, Times times)
    : dir_(dir), file_(dir / ".lock"), text_(description_of_this_run()) {
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require_usage(fd_ >= 0, "run directory '", dir.string(), "': cannot write into it: ", std::strerror(errno));
  try {
    const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const Snapshot owner = read_owner(file_);
    if (take_over == TakeOver::no) {
      await_end_of_owner(locked, times);
    } else if (locked || life_of(owner) != Life::ended) {
      log::warning("run directory '", dir.string(), "': taken over from ",
                   owner.who.empty() ? "another run" : owner.who,
                   "; if that run lives, it ends at its next checkpoint");
    }
    errno = ENOSPC;  // of a write that ends early
    const bool written = ::pwrite(fd_, text_.data(), text_.size(), 0) == static_cast<ssize_t>(text_.size()) &&
                         ::ftruncate(fd_, static_cast<off_t>(text_.size())) == 0 &&
                         (!waits_for_disk || ::fsync(fd_) == 0);
    require(written, "writing '", file_.string(), "': ", std::strerror(errno));
  } catch (...) {
    ::close(fd_);
    throw;
  }
  thread_ = helper_thread([this, every_s = times.renew_s](const std::stop_token& stop) { renew(stop, every_s); });
}

RunOwner::~RunOwner() {
  thread_ = {};  // ends it
  // Without its text the file has no owner: the next start need not find out whether this process lives.
  [[maybe_unused]] const int failed = successor().empty() ? ::ftruncate(fd_, 0) : 0;
  ::close(fd_);
}

void RunOwner::await_end_of_owner(bool locked, const Times& times) const {
  constexpr double kStart_s = 2;  // from a process's lock to its text, or from the end of its launcher to its own
  const Snapshot first = read_owner(file_);
  const auto refuse = [&](const Snapshot& owner) {
    throw Error(Fault::usage, join("run directory '", dir_.string(), "' is in use by another run",
                                   owner.who.empty() ? "" : " (" + owner.who + ")",
                                   "; wait for it, stop it, or choose another --run-dir; --take-over takes the "
                                   "directory from it"));
  };
  if (was_requeued(first)) return;
  const Life life = life_of(first);
  if (life == Life::ended && !locked) return;
  // A lock whose file time is not renewed belongs to an older program, unless its holder is about to write its text.
  const bool renewed = life == Life::unknown && !first.identity.empty();
  if (life != Life::alive && !renewed && !locked) return;
  // The time of a file that a clock ahead of this one has set lies in the future.
  const double wait_s = renewed ? times.stale_s - std::max(0.0, age_s(first.changed, dir_)) : kStart_s;
  if (wait_s > kStart_s)
    log::info("run directory '", dir_.string(), "': waiting up to ", human_seconds(wait_s),
              " to find out whether its last owner is still running (", first.who, ")");
  const Stopwatch watch;
  while (watch.seconds() < wait_s) {
    require_no_stop_request("opening the run directory");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Snapshot now = read_owner(file_);
    if (life_of(now) == Life::ended && (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) return;
    if (life == Life::alive ? now.identity != first.identity : now != first) refuse(now);
  }
  if (!renewed) refuse(first);
  if (locked)
    log::warning("run directory '", dir_.string(), "' is still locked by ", first.who,
                 ", which has not touched it for ", human_seconds(times.stale_s), "; this run takes over");
}

void RunOwner::renew(const std::stop_token& stop, double every_s) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait_for(lock, stop, std::chrono::duration<double>(every_s), [] { return false; });
    if (stop.stop_requested()) return;
    if (!successor().empty()) continue;
    ::futimens(fd_, nullptr);
    ::flock(fd_, LOCK_EX | LOCK_NB);  // after a take-over the former owner may hold it for a while
  }
}

std::string RunOwner::successor() const {
  const Snapshot now = read_owner(file_);
  return now.who + "\n" + now.identity + "\n" == text_ ? "" : now.who;
}

}  // namespace lockstep
