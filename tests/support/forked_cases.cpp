#include "support/forked_cases.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

namespace {

/// What parent and child share.
struct Progress {
  std::int64_t at, refused, accepted;
  bool failed;  ///< case `at` has failed; `what` says why
  char what[2000];
};

[[noreturn]] void run_child(Progress& progress, std::int64_t last, const std::function<Ending(std::int64_t)>& run,
                            unsigned seconds, const std::filesystem::path& output) {
  for (const int fault : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(fault, SIG_DFL);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  ::dup2(out, 1);
  ::dup2(out, 2);
  const rlimit core{0, 0};
  setrlimit(RLIMIT_CORE, &core);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those reserve terabytes
  const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30};
  setrlimit(RLIMIT_AS, &memory);
#endif
  for (; progress.at < last; ++progress.at) {
    static_cast<void>(::ftruncate(out, 0));
    ::alarm(seconds);
    try {
      ++(run(progress.at) == Ending::refused ? progress.refused : progress.accepted);
    } catch (const Error&) {
      ++progress.refused;
    } catch (const std::exception& error) {
      std::snprintf(progress.what, sizeof progress.what, "%s", error.what());
      progress.failed = true;
      std::fflush(nullptr);
      ::_exit(0);
    }
  }
  ::_exit(0);
}

std::string describe_end(int status, const std::string& output) {
  std::string text = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "it does not end"
                     : WIFSIGNALED(status) ? std::string("signal ") + strsignal(WTERMSIG(status))
                                           : "exit code " + std::to_string(WEXITSTATUS(status));
  return output.empty() ? text : text + "\n" + output.substr(0, 3000);
}

}  // namespace

CaseOutcomes run_forked(std::int64_t first, std::int64_t last, const std::function<Ending(std::int64_t)>& run,
                        unsigned seconds) {
  const TempDir dir;
  const auto output = dir / "output";
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  require(progress != MAP_FAILED, "allocating the memory that parent and child share");
  progress->at = first;
  CaseOutcomes outcomes;
  while (progress->at < last) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    require(child >= 0, "starting a child process");
    if (child == 0) run_child(*progress, last, run, seconds, output);
    int status = 0;
    require(::waitpid(child, &status, 0) == child, "waiting for a child process");
    if (progress->failed || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      outcomes.failures.push_back(
          {progress->at, progress->failed ? progress->what : describe_end(status, read_text(output))});
      progress->failed = false;
      ++progress->at;
    }
  }
  outcomes.refused = progress->refused;
  outcomes.accepted = progress->accepted;
  munmap(progress, sizeof(Progress));
  return outcomes;
}

}  // namespace lockstep::test
