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
#include "lockstep/train/run_log.hpp"
#include "train/append_file.hpp"
#include "train/tensorboard.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// Two jobs in one run directory would ruin each other's files. The lock ends with the process, however that ends.
void lock_directory(const fs::path& dir) {
  static std::map<std::string, int> held;
  const std::string name = fs::canonical(dir).string();
  if (held.count(name) != 0) return;
  const fs::path file = dir / ".lock";
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require_usage(fd >= 0, "run directory '", dir.string(), "': cannot write into it: ", std::strerror(errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string owner = read_if_there(file);
    ::close(fd);
    throw Error(Fault::usage,
                join("run directory '", dir.string(), "' is in use by another run",
                     owner.empty() ? "" : " (" + owner + ")", "; wait for it, stop it, or choose another --run-dir"));
  }
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const std::string who = join("process ", ::getpid(), " on ", host);
  // Only a note for people: a file system without locks or space does not stop the run here.
  if (::ftruncate(fd, 0) == 0 && ::write(fd, who.data(), who.size()) < 0) log::debug("cannot write ", file.string());
  held.emplace(name, fd);
}

/// What a run makes in its directory; nothing else is ever touched.
std::vector<fs::path> outputs_of_a_run(const fs::path& dir) {
  std::vector<fs::path> found;
  for (const char* name : {"config.ini", "train.log", "val.log", "metrics.jsonl", "report.html", "checkpoints"})
    if (fs::exists(dir / name)) found.push_back(dir / name);
  for (const auto& entry : fs::directory_iterator(dir))
    if (is_event_file(entry.path())) found.push_back(entry.path());
  return found;
}

/// A start that failed before its first record (a wrong path, a missing file) leaves a config.ini that binds nobody.
bool holds_a_run(const fs::path& dir) {
  const fs::path metrics = dir / "metrics.jsonl", checkpoints = dir / "checkpoints";
  return (fs::exists(metrics) && fs::file_size(metrics) > 0) || (fs::exists(checkpoints) && !fs::is_empty(checkpoints));
}

void move_aside(const fs::path& dir) {
  const auto files = outputs_of_a_run(dir);
  if (files.empty()) return;
  int number = 1;
  while (fs::exists(dir / join("previous-", number))) ++number;
  const fs::path place = dir / join("previous-", number);
  std::error_code failed;
  fs::create_directory(place, failed);
  for (const auto& file : files)
    if (!failed) fs::rename(file, place / file.filename(), failed);
  require(!failed, "moving the former run in '", dir.string(), "' to '", place.string(), "': ", failed.message());
  log::info("the former run in ", dir.string(), " is now in ", place.string());
}

}  // namespace

void open_run_directory(const fs::path& dir, const Options& options, RunStart start) {
  std::error_code failed;
  fs::create_directories(dir, failed);
  require_usage(!failed && fs::is_directory(dir), "run directory '", dir.string(),
                "' cannot be made: ", failed ? failed.message() : "something else has this name");
  require_usage(::access(dir.c_str(), W_OK | X_OK) == 0, "run directory '", dir.string(),
                "': cannot write into it: ", std::strerror(errno));
  lock_directory(dir);
  if (start == RunStart::fresh) move_aside(dir);

  const fs::path file = dir / "config.ini";
  if (fs::exists(file) && holds_a_run(dir)) {
    std::vector<std::string> differing;
    try {
      differing = options.differences(read_if_there(file), file.string());
    } catch (const Error& e) {
      throw Error(
          Fault::data,
          join(e.what(), "; the run directory's configuration is damaged: mend it, or choose another --run-dir"));
    }
    std::string list;
    for (const auto& key : differing) list += "\n  " + key;
    require_usage(differing.empty(), "run directory '", dir.string(), "' holds a run of another configuration:", list,
                  "\nchoose another --run-dir, or --resume never to begin again (the old run moves to ", dir.string(),
                  "/previous-N)");
  }
  remove_stale_temporaries(dir);
  write_text_atomically(file, options.ini());
}

}  // namespace lockstep
