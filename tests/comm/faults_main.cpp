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

constexpr const char* kSum = "all_reduce sum of 100 f32 'gradient' of train, step 5";

/// A job that ends because of a fault.
struct Failing {
  int ranks;
  std::string fault;
  int guilty, code;  ///< the exit code; -1: any that says that it failed
  Words once, says;  ///< texts of its output
  Ranks kind = Ranks::processes;
};
void check(const std::vector<Failing>& jobs) {
  for (const Failing& j : jobs) {
    const Job o = run(j.ranks, j.fault, j.guilty, j.kind);
    CAPTURE(j.fault);
    j.code < 0 ? o.check_failed() : o.check_ended(j.code);
    for (const std::string& text : j.once) o.check_says_once(text);
    for (const std::string& text : j.says) o.check_says(text);
    o.check_lacks("the job is done");
  }
}
}  // namespace

TEST_SUITE("comm.faults") {
  TEST_CASE("a rank that stops, is late, returns or skips a collective is named with host, step and collective") {
    const Words progress = {"no progress for"}, stopped = {"no progress for", "STOPPED"};
    check({{3, "stop", 1, 1, stopped, {"2 of 3 ranks wait in collective", kSum, "rank 1 (", "is stopped by a signal"}},
           {2, "stop", 0, 1, stopped, {"1 of 2 ranks wait", "rank 0 ("}},
           {2, "late", 1, 1, progress, {"is late: it has been in train, step 5, for", "has not reached #"}},
           {3, "leave", 2, 1, {}, {"rank 2 (", "calls barrier", "calls all_reduce sum of 100 f32"}},
           {2, "skip", 1, 1, {}, {"rank 1 (", "calls barrier", "calls all_reduce sum of 100 f32"}}});
    for (const char* fault : {"late", "leave"})
      check({{3, fault, 1, 1, progress, {"2 of 3 ranks wait in collective", kSum, "rank 1 ("}, Ranks::threads}});
  }

  TEST_CASE("ranks that call different collectives are named at once") {
    const std::string sum = "all_reduce sum of 100 f32 'gradient' in step ";
    const Words mismatch = {"the ranks' collectives do not match"}, counts = {"'gradient'", "100", "101", "rank 1 ("};
    check({{2, "skip-checked", 1, 1, mismatch, {sum + "5", sum + "6"}},
           {3, "count", 1, 1, {"error ["}, counts},
           {3, "count-checked", 1, 1, {"error ["}, counts},
           {2, "count", 1, 1, mismatch, {"all_reduce sum of 101 f32 'gradient'"}, Ranks::threads}});
  }

  TEST_CASE("an error of one rank or of all ends the job with one message and its exit code") {
    const std::string one = "reading 'x.h5': checksum does not match";
    check({{3, "throw", 1, 3, {one}, {"error [rank 1/3"}},
           {3, "all-throw", 0, 1, {"the loss is not finite"}, {}},
           {3, "together", 2, 3, {"opening 'y.h5': no such file"}, {}},
           {2, "exit", 1, -1, {}, {}},
           {3, "throw", 1, 3, {"error"}, {"error [rank 1/3, ", one}, Ranks::threads},
           {3, "all-throw", 2, 1, {"error"}, {}, Ranks::threads},
           {3, "together", 2, 3, {"error"}, {}, Ranks::threads}});
  }

  TEST_CASE("a rank that has said why it aborts is not called dead as well") {
    const Job o = run(3, "throw-and-die", 1);
    o.check_failed();
    o.check_says_once("error [");
    o.check_says("reading 'x.h5': checksum does not match");
    o.check_lacks("has died");
  }

  TEST_CASE("a killed rank ends the job") {
    const Job o = run(3, "kill", 2);
    o.check_failed();
    // Either mpirun or the watchdog reports it.
    CAPTURE(o.output);
    CHECK((contains(o.output, "signal 9") || contains(o.output, "rank 2 has died")));
    o.check_lacks("the job is done");
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
    for (const Ranks kind : {Ranks::processes, Ranks::threads}) {
      const Job o = kind == Ranks::threads ? run(2, "suspend", 0, kind) : run(3, "suspend", 1);
      o.check_ended(0);
      o.check_says("the job is done");
      CHECK(o.seconds > 3);
    }
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
}
