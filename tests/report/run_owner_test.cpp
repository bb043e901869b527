#include "report/run_owner.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "support/test.hpp"

namespace {
bool no_locks = false;

constexpr RunOwner::Times kTimes{.renew_s = 0.05, .stale_s = 0.5};

/// A process that owns the directory until it is killed, or until another run takes the directory over.
class OtherRun {
 public:
  OtherRun() {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      alarm(60);
      const RunOwner owner(".", TakeOver::no, kTimes);
      (void)!::write(ready[1], "x", 1);
      while (owner.successor().empty()) ::usleep(10000);
      _exit(7);
    }
    char byte = 0;
    CHECK(::read(ready[0], &byte, 1) == 1);
    for (const int fd : ready) ::close(fd);
  }
  OtherRun(const OtherRun&) = delete;
  OtherRun& operator=(const OtherRun&) = delete;
  ~OtherRun() { kill(); }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int exit_code() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

std::string refusal() {
  return error_of(Fault::usage, [&] { RunOwner(".", TakeOver::no, {.renew_s = 0.05, .stale_s = 30}); });
}

/// The file of a run on another host.
void write_foreign_owner() {
  write_text(".lock", "process 12 on far, job 77, since 2026-01-02 03:04:05\n12 345 another-host\n");
}
void set_age(const fs::path& file, long seconds) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}
}  // namespace

/// Replaces the system's function: a file system without locks.
extern "C" int flock(int fd, int operation) {
  if (!no_locks) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = ENOLCK;
  return -1;
}

TEST_SUITE("report.run_owner") {
  TEST_CASE("a living run keeps others out, with and without locks, and a killed one does not") {
    for (const bool without : {false, true}) {
      no_locks = without;
      CAPTURE(without);
      fs::remove(".lock");
      OtherRun other;
      const std::string message = refusal();
      check_mentions(message, join("in use by another run (process ", other.pid(), " on "), ", since 20",
                     "--take-over");
      std::thread launcher([&] {  // its death comes before that of its rank
        ::usleep(300000);
        other.kill();
      });
      CHECK(refusal() == "no error");
      launcher.join();
      CHECK(refusal() == "no error");  // after a clean end
      no_locks = false;
    }
  }

  TEST_CASE("a requeued job does not wait for its earlier start on another host") {
    const auto foreign = [&](const char* start) {
      write_text(".lock", join("process 12 on far, job 77\n12 345 another-host", start, "\n"));
      return refusal();
    };
    ::setenv("SLURM_JOB_ID", "77", 1);
    ::setenv("SLURM_RESTART_COUNT", "1", 1);
    CHECK(foreign(" 77 0") == "no error");
    // Another process of the same start may live.
    std::thread alive([&] {
      ::usleep(300000);
      set_age(".lock", 0);
    });
    CHECK(foreign(" 77 1").find("in use by another run") != std::string::npos);
    alive.join();
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
  }

  TEST_CASE("a stopped run counts as alive, because it may continue") {
    OtherRun other;
    ::kill(other.pid(), SIGSTOP);
    CHECK(refusal().find("in use by another run") != std::string::npos);
  }

  TEST_CASE("a run of another host counts as alive while the time of its file changes") {
    write_foreign_owner();
    std::atomic<bool> stop = false;
    std::thread heart([&] {
      for (long i = 0; !stop; ++i) {
        set_age(".lock", i % 2);
        ::usleep(1000);
      }
    });
    const std::string message = refusal();
    stop = true;
    heart.join();
    CHECK(message.find("(process 12 on far, job 77, since 2026-01-02 03:04:05)") != std::string::npos);
  }

  TEST_CASE("a run of another host that shows no sign of life never blocks a start, nor does a damaged file") {
    for (const long age : {0L, 100000L, -1000L}) {  // the last: by a clock ahead of this one
      write_foreign_owner();
      set_age(".lock", age);
      const RunOwner owner(".", TakeOver::no, kTimes);
      CHECK(read_text(".lock").starts_with(join("process ", ::getpid(), " on ")));
    }
    for (const char* text : {"", "process 12 on far", "process 12 on far\n12 zz\n", "\xff\n\xff\n"}) {
      write_text(".lock", text);
      set_age(".lock", 100000);
      CHECK(refusal() == "no error");
    }
  }

  TEST_CASE("a lock that an older program holds is respected, although it renews nothing") {
    write_text(".lock", "process 12 on far");
    set_age(".lock", 100000);
    const int fd = ::open(".lock", O_RDWR);
    REQUIRE(::flock(fd, LOCK_EX) == 0);
    CHECK(refusal().find("in use by another run (process 12 on far)") != std::string::npos);
    ::close(fd);
  }

  TEST_CASE("the lock of a lost host blocks no start: the time of its file no longer changes") {
    write_foreign_owner();
    set_age(".lock", 100000);
    const int fd = ::open(".lock", O_RDWR);
    REQUIRE(::flock(fd, LOCK_EX) == 0);
    CHECK(refusal() == "no error");
    ::close(fd);
  }

  TEST_CASE("a run whose directory is taken over learns by whom, and the taker keeps it") {
    OtherRun other;
    const RunOwner taker(".", TakeOver::yes, kTimes);
    CHECK(other.exit_code() == 7);
    CHECK(taker.successor() == "");
    CHECK(read_text(".lock").starts_with(join("process ", ::getpid(), " on ")));
  }
}
