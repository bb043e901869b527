#include "train/staged_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_system.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
constexpr const char* kDoing = "staging the data set";
constexpr const char* kAdvice =
    "; choose a directory on storage of the node itself, or leave data.stage empty: each node reads the data set once "
    "in any case";

/// Replaces $NAME and ${NAME} by variables of this host's environment.
fs::path with_variables(const std::string& text, const std::string& option) {
  static const std::regex variable(R"(\$(?:(\w+)|\{(\w+)\}))");
  std::string out, rest = text;
  for (std::smatch found; std::regex_search(rest, found, variable); rest = found.suffix()) {
    const std::string name = found[1].matched ? found[1] : found[2];
    const char* value = std::getenv(name.c_str());
    require_usage(value != nullptr && *value != '\0', option, ": the environment of this host has no ", name,
                  "; the launcher may not pass it on (mpirun -x ", name, ")");
    out += found.prefix().str() + value;
  }
  return out + rest;
}

/// Copies an open file block by block, then reads the copy and compares the hashes.
class Copier {
 public:
  Copier(fs::path source, int copy) : source_(std::move(source)), copy_(copy), buffer_(kBlock) {
    in_ = ::open(source_.c_str(), O_RDONLY | O_CLOEXEC);
    const bool opened = in_ >= 0 && fstat(in_, &before_) == 0;
    require_usage(opened, "opening '", source_.string(), "': ", std::strerror(errno));
    posix_fadvise(in_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  ~Copier() { ::close(in_); }

  std::int64_t size() const { return static_cast<std::int64_t>(before_.st_size); }
  /// Works for about limit_s seconds. Returns whether work remains.
  bool work_for(double limit_s) {
    const Stopwatch watch;
    while (watch.seconds() < limit_s)
      if (!(reading_back_ ? check_block() : copy_block())) return false;
    return true;
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{4} << 20;

  std::size_t read_block(int from, const char* what) {
    for (;;) {
      const ssize_t n = ::pread(from, buffer_.data(), buffer_.size(), static_cast<off_t>(at_));
      if (n < 0 && errno == EINTR) continue;
      require(n >= 0, kDoing, ": reading ", what, ": ", std::strerror(errno), " at byte ", at_);
      file_bytes_moved += static_cast<std::uint64_t>(n);
      return static_cast<std::size_t>(n);
    }
  }

  bool copy_block() {
    const std::size_t n = read_block(in_, source_.c_str());
    if (n == 0) {
      struct stat now {};
      require(fstat(in_, &now) == 0 && at_ == size() && now.st_mtim.tv_sec == before_.st_mtim.tv_sec &&
                  now.st_mtim.tv_nsec == before_.st_mtim.tv_nsec,
              kDoing, ": '", source_.string(), "' has changed while it was copied; start again when it is complete");
      const bool synced = ::fsync(copy_) == 0 || errno == EINVAL;
      require(synced, kDoing, ": writing the copy to disk: ", std::strerror(errno));
      posix_fadvise(copy_, 0, 0, POSIX_FADV_DONTNEED);  // so that the check reads the disk, not the page cache
      reading_back_ = true;
      at_ = 0;
      return true;
    }
    read_.add(buffer_.data(), n);
    for (std::size_t done = 0; done < n;) {
      const ssize_t written = ::write(copy_, buffer_.data() + done, n - done);
      if (written < 0 && errno == EINTR) continue;
      require(written > 0, kDoing, ": ", std::strerror(errno), " after ",
              human_bytes(static_cast<double>(at_) + static_cast<double>(done)), " of ",
              human_bytes(static_cast<double>(size())), " of the copy of '", source_.string(), "'", kAdvice);
      done += static_cast<std::size_t>(written);
    }
    // Starts to write the block to disk: otherwise the fsync of a long file may exceed dist.timeout.
    ::sync_file_range(copy_, at_, static_cast<off_t>(n), SYNC_FILE_RANGE_WRITE);
    at_ += static_cast<std::int64_t>(n);
    return true;
  }

  bool check_block() {
    const std::size_t n = read_block(copy_, "the copy");
    copied_.add(buffer_.data(), n);
    at_ += static_cast<std::int64_t>(n);
    if (n > 0) return true;
    require(at_ == size() && copied_.value() == read_.value(), kDoing, ": the copy of '", source_.string(),
            "' has hash ", hex64(copied_.value()), " and ", at_, " bytes, the file ", hex64(read_.value()), " and ",
            size(), ": the disk or the memory of this host is faulty", kAdvice);
    return false;
  }

  fs::path source_;
  int in_ = -1, copy_;
  struct stat before_ {};
  std::int64_t at_ = 0;
  bool reading_back_ = false;
  Hash64 read_, copied_;
  std::vector<char> buffer_;
};

}  // namespace

void StagedFile::Opened::remove_name() {
  if (!name.empty()) ::unlink(std::exchange(name, {}).c_str());
}

StagedFile::Opened::~Opened() {
  remove_name();
  if (fd >= 0) ::close(fd);
}

StagedFile::StagedFile(World& world, const fs::path& source, const std::string& directory) {
  world.at(kDoing, -1);
  const Stopwatch watch;
  open_on_node(world, source, directory);
  fill(world, source);
  struct stat made {};
  fstat(copy_.fd, &made);
  if (world.rank() == 0)
    log::info("data set staged in ", directory, " of ",
              world.nodes() == 1 ? "this node" : join(world.nodes(), " nodes"), ": ",
              human_bytes(static_cast<double>(made.st_size)), " in ", human_seconds(watch.seconds()));
  world.at("loading the data set", -1);
}

StagedFile::~StagedFile() = default;

fs::path StagedFile::path() const { return join("/proc/self/fd/", copy_.fd); }

void StagedFile::open_on_node(World& world, const fs::path& source, const std::string& directory) {
  const bool first = world.node_rank() == 0;
  fs::path place;
  std::string option;
  world.together(kDoing, [&] {
    if (!first) return;
    option = join("option data.stage = ", directory);
    place = with_variables(directory, option);
    if (place.string() != directory) option += " (" + place.string() + ")";
    std::error_code error;
    require_usage(place.is_absolute(), option, ": must be an absolute path", kAdvice);
    require_usage(fs::is_directory(place, error), option, ": there is no such directory on ", world.host(), kAdvice);
    const std::string shared = shared_file_system(place);
    require_usage(shared.empty(), option, ": it is on ", shared, ", which hosts share", kAdvice);
    const std::uintmax_t size = fs::file_size(source, error);
    require_usage(!error, "option data.path: '", source.string(), "': ", error.message());
    require_space(place / source.filename(), static_cast<std::int64_t>(size));
    std::string name = (place / "lockstep-stage-XXXXXX").string();
    copy_.fd = mkostemp(name.data(), O_CLOEXEC);
    require_usage(copy_.fd >= 0, option, ": creating a file there on ", world.host(), ": ", std::strerror(errno),
                  kAdvice);
    copy_.name = name;
  });
  const std::string name = world.node_communicator().broadcast_text(copy_.name.string(), 0, "name of the staged file");
  const std::vector<std::string> names = world.communicator().all_gather_text(
      first ? join(world.host(), " ", fs::path(name).filename().string()) : "", "names of the staged files");
  world.together(kDoing, [&] {
    if (!first) {
      copy_.fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
      require(copy_.fd >= 0, kDoing, ": opening '", name, "': ", std::strerror(errno));
      return;
    }
    for (int r = 0; r < world.size(); ++r) {
      const std::string& other = names[r];
      const std::size_t space = other.find(' ');
      if (r == world.rank() || other.empty()) continue;
      require_usage(!fs::exists(place / other.substr(space + 1)), option, ": hosts ", world.host(), " and ",
                    other.substr(0, space), " share this directory", kAdvice);
    }
  });
  copy_.remove_name();
}

void StagedFile::fill(World& world, const fs::path& source) {
  constexpr double kSlice_s = 0.5;  // longest wait of the other ranks in one collective
  std::unique_ptr<Copier> copier;
  for (bool more = true; more;) {
    more = false;
    world.together(kDoing, [&] {
      if (world.node_rank() != 0) return;
      if (!copier) copier = std::make_unique<Copier>(source, copy_.fd);
      more = copier->work_for(kSlice_s);
    });
    more = world.communicator().all_reduced(std::int64_t{more ? 1 : 0}, ReduceOp::max, kDoing) != 0;
  }
}

}  // namespace lockstep
