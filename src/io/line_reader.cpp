#include "lockstep/io/line_reader.hpp"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
constexpr std::size_t kBlock = 1 << 18;

void end_unpacking(z_stream_s* stream) {
  inflateEnd(stream);
  delete stream;
}
}  // namespace

LineReader::LineReader(const std::filesystem::path& path) : path_(path), unpacker_(nullptr, end_unpacking) {
  std::error_code error;
  require_usage(std::filesystem::is_regular_file(path, error), "reading '", path.string(), "': no ",
                std::filesystem::exists(path, error) ? "regular" : "such", " file");
  file_.open(path, std::ios::binary);
  require_usage(file_.good(), "reading '", path.string(), "': ", std::strerror(errno));
  block_.resize(kBlock);
  if (std::string_view(block_.data(), read(block_)).starts_with("\x1F\x8B")) {
    packed_.resize(kBlock);
    unpacker_.reset(new z_stream_s{});
    require(inflateInit2(unpacker_.get(), 16 + MAX_WBITS) == Z_OK, "reading '", path.string(),
            "': zlib does not start");
  }
  file_.clear();
  file_.seekg(0);
}

std::size_t LineReader::read(std::vector<char>& into) {
  file_.read(into.data(), static_cast<std::streamsize>(into.size()));
  require_data(!file_.bad(), "reading '", path_.string(), "': ", std::strerror(errno));
  return static_cast<std::size_t>(file_.gcount());
}

bool LineReader::fill() {
  at_ = 0;
  if (unpacker_ == nullptr) return (size_ = read(block_)) > 0;
  z_stream_s& z = *unpacker_;
  for (size_ = 0; size_ == 0; size_ = block_.size() - z.avail_out) {
    if (z.avail_in == 0) {
      z.avail_in = static_cast<unsigned>(read(packed_));
      z.next_in = reinterpret_cast<unsigned char*>(packed_.data());
      if (z.avail_in == 0 && member_ended_) return false;
    }
    if (std::exchange(member_ended_, false)) {
      inflateReset(&z);
      later_member_ = true;
    }
    z.next_out = reinterpret_cast<unsigned char*>(block_.data());
    z.avail_out = static_cast<unsigned>(block_.size());
    const int status = inflate(&z, Z_NO_FLUSH);
    member_ended_ = status == Z_STREAM_END;
    require_data(status == Z_OK || member_ended_, "reading '", path_.string(), "': ",
                 status == Z_BUF_ERROR               ? "it is truncated"
                 : later_member_ && z.total_out == 0 ? "other bytes follow the end of its gzip data"
                 : z.msg != nullptr                  ? z.msg
                                                     : zError(status));
  }
  return true;
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
  if (std::exchange(first_, false)) clean_first_line(line, path_.string());
  return true;
}

}  // namespace lockstep
