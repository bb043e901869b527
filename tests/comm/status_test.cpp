#include "comm/status.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/launch.hpp"
#include "support/test.hpp"

TEST_SUITE("comm.status") {
  struct Pair {
    std::int64_t a, b, c, d;
  };

  TEST_CASE("readers see the previous value if a writer stops or dies within a change") {
    struct Halves : SharedValue<Pair> {
      using SharedValue::fill;
      using SharedValue::publish;
    };
    Halves shared{};
    CHECK(shared.load().d == 0);
    for (std::int64_t i = 1; i < 4; ++i) {  // either copy
      const std::uint64_t filled = shared.fill({i, 2 * i, 3 * i, 4 * i});
      CHECK(shared.load().a == i - 1);
      CHECK(shared.load().d == 4 * (i - 1));
      shared.publish(filled);
      CHECK(shared.load().a == i);
      CHECK(shared.load().d == 4 * i);
    }
    shared.fill({7, 7, 7, 7});  // given up, and begun again by the next change
    shared.store({8, 8, 8, 8});
    CHECK(shared.load().a == 8);
  }

  TEST_CASE("a reader never sees half of a change") {
    SharedValue<Pair> shared{};
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      for (std::int64_t i = 1; !stop; ++i) {
        shared.store({i, 2 * i, 3 * i, 4 * i});
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
    bool whole = true;
    for (int i = 0; i < 100000; ++i) {
      const Pair p = shared.load();
      whole = whole && p.b == 2 * p.a && p.c == 3 * p.a && p.d == 4 * p.a;
    }
    stop = true;
    writer.join();
    CHECK(whole);
  }

  TEST_CASE("a child process is seen running, stopped, and dead while nobody has waited for it") {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    const std::int64_t started = process_started(child);
    CHECK(started > 0);
    CHECK(process_state(child, started) == Process::running);
    kill(child, SIGSTOP);
    int status = 0;
    waitpid(child, &status, WUNTRACED);
    CHECK(process_state(child, started) == Process::stopped);
    CHECK(process_state(child, started + 1) == Process::dead);  // another process with this number
    kill(child, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    CHECK(process_state(child, started) == Process::dead);
    waitpid(child, &status, 0);
    CHECK(process_state(child, started) == Process::dead);
    CHECK(process_state(child, 0) == Process::unknown);
  }

  TEST_CASE("launchers are recognised by their environment, and LOCKSTEP_MPI overrides it") {
    // In a child: the environment belongs to all tests of this program.
    const pid_t child = fork();
    if (child == 0) {
      clearenv();
      bool right = launched_by().empty();
      setenv("PMIX_RANK", "0", 1);
      right = right && launched_by() == "PMIX_RANK";
      unsetenv("PMIX_RANK");
      setenv("SLURM_STEP_NUM_TASKS", "1", 1);
      right = right && launched_by().empty();
      setenv("SLURM_STEP_NUM_TASKS", "2", 1);
      right = right && launched_by() == "SLURM_STEP_NUM_TASKS";
      setenv("LOCKSTEP_MPI", "never", 1);
      right = right && launched_by().empty();
      setenv("LOCKSTEP_MPI", "always", 1);
      right = right && launched_by() == "LOCKSTEP_MPI";
      setenv("LOCKSTEP_MPI", "perhaps", 1);
      bool refused = false;
      try {
        launched_by();
      } catch (const Error& problem) {
        refused = problem.fault() == Fault::usage;
      }
      _exit(right && refused ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }

  TEST_CASE("long texts are cut off") {
    Text<8> text{};
    text.set("a gradient bucket");
    CHECK(text.view() == "a gradi");
    text.set("");
    CHECK(text.view().empty());
  }
}
