#include "prep/line_reader.hpp"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::prep {

namespace {
constexpr std::size_t kBlock = 1 << 18;

/// Other compressed formats by their first bytes, and the commands that unpack them.
struct Packed {
  std::string_view magic;
  const char *name, *unpack;
};
constexpr Packed kPacked[] = {{"\xFD"
                               "7zXZ",
                               "xz", "xz -dk"},
                              {"BZh", "bzip2", "bzip2 -dk"},
                              {"\x28\xB5\x2F\xFD", "zstandard", "zstd -d"},
                              {"PK\x03\x04", "zip", "unzip"}};
}  // namespace

LineReader::LineReader(const std::filesystem::path& path) : path_(path), file_(nullptr, gzclose_r), block_(kBlock) {
  std::error_code error;
  require_usage(std::filesystem::is_regular_file(path, error), "reading '", path.string(), "': no regular file");
  file_.reset(gzopen(path.c_str(), "rb"));
  require_usage(file_ != nullptr, "reading '", path.string(), "': ", std::strerror(errno));
  gzbuffer(file_.get(), kBlock);
  if (!fill()) return;
  const std::string_view begin(block_.data(), size_);
  for (const Packed& packed : kPacked)
    require_data(!begin.starts_with(packed.magic), "reading '", path.string(), "': it is compressed with ", packed.name,
                 "; only gzip is read, so unpack it first: ", packed.unpack, " '", path.string(), "'");
}

bool LineReader::fill() {
  const int got = gzread(file_.get(), block_.data(), static_cast<unsigned>(block_.size()));
  int status = Z_OK;
  const char* message = gzerror(file_.get(), &status);
  // Only Z_BUF_ERROR at the end of the file shows that it is truncated.
  require_data(got >= 0 && (got > 0 || status != Z_BUF_ERROR), "reading '", path_.string(), "': ",
               status == Z_ERRNO       ? std::strerror(errno)
               : status == Z_BUF_ERROR ? "it is truncated"
                                       : message);
  at_ = 0;
  size_ = static_cast<std::size_t>(got);
  return got > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  if (at_ == size_ && !fill()) return false;
  for (bool more = true; more;) {
    const char* begin = block_.data() + at_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', size_ - at_));
    line.append(begin, end != nullptr ? end : block_.data() + size_);
    at_ = end != nullptr ? static_cast<std::size_t>(end - block_.data()) + 1 : size_;
    more = end == nullptr && fill();
  }
  if (line.ends_with('\r')) line.pop_back();
  if (std::exchange(first_, false) && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

}  // namespace lockstep::prep
