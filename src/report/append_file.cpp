#include "lockstep/report/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/io/disk_sync.hpp"

namespace lockstep {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(fd_ >= 0, "opening '", path_.string(), "': ", std::strerror(errno));
}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(waiting_, other.waiting_);
  std::swap(failure_, other.failure_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::append(std::string_view bytes) {
  constexpr std::size_t kMostWaiting = std::size_t{16} << 20;  // records beyond this are lost
  if (waiting_.size() + bytes.size() <= kMostWaiting) waiting_ += bytes;
  std::size_t done = 0;
  failure_.clear();
  while (done < waiting_.size() && failure_.empty()) {
    const auto written = ::write(fd_, waiting_.data() + done, waiting_.size() - done);
    if (written >= 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR) failure_ = join("writing '", path_.string(), "': ", std::strerror(errno));
  }
  waiting_.erase(0, done);
}

std::string AppendFile::sync() const {
  // A pipe or a special file has nothing to sync.
  if (!waits_for_disk || ::fdatasync(fd_) == 0 || errno == EINVAL || errno == EROFS) return {};
  return join("syncing '", path_.string(), "': ", std::strerror(errno));
}

void truncate_file(const std::filesystem::path& path, std::uintmax_t size_bytes) {
  std::error_code failed;
  std::filesystem::resize_file(path, size_bytes, failed);
  require(!failed, "shortening '", path.string(), "' to ", size_bytes, " bytes: ", failed.message());
}

std::string read_if_there(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed) && !failed) return {};
  const auto size = failed ? 0 : std::filesystem::file_size(path, failed);
  require(!failed, "reading '", path.string(), "': ", failed.message());
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in && size > 0) text << in.rdbuf();
  require(in.good() && text.good(), "reading '", path.string(), "': ", std::strerror(errno));
  return std::move(text).str();
}

}  // namespace lockstep
