#include "lockstep/io/atomic_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "lockstep/base/process.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/disk_sync.hpp"
#include "lockstep/io/file_system.hpp"

namespace lockstep {

namespace fs = std::filesystem;

namespace {
constexpr std::string_view kMarker = ".tmp.";

fs::path temporary_name(const fs::path& path) {
  fs::path name = path;
  name += std::string(kMarker) + std::to_string(getpid()) + "@" + host_name();
  return name;
}

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// The file behind a symbolic link, also when it does not exist yet; any other path as it is.
/// errors  usage: links that lead in a circle
fs::path link_target(fs::path path) {
  constexpr int kMostLinks = 40;  // as in Linux
  const std::string name = path.string();
  std::error_code error;
  for (int links = 0; fs::is_symlink(path, error); ++links) {
    require_usage(links < kMostLinks, "writing '", name, "': too many levels of symbolic links");
    path = directory_of(path) / fs::read_symlink(path, error);
    require_usage(!error, "writing '", name, "': ", error.message());
  }
  return path;
}

/// A file descriptor that the destructor closes.
struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  /// On network file systems and under quotas a write may fail only here.
  int close() { return ::close(std::exchange(fd, -1)); }
};

void sync_to_disk(const fs::path& path, int flags) {
  if (!waits_for_disk) return;
  const Descriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  require(file.fd >= 0, "opening '", path.string(), "' to write it to disk: ", std::strerror(errno));
  // Some network file systems cannot sync a directory, but still order the rename.
  const bool synced = ::fsync(file.fd) == 0 || errno == EINVAL || errno == ENOTSUP;
  require(synced, "writing '", path.string(), "' to disk: ", std::strerror(errno));
}
}  // namespace

void flush_to_disk(const fs::path& path) {
  if (!waits_for_disk) return;
  sync_to_disk(path, O_RDONLY);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd >= 0) ::posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
}

void create_directories_on_disk(const fs::path& path, Fault fault) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path p = path; !p.empty() && !fs::exists(p, error); p = p.parent_path()) missing.push_back(p);
  fs::create_directories(path, error);
  if (error) throw Error(fault, join("creating directory '", path.string(), "': ", error.message()));
  for (const fs::path& made : missing) sync_to_disk(directory_of(made), O_RDONLY | O_DIRECTORY);
}

namespace {
/// Checks as require_writable(). Returns the name for the unfinished file, which exists and is empty.
fs::path make_temporary(const fs::path& path, const std::vector<fs::path>& inputs = {}) {
  std::error_code error;
  require_usage(path.has_filename(), "writing '", path.string(), "': the path has no file name");
  const fs::path target = link_target(path);
  const fs::path directory = directory_of(target);
  require_usage(!fs::is_directory(target, error), "writing '", path.string(), "': it is a directory");
  require_usage(!fs::exists(target, error) || fs::is_regular_file(target, error), "writing '", path.string(),
                "': it is a device, a pipe or a socket; choose a regular file");
  for (const fs::path& input : inputs)
    require_usage(!fs::equivalent(path, input, error), "writing '", path.string(), "': it is the input '",
                  input.string(), "'; choose another output");
  require_usage(fs::is_directory(directory, error), "writing '", path.string(), "': there is no directory '",
                directory.string(), "'; create it first");
  fs::path temporary = temporary_name(target);
  const Descriptor file(::open(temporary.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  require_usage(file.fd >= 0, "writing '", path.string(), "': ", std::strerror(errno));
  return temporary;
}
}  // namespace

void require_writable(const fs::path& path, const std::vector<fs::path>& inputs) {
  std::error_code ignored;
  fs::remove(make_temporary(path, inputs), ignored);
}

void write_atomically(const fs::path& name, const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = make_temporary(name), path = link_target(name);
  struct sigaction now {};
  if (sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGXFSZ, SIG_IGN);
  remove_stale_temporaries(directory_of(path), Writers::any, path.filename().string());
  try {
    write(temporary);
    sync_to_disk(temporary, O_RDONLY);
    std::error_code error;
    fs::rename(temporary, path, error);
    require(!error, "renaming '", temporary.string(), "' to '", path.filename().string(), "': ", error.message());
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  sync_to_disk(directory_of(path), O_RDONLY | O_DIRECTORY);
}

void write_text_atomically(const fs::path& path, std::string_view text) {
  write_atomically(path, [&](const fs::path& temporary) {
    require_space(path, std::ssize(text));
    Descriptor file(::open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666));
    require(file.fd >= 0, "creating '", temporary.string(), "': ", std::strerror(errno));
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t written = ::write(file.fd, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      require(written > 0, "writing '", path.string(), "': ", std::strerror(errno));
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    const bool closed = file.close() == 0;
    require(closed, "writing '", path.string(), "': ", std::strerror(errno));
  });
}

OpenedDirectory::OpenedDirectory(fs::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require_usage(fd_ >= 0, "opening directory '", path_.string(), "': ", std::strerror(errno));
}

OpenedDirectory::~OpenedDirectory() { ::close(fd_); }

bool OpenedDirectory::in_place() const {
  struct stat opened {
  }, named{};
  return ::fstat(fd_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

fs::path OpenedDirectory::now() const {
  struct stat opened {};
  std::error_code error;
  const fs::path link = fs::read_symlink("/proc/self/fd/" + std::to_string(fd_), error);
  return error || ::fstat(fd_, &opened) != 0 || opened.st_nlink == 0 ? fs::path() : link;
}

void remove_stale_temporaries(const fs::path& directory, Writers writers, std::string_view of) {
  std::error_code error;
  const std::string here = "@" + host_name();
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const auto marker = name.rfind(kMarker);
    if (marker == std::string::npos || (!of.empty() && std::string_view(name).substr(0, marker) != of)) continue;
    const char* begin = name.data() + marker + kMarker.size();
    const char* end = name.data() + name.size();
    pid_t pid = 0;
    const auto [after, failed] = std::from_chars(begin, end, pid);
    if (failed != std::errc{} || pid <= 0 || after == end || *after != '@') continue;
    const bool other = writers == Writers::none && (std::string_view(after, end) != here || pid != getpid());
    const bool died_here = std::string_view(after, end) == here && kill(pid, 0) != 0 && errno == ESRCH;
    std::error_code ignored;
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(entry.path(), ignored);
    if (other || died_here || (!ignored && age > std::chrono::hours(24))) fs::remove(entry.path(), ignored);
  }
}

void require_space(const fs::path& path, std::int64_t size_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(directory_of(link_target(path)), error);
  require(error || static_cast<std::uintmax_t>(size_bytes) <= space.available, "writing '", path.string(),
          "': it needs at least ", human_bytes(static_cast<double>(size_bytes)), ", but its file system has only ",
          human_bytes(static_cast<double>(space.available)), " free; make room or choose another place");
}

std::string read_text_file(const fs::path& path) {
  require_file(path, "reading");
  std::ifstream in(path, std::ios::binary);
  require_usage(in.good(), "reading '", path.string(), "': ", std::strerror(errno));
  std::string text;
  for (char block[1 << 16]; in.read(block, sizeof block), in.gcount() > 0;)
    text.append(block, static_cast<std::size_t>(in.gcount()));
  require_usage(!in.bad(), "reading '", path.string(), "': ", std::strerror(errno));
  return text;
}

}  // namespace lockstep
