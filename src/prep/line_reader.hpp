#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

struct gzFile_s;

namespace lockstep::prep {

/// The lines of a text file, which may be compressed with gzip.
///
/// errors  usage: no regular file, unreadable; data: another compression, a damaged or truncated gzip file
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);
  /// Reads the next line without its end (LF or CRLF) and without a byte order mark. Returns false at the end of the
  /// file.
  bool next(std::string& line);

 private:
  bool fill();
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::vector<char> block_;
  std::size_t at_ = 0, size_ = 0;
  bool first_ = true;
};

}  // namespace lockstep::prep
