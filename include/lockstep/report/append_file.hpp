#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// A file for appending, unbuffered: append() returns after the system has accepted all bytes. Refused bytes (full
/// disk) wait in memory, up to 16 MiB, and each later append() tries again.
class AppendFile {
 public:
  AppendFile() = default;
  /// Opens or creates the file. errors  Error (internal) with the file and the reason
  explicit AppendFile(std::filesystem::path path);
  AppendFile(AppendFile&& other) noexcept { *this = std::move(other); }
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  void append(std::string_view bytes);
  /// Why bytes are waiting: the file and the reason; "" if none are.
  const std::string& failure() const { return failure_; }
  /// Flushes the file to the disk; returns why that failed, or "". Another thread may append meanwhile.
  [[nodiscard]] std::string sync() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::string waiting_, failure_;
};

/// Truncates a file to `size_bytes`. errors  Error (internal)
void truncate_file(const std::filesystem::path& path, std::uintmax_t size_bytes);
/// The contents of a file; "" if it does not exist. errors  Error (internal) if it cannot be read
std::string read_if_there(const std::filesystem::path& path);

}  // namespace lockstep
