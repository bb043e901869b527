#include "report/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("opening");
}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(failed_, other.failed_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::fail(const char* doing) {
  const int reason = errno;
  failed_ = true;
  throw Error(Fault::internal,
              join(doing, " '", path_.string(), "': ", std::strerror(reason),
                   reason == ENOSPC || reason == EDQUOT ? "; free some space, then resume the run" : ""));
}

void AppendFile::append(std::string_view bytes) {
  if (failed_) return;
  while (!bytes.empty()) {
    const auto written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::sync() {
  // A pipe or a special file has nothing to sync.
  if (!failed_ && ::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail("syncing");
}

void truncate_file(const std::filesystem::path& path, std::uintmax_t size_bytes) {
  std::error_code failed;
  std::filesystem::resize_file(path, size_bytes, failed);
  require(!failed, "shortening '", path.string(), "' to ", size_bytes, " bytes: ", failed.message());
}

std::string read_if_there(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in && std::filesystem::file_size(path) > 0) text << in.rdbuf();
  require(in.good() && text.good(), "reading '", path.string(), "': ", std::strerror(errno));
  return std::move(text).str();
}

}  // namespace lockstep
