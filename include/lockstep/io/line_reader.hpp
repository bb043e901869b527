#pragma once
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

struct z_stream_s;

namespace lockstep {

/// The lines of a text file, which may be compressed with gzip.
///
/// errors  usage: no regular file, unreadable; data: as clean_first_line() of the text; a gzip file that is damaged or
///         truncated, or that other bytes follow
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);
  /// Reads the next line without its end (LF or CRLF) and without a byte order mark. Returns false at the end of the
  /// file.
  bool next(std::string& line);

 private:
  bool fill();
  std::size_t read(std::vector<char>& into);
  std::filesystem::path path_;
  std::ifstream file_;
  std::unique_ptr<z_stream_s, void (*)(z_stream_s*)> unpacker_;  ///< null: the file is not compressed
  std::vector<char> packed_, block_;                             ///< bytes of a compressed file; text
  std::size_t at_ = 0, size_ = 0;                                ///< in block_
  bool first_ = true, member_ended_ = false, later_member_ = false;
};

}  // namespace lockstep
