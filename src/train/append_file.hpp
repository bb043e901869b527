#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// A file that grows at its end, unbuffered, every write checked: a line is on its way to the disk when append() returns.
class AppendFile {
 public:
  AppendFile() = default;
  /// Opens for appending, creating it. errors  Error (internal) naming the file and the system's reason
  explicit AppendFile(std::filesystem::path path);
  AppendFile(AppendFile&& other) noexcept { *this = std::move(other); }
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  /// errors  Error (internal), once: "writing 'run/train.log': No space left on device; ..."; after a failure nothing more is written
  void append(std::string_view bytes);
  void sync();
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* doing);
  std::filesystem::path path_;
  int fd_ = -1;
  bool failed_ = false;
};

/// Cuts a file to its first `size_bytes` bytes. errors  Error (internal)
void truncate_file(const std::filesystem::path& path, std::uintmax_t size_bytes);
/// The whole file, "" when there is none. errors  Error (internal) when it cannot be read
std::string read_if_there(const std::filesystem::path& path);

}  // namespace lockstep
