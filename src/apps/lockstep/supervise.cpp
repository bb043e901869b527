#include "apps/lockstep/supervise.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/base/exit_codes.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/report/run_folders.hpp"
#include "lockstep/train/signals.hpp"

namespace lockstep::apps {

namespace {
namespace fs = std::filesystem;

Args command_of(const Args& args, const std::string& launcher) {
  Args command;
  std::istringstream words(launcher);
  for (std::string word; words >> word;) command.push_back(word);
  command.insert(command.end(), {fs::read_symlink("/proc/self/exe").string(), "train"});
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string name = args[i].substr(0, args[i].find('='));
    if (name != "--restarts" && name != "--launcher")
      command.push_back(args[i]);
    else if (name == args[i])
      ++i;  // its value
  }
  return command;
}

/// The time of the last checkpoint of a run, or of its nested runs.
fs::file_time_type last_checkpoint(const fs::path& run_dir) {
  auto last = fs::file_time_type::min();
  std::vector<fs::path> runs = nested_runs(run_dir);
  runs.push_back(run_dir);
  for (const fs::path& run : runs)
    for (const fs::path& file : CheckpointFolder(run).candidates()) last = std::max(last, fs::last_write_time(file));
  return last;
}

/// Runs the command. Returns its exit code, or 128 + the signal that killed it.
int run_command(const Args& command, const StopSignals& signals) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  require(child >= 0, "starting ", command[0], ": ", std::strerror(errno));
  if (child == 0) {
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  for (int status = 0, told = 0;;) {
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    // USR1 for all: mpirun passes it on, but after SIGTERM it kills the ranks a second later.
    if (signals.received() != 0 && told++ == 0) ::kill(child, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
}  // namespace

int supervise(const Args& args, std::int64_t restarts, const std::string& launcher, const fs::path& run_dir) {
  const StopSignals signals;
  const Args command = command_of(args, launcher);
  for (std::int64_t start = 0;; ++start) {
    const auto before = last_checkpoint(run_dir);
    const int code = run_command(command, signals);
    require_usage(code != 127, "option launcher = ", launcher, ": ", command[0], " cannot be started");
    const bool fault = code != kExitDone && code != 2 && code != 3 && code != kExitInterrupted;
    // A launcher that has only just started does not pass the signal on: it dies of it.
    if (signals.received() != 0 && code == 128 + SIGUSR1) return kExitInterrupted;
    if (!fault || signals.received() != 0) return code;
    const bool progress = last_checkpoint(run_dir) > before;
    if (start == restarts || !progress) {
      log::error("training ended with code ", code, progress ? "" : ", without a new checkpoint", ", after ", start,
                 " of ", restarts, " restarts (--restarts)");
      return code;
    }
    log::warning("training ended with code ", code, " after a new checkpoint: restart ", start + 1, " of ", restarts);
  }
}

}  // namespace lockstep::apps
