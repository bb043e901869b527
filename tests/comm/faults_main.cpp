// Starts fault_program under mpirun. Failing jobs must end soon, with the right message, and leave no process behind.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>

#include "doctest/doctest.h"
#include "lockstep/base/error.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "support/process.hpp"

using lockstep::join;

namespace {
constexpr double kBound_s = 40;  // deadline 1 s, mpirun about 1 s, the rest for a busy machine

struct Outcome {
  std::string output;
  int code = -1;
  double seconds = 0;
  std::size_t left_behind = 0;
  /// Checks that the job ended in time with this exit code and left no process behind.
  void check_ended(int expected) const {
    CHECK(seconds < kBound_s);
    CHECK(code == expected);
    CHECK(left_behind == 0);
  }
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
  std::size_t count(const std::string& text) const {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = output.find(text, at)) != std::string::npos; at += text.size()) ++found;
    return found;
  }
};

enum class Ranks { processes, threads };

Outcome run(int ranks, const std::string& fault, int guilty, Ranks kind = Ranks::processes,
            const char* program = LOCKSTEP_TEST_PROGRAM, const std::string& before = "") {
  static int number = 0;
  const std::string mark = join("LOCKSTEP_FAULT_TEST=", getpid(), "-", number++);
  Outcome outcome;
  const lockstep::Stopwatch watch;
  const bool threads = kind == Ranks::threads;
  const std::string launcher = threads ? "" : join(LOCKSTEP_TEST_MPIRUN, " -n ", ranks, " ");
  const std::string command = join("env ", mark, " ", before, " timeout -s KILL 60 ", launcher, program, " ", fault,
                                   " ", guilty, threads ? join(" ", ranks) : "", " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const std::size_t size = fread(buffer, 1, sizeof buffer, pipe)) outcome.output.append(buffer, size);
  const int status = pclose(pipe);
  outcome.seconds = watch.seconds();
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.left_behind = lockstep::test::left_behind(mark);
  MESSAGE(fault, " by rank ", guilty, " of ", ranks, ": ended after ", outcome.seconds, " s with ", outcome.code);
  return outcome;
}
}  // namespace

TEST_SUITE("comm.faults") {
  TEST_CASE("a stopped rank is named with host, step and collective, and the job ends") {
    const Outcome o = run(3, "stop", 1);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.count("no progress for") == 1);
    CHECK(o.says("2 of 3 ranks wait in collective"));
    CHECK(o.says("all_reduce sum of 100 f32 'gradient' of train, step 5"));
    CHECK(o.says("rank 1 ("));
    CHECK(o.says("is stopped by a signal"));
    CHECK(o.count("STOPPED") == 1);
    CHECK_FALSE(o.says("the job is done"));
  }

  TEST_CASE("a stopped rank 0 is also named") {
    const Outcome o = run(2, "stop", 0);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.count("no progress for") == 1);
    CHECK(o.says("1 of 2 ranks wait"));
    CHECK(o.says("rank 0 ("));
    CHECK(o.count("STOPPED") == 1);
  }

  TEST_CASE("a rank busy elsewhere is named with its phase") {
    const Outcome o = run(2, "late", 1);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.count("no progress for") == 1);
    CHECK(o.says("is late: it has been in train, step 5, for"));
    CHECK(o.says("has not reached #"));
  }

  TEST_CASE("a killed rank ends the job") {
    const Outcome o = run(3, "kill", 2);
    CAPTURE(o.output);
    CHECK(o.seconds < kBound_s);
    CHECK(o.code != 0);
    CHECK(o.left_behind == 0);
    // Either mpirun or the watchdog reports it.
    CHECK((o.says("signal 9") || o.says("rank 2 has died")));
    CHECK_FALSE(o.says("the job is done"));
  }

  TEST_CASE("a rank that exits without a message ends the job") {
    const Outcome o = run(2, "exit", 1);
    CAPTURE(o.output);
    CHECK(o.seconds < kBound_s);
    CHECK(o.code != 0);
    CHECK(o.left_behind == 0);
    CHECK_FALSE(o.says("the job is done"));
  }

  TEST_CASE("a rank that returns early is named with its own collective") {
    const Outcome o = run(3, "leave", 2);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.says("rank 2 ("));
    CHECK(o.says("calls barrier"));
    CHECK(o.says("calls all_reduce sum of 100 f32"));
  }

  TEST_CASE("a rank that skips a collective is named when it reaches the end") {
    const Outcome o = run(2, "skip", 1);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.says("rank 1 ("));
    CHECK(o.says("calls barrier"));
    CHECK(o.says("calls all_reduce sum of 100 f32"));
  }

  TEST_CASE("in debug mode a rank that skips a collective is named at once, with both steps") {
    const Outcome o = run(2, "skip-checked", 1);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.count("the ranks' collectives do not match") == 1);
    CHECK(o.says("all_reduce sum of 100 f32 'gradient' in step 5"));
    CHECK(o.says("all_reduce sum of 100 f32 'gradient' in step 6"));
  }

  TEST_CASE("a different count is an error that names both ranks, with and without debug mode") {
    for (const char* fault : {"count", "count-checked"}) {
      const Outcome o = run(3, fault, 1);
      CAPTURE(fault);
      CAPTURE(o.output);
      o.check_ended(1);
      CHECK(o.count("error [") == 1);
      CHECK(o.says("'gradient'"));
      CHECK(o.says("100"));
      CHECK(o.says("101"));
      CHECK(o.says("rank 1 ("));
    }
  }

  TEST_CASE("an error on one rank ends the job with its message and exit code") {
    const Outcome o = run(3, "throw", 1);
    CAPTURE(o.output);
    o.check_ended(3);
    CHECK(o.count("reading 'x.h5': checksum does not match") == 1);
    CHECK(o.says("error [rank 1/3"));
  }

  TEST_CASE("a rank that has said why it aborts is not called dead as well") {
    const Outcome o = run(3, "throw-and-die", 1);
    CAPTURE(o.output);
    CHECK(o.code != 0);
    CHECK(o.left_behind == 0);
    CHECK(o.count("error [") == 1);
    CHECK(o.says("reading 'x.h5': checksum does not match"));
    CHECK_FALSE(o.says("has died"));
  }

  TEST_CASE("the same error on all ranks is printed once") {
    const Outcome o = run(3, "all-throw", 0);
    CAPTURE(o.output);
    o.check_ended(1);
    CHECK(o.count("the loss is not finite") == 1);
  }

  TEST_CASE("a rank that never starts, or never ends, is not waited for without end") {
    for (const char* fault : {"slow-start", "slow-end"}) {
      const Outcome o = run(2, fault, 1, Ranks::processes, LOCKSTEP_TEST_PROGRAM, "LOCKSTEP_START_TIMEOUT=3");
      CAPTURE(fault);
      CAPTURE(o.output);
      o.check_ended(1);
      const bool start = std::string(fault) == "slow-start";
      CHECK(o.says(start ? "error [rank 0, " : "MPI_Finalize has not returned for 5.0s"));
      if (start) CHECK(o.says("MPI_Init_thread has not returned for 3.0s"));
      CHECK(o.says("the job is done") != start);
    }
  }

  TEST_CASE("too little shared memory is said once, with what is free, at the start and later") {
    // A /dev/shm of its own, if this user may mount one.
    const std::string small = "unshare -m sh -c 'mount -t tmpfs -o size=SIZE none /dev/shm && exec \"$@\"' sh ";
    const auto with_shm = [&](const char* size) { return std::string(small).replace(small.find("SIZE"), 4, size); };
    if (std::system((with_shm("1m") + "true 2>/dev/null").c_str()) != 0) {
      MESSAGE("skipped: this user cannot mount a small /dev/shm");
      return;
    }
    // MPI keeps its own files elsewhere.
    const std::string own = "TMPDIR=/tmp OMPI_MCA_btl_vader_backing_directory=/tmp UCX_POSIX_DIR=/tmp ";
    for (const auto& [fault, size, asked] :
         {std::tuple("none", "4m", "sharing "), std::tuple("share", "40m", "sharing 60.0 MiB")}) {
      const Outcome o = run(3, fault, 1, Ranks::processes, LOCKSTEP_TEST_PROGRAM, own + with_shm(size));
      CAPTURE(fault);
      CAPTURE(o.output);
      o.check_ended(1);
      CHECK(o.count("sharing ") == 1);
      CHECK(o.says(asked));
      CHECK(o.says("between the ranks of "));
      CHECK(o.says("No space left on device; /dev/shm has "));
    }
  }

  TEST_CASE("an error that all ranks throw is printed once and sets the exit code") {
    const Outcome o = run(3, "together", 2);
    CAPTURE(o.output);
    o.check_ended(3);
    CHECK(o.count("opening 'y.h5': no such file") == 1);
  }

#ifdef LOCKSTEP_TEST_GPU_PROGRAM
  TEST_CASE("a rank that skips a sum between GPUs aborts NCCL; the message names rank, host, step and sum") {
    for (const int guilty : {0, 1}) {
      const Outcome o = run(2, "gpu-late", guilty, Ranks::processes, LOCKSTEP_TEST_GPU_PROGRAM);
      CAPTURE(o.output);
      o.check_ended(1);
      CHECK(o.says(join("error [rank ", 1 - guilty, "/2, ")));
      CHECK(o.says("NCCL, step 5, gradient bucket 1 (collective 2 of 2): no answer from the other ranks in 1 s"));
      CHECK_FALSE(o.says("the job is done"));
    }
  }
#endif

  TEST_CASE("a suspended job continues, even after a pause longer than the deadline") {
    const Outcome o = run(3, "suspend", 1);
    CAPTURE(o.output);
    CHECK(o.code == 0);
    CHECK(o.says("the job is done"));
    CHECK(o.seconds > 3);
  }

  TEST_CASE("waits shorter than the deadline never end the job") {
    const Outcome o = run(2, "started", 1);
    CAPTURE(o.output);
    CHECK(o.code == 0);
    CHECK(o.says("the job is done"));
    CHECK(o.seconds > 4);
  }

  TEST_CASE("threads as ranks: one failing rank ends the process with its message and exit code") {
    const Outcome o = run(3, "throw", 1, Ranks::threads);
    CAPTURE(o.output);
    o.check_ended(3);
    CHECK(o.count("error") == 1);
    CHECK(o.says("error [rank 1/3, "));
    CHECK(o.says("reading 'x.h5': checksum does not match"));
    CHECK_FALSE(o.says("the job is done"));
  }

  TEST_CASE("threads as ranks: if all fail, or one inside together(), one message is printed") {
    for (const char* fault : {"all-throw", "together"}) {
      const Outcome o = run(3, fault, 2, Ranks::threads);
      CAPTURE(o.output);
      o.check_ended(std::string(fault) == "together" ? 3 : 1);
      CHECK(o.count("error") == 1);
    }
  }

  TEST_CASE("threads as ranks: a rank that is late or has returned is named after the deadline") {
    for (const char* fault : {"late", "leave"}) {
      const Outcome o = run(3, fault, 1, Ranks::threads);
      CAPTURE(o.output);
      o.check_ended(1);
      CHECK(o.count("no progress for") == 1);
      CHECK(o.says("2 of 3 ranks wait in collective"));
      CHECK(o.says("all_reduce sum of 100 f32 'gradient' of train, step 5"));
      CHECK(o.says("rank 1 ("));
      CHECK_FALSE(o.says("the job is done"));
    }
  }

  TEST_CASE("threads as ranks: a different count is found without debug mode, and a suspended process continues") {
    const Outcome o = run(2, "count", 1, Ranks::threads);
    CAPTURE(o.output);
    CHECK(o.code == 1);
    CHECK(o.count("the ranks' collectives do not match") == 1);
    CHECK(o.says("all_reduce sum of 101 f32 'gradient'"));
    const Outcome suspended = run(2, "suspend", 0, Ranks::threads);
    CAPTURE(suspended.output);
    CHECK(suspended.code == 0);
    CHECK(suspended.says("the job is done"));
  }
}
