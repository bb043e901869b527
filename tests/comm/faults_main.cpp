// Starts fault_program under mpirun. Failing jobs must end soon, with the right message, and leave no process behind.

#include "support/job.hpp"
#include "support/test.hpp"

using lockstep::join;

namespace {
enum class Ranks { processes, threads };

/// words  before mpirun, such as env NAME=VALUE
Job run(int ranks, const std::string& fault, int guilty, Ranks kind = Ranks::processes,
        const std::string& program = program_path("fault_program"), const Words& words = {}) {
  const bool threads = kind == Ranks::threads;
  const std::string number = std::to_string(ranks);
  Job job = run_job(words + (threads ? Words{} : mpirun_command() + Words{"-n", number}) +
                    words_of(join(program, " ", fault, " ", guilty, threads ? " " + number : "")));
  MESSAGE(fault, " by rank ", guilty, " of ", ranks, ": ended after ", job.seconds, " s with ", job.code);
  return job;
}
}  // namespace

TEST_SUITE("comm.faults") {
  TEST_CASE("a stopped rank is named with host, step and collective, and the job ends") {
    const Job o = run(3, "stop", 1);
    o.check_ended(1);
    o.check_says_once("no progress for", "STOPPED");
    o.check_says("2 of 3 ranks wait in collective", "all_reduce sum of 100 f32 'gradient' of train, step 5", "rank 1 (",
                 "is stopped by a signal");
    o.check_lacks("the job is done");
  }

  TEST_CASE("a stopped rank 0 is also named") {
    const Job o = run(2, "stop", 0);
    o.check_ended(1);
    o.check_says_once("no progress for", "STOPPED");
    o.check_says("1 of 2 ranks wait", "rank 0 (");
  }

  TEST_CASE("a rank busy elsewhere is named with its phase") {
    const Job o = run(2, "late", 1);
    o.check_ended(1);
    o.check_says_once("no progress for");
    o.check_says("is late: it has been in train, step 5, for", "has not reached #");
  }

  TEST_CASE("a killed rank ends the job") {
    const Job o = run(3, "kill", 2);
    o.check_failed();
    // Either mpirun or the watchdog reports it.
    CAPTURE(o.output);
    CHECK((contains(o.output, "signal 9") || contains(o.output, "rank 2 has died")));
    o.check_lacks("the job is done");
  }

  TEST_CASE("a rank that exits without a message ends the job") {
    const Job o = run(2, "exit", 1);
    o.check_failed();
    o.check_lacks("the job is done");
  }

  TEST_CASE("a rank that returns early is named with its own collective") {
    const Job o = run(3, "leave", 2);
    o.check_ended(1);
    o.check_says("rank 2 (", "calls barrier", "calls all_reduce sum of 100 f32");
  }

  TEST_CASE("a rank that skips a collective is named when it reaches the end") {
    const Job o = run(2, "skip", 1);
    o.check_ended(1);
    o.check_says("rank 1 (", "calls barrier", "calls all_reduce sum of 100 f32");
  }

  TEST_CASE("in debug mode a rank that skips a collective is named at once, with both steps") {
    const Job o = run(2, "skip-checked", 1);
    o.check_ended(1);
    o.check_says_once("the ranks' collectives do not match");
    o.check_says("all_reduce sum of 100 f32 'gradient' in step 5", "all_reduce sum of 100 f32 'gradient' in step 6");
  }

  TEST_CASE("a different count is an error that names both ranks, with and without debug mode") {
    for (const char* fault : {"count", "count-checked"}) {
      CAPTURE(fault);
      const Job o = run(3, fault, 1);
      o.check_ended(1);
      o.check_says_once("error [");
      o.check_says("'gradient'", "100", "101", "rank 1 (");
    }
  }

  TEST_CASE("an error on one rank ends the job with its message and exit code") {
    const Job o = run(3, "throw", 1);
    o.check_ended(3);
    o.check_says_once("reading 'x.h5': checksum does not match");
    o.check_says("error [rank 1/3");
  }

  TEST_CASE("a rank that has said why it aborts is not called dead as well") {
    const Job o = run(3, "throw-and-die", 1);
    o.check_failed();
    o.check_says_once("error [");
    o.check_says("reading 'x.h5': checksum does not match");
    o.check_lacks("has died");
  }

  TEST_CASE("the same error on all ranks is printed once") {
    const Job o = run(3, "all-throw", 0);
    o.check_ended(1);
    o.check_says_once("the loss is not finite");
  }

  TEST_CASE("a rank that never starts, or never ends, is not waited for without end") {
    const Job start =
        run(2, "slow-start", 1, Ranks::processes, program_path("fault_program"), {"env", "LOCKSTEP_START_TIMEOUT=3"});
    start.check_ended(1);
    start.check_says("error [rank 0, ", "MPI_Init_thread has not returned for 3.0s");
    start.check_lacks("the job is done");
    const Job end = run(2, "slow-end", 1);
    end.check_ended(1);
    end.check_says("MPI_Finalize has not returned for 5.0s", "the job is done");
  }

  TEST_CASE("too little shared memory is said once, with what is free, at the start and later" *
            doctest::test_suite("comm.faults.shared_memory")) {
    // A /dev/shm of its own, if this user may mount one.
    const auto with_shm = [&](const std::string& size) -> std::vector<std::string> {
      // MPI keeps its own files elsewhere.
      const std::string mount = "mount -t tmpfs -o size=" + size + " none /dev/shm",
                        own = "TMPDIR=/tmp OMPI_MCA_btl_vader_backing_directory=/tmp UCX_POSIX_DIR=/tmp";
      return {"unshare", "-m", "sh", "-c", mount + " && exec env " + own + " \"$@\"", "sh"};
    };
    std::vector<std::string> trial = with_shm("1m");
    trial.emplace_back("true");
    if (run_process(trial).exit_code != 0) {
      skip("this user cannot mount a small /dev/shm");
      return;
    }
    for (const auto& [fault, size, asked] :
         {std::tuple("none", "4m", "sharing "), std::tuple("share", "40m", "sharing 60.0 MiB")}) {
      const Job o = run(3, fault, 1, Ranks::processes, program_path("fault_program"), with_shm(size));
      CAPTURE(fault);
      o.check_ended(1);
      o.check_says_once("sharing ");
      o.check_says(asked, "between the ranks of ", "No space left on device; /dev/shm has ");
    }
  }

  TEST_CASE("an error that all ranks throw is printed once and sets the exit code") {
    const Job o = run(3, "together", 2);
    o.check_ended(3);
    o.check_says_once("opening 'y.h5': no such file");
  }

#ifdef LOCKSTEP_TEST_STAND_IN
  TEST_CASE("a rank that skips a sum between GPUs aborts NCCL; the message names rank, host, step and sum") {
    for (const int guilty : {0, 1}) {
      const Job o = run(2, "gpu-late", guilty, Ranks::processes, program_folder() + "/../cuda-host/bin/fault_program");
      o.check_ended(1);
      o.check_says(join("error [rank ", 1 - guilty, "/2, "),
                   "NCCL, step 5, gradient bucket 1 (collective 2 of 2): no answer from the other ranks in 1 s");
      o.check_lacks("the job is done");
    }
  }
#endif

  TEST_CASE("a suspended job continues, even after a pause longer than the deadline") {
    const Job o = run(3, "suspend", 1);
    o.check_ended(0);
    o.check_says("the job is done");
    CHECK(o.seconds > 3);
  }

  TEST_CASE("one rank warns of a long wait before the deadline, and says when it ends") {
    for (const int guilty : {0, 1}) {
      const Job o = run(3, "pause", guilty);
      o.check_ended(0);
      const int speaker = guilty == 0 ? 1 : 0;
      o.check_says_once("no step for ", "the job goes on after ");
      o.check_says(join("warning [rank ", speaker, "/3, "),
                   "and the job still waits: 2 of 3 ranks wait in collective #",
                   "all_reduce sum of 100 f32 'gradient' of train, step 5", join("rank ", guilty, " ("),
                   "is late: it has been in train, step 5, for ", "the job is done");
    }
  }

  TEST_CASE("waits shorter than the deadline never end the job") {
    const Job o = run(2, "started", 1);
    o.check_ended(0);
    o.check_says("the job is done");
    CHECK(o.seconds > 4);
  }

  TEST_CASE("threads as ranks: one failing rank ends the process with its message and exit code") {
    const Job o = run(3, "throw", 1, Ranks::threads);
    o.check_ended(3);
    o.check_says_once("error");
    o.check_says("error [rank 1/3, ", "reading 'x.h5': checksum does not match");
    o.check_lacks("the job is done");
  }

  TEST_CASE("threads as ranks: if all fail, or one inside together(), one message is printed") {
    for (const char* fault : {"all-throw", "together"}) {
      const Job o = run(3, fault, 2, Ranks::threads);
      o.check_ended(std::string(fault) == "together" ? 3 : 1);
      o.check_says_once("error");
    }
  }

  TEST_CASE("threads as ranks: a rank that is late or has returned is named after the deadline") {
    for (const char* fault : {"late", "leave"}) {
      const Job o = run(3, fault, 1, Ranks::threads);
      o.check_ended(1);
      o.check_says_once("no progress for");
      o.check_says("2 of 3 ranks wait in collective", "all_reduce sum of 100 f32 'gradient' of train, step 5",
                   "rank 1 (");
      o.check_lacks("the job is done");
    }
  }

  TEST_CASE("threads as ranks: a different count is found without debug mode, and a suspended process continues") {
    const Job o = run(2, "count", 1, Ranks::threads);
    o.check_ended(1);
    o.check_says_once("the ranks' collectives do not match");
    o.check_says("all_reduce sum of 101 f32 'gradient'");
    const Job suspended = run(2, "suspend", 0, Ranks::threads);
    suspended.check_ended(0);
    suspended.check_says("the job is done");
  }
}
