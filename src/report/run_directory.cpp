#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/run_log.hpp"
#include "report/append_file.hpp"
#include "report/tensorboard.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// Locks the run directory, so that no two jobs write to it. The lock ends with the process. Returns whether the file system
/// has locks.
bool lock_directory(const fs::path& dir) {
  static std::map<std::string, int> held;
  const std::string name = fs::canonical(dir).string();
  if (held.count(name) != 0) return true;
  const fs::path file = dir / ".lock";
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require_usage(fd >= 0, "run directory '", dir.string(), "': cannot write into it: ", std::strerror(errno));
  const int refused = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  const std::string owner = refused == 0 ? "" : read_if_there(file);
  if (refused == EWOULDBLOCK) {
    ::close(fd);
    throw Error(Fault::usage,
                join("run directory '", dir.string(), "' is in use by another run",
                     owner.empty() ? "" : " (" + owner + ")", "; wait for it, stop it, or choose another --run-dir"));
  }
  if (refused != 0)
    log::warning("run directory '", dir.string(), "': its file system has no locks (", std::strerror(refused),
                 "), so another run in it would not be noticed", owner.empty() ? "" : "; the last one was of " + owner);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const std::string who = join("process ", ::getpid(), " on ", host);
  // The text only informs people: a failed write must not stop the run.
  if (::ftruncate(fd, 0) == 0 && ::write(fd, who.data(), who.size()) < 0) log::debug("cannot write ", file.string());
  held.emplace(name, fd);
  return refused == 0;
}

/// The files of a run in its directory. Other files are never moved.
std::vector<fs::path> outputs_of_a_run(const fs::path& dir) {
  std::vector<fs::path> found;
  for (const char* name : {"config.ini", "train.log", "val.log", "metrics.jsonl", "report.html", "checkpoints", kPretrainingFolder})
    if (fs::exists(dir / name)) found.push_back(dir / name);
  for (const auto& entry : fs::directory_iterator(dir))
    if (is_event_file(entry.path())) found.push_back(entry.path());
  return found;
}

/// Whether the directory holds a run. A start that ended before its first record leaves a config.ini, which may change.
bool holds_a_run(const fs::path& dir) {
  const fs::path metrics = dir / "metrics.jsonl", checkpoints = dir / "checkpoints";
  return (fs::exists(metrics) && fs::file_size(metrics) > 0) || (fs::exists(checkpoints) && !fs::is_empty(checkpoints));
}

void move_aside(const fs::path& dir) {
  const auto files = outputs_of_a_run(dir);
  if (files.empty()) return;
  const fs::path place = next_previous(dir);
  std::error_code failed;
  fs::create_directory(place, failed);
  for (const auto& file : files)
    if (!failed) fs::rename(file, place / file.filename(), failed);
  require(!failed, "moving the previous run in '", dir.string(), "' to '", place.string(), "': ", failed.message());
  log::info("moved the previous run in ", dir.string(), " to ", place.string());
}

}  // namespace

fs::path next_previous(const fs::path& dir) {
  int number = 1;
  while (fs::exists(dir / join("previous-", number))) ++number;
  return dir / join("previous-", number);
}

void open_run_directory(const fs::path& dir, const Options& options, RunStart start) {
  std::error_code failed;
  fs::create_directories(dir, failed);
  require_usage(!failed && fs::is_directory(dir), "run directory '", dir.string(),
                "' cannot be created: ", failed ? failed.message() : "a file has this name");
  // Two statements: the arguments of one call, and so errno, may be evaluated in any order.
  const int problem = ::access(dir.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  require_usage(problem == 0, "run directory '", dir.string(), "': cannot write into it: ", std::strerror(problem));
  const Writers others = lock_directory(dir) ? Writers::none : Writers::any;
  if (start == RunStart::fresh) move_aside(dir);

  const fs::path file = dir / "config.ini";
  if (fs::exists(file) && holds_a_run(dir)) {
    std::vector<std::string> differing;
    try {
      differing = options.differences(read_if_there(file), file.string());
    } catch (const Error& e) {
      throw Error(Fault::data,
                  join(e.what(),
                       "; the configuration of the run directory is damaged: repair it, or choose another --run-dir"));
    }
    std::string list;
    for (const auto& key : differing) list += "\n  " + key;
    require_usage(differing.empty(), "run directory '", dir.string(), "' holds a run of another configuration:", list,
                  "\nchoose another --run-dir, or --resume never to start again (the old run moves to ", dir.string(),
                  "/previous-N)");
  }
  for (const fs::path& place : {dir, dir / "checkpoints"}) remove_stale_temporaries(place, others);
}

}  // namespace lockstep
