#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

/// Replaces a file completely or not at all. `write` fills a temporary file in the same directory; then the file is
/// synced and renamed, and the directory is synced. If `write` throws or the disk is full, the temporary file is
/// removed and the error propagates. Temporary names are `<name>.tmp.<pid>@<host>`. Leftovers of dead processes are
/// harmless; the next write of the same file removes them, and so does remove_stale_temporaries(). A symbolic link
/// stays, and the file behind it is replaced.
///
/// errors   usage: the directory is missing or not writable, or `path` is a directory, a device, a pipe or a socket;
///          internal: the disk is full, or the write fails
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path&)>& write);
/// Like write_atomically(), for a text.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);
/// Waits until a file is on the disk, and drops its pages from memory, so that the next read comes from the disk.
/// errors  Error (internal)
void flush_to_disk(const std::filesystem::path& path);
/// The bytes of large files that this process has read and written so far. Distinguishes slow work from a file system
/// that hangs.
inline std::atomic<std::uint64_t> file_bytes_moved = 0;
/// Creates a directory and its parents where they are missing, and waits until their names are on the disk.
/// errors  Error (`fault`): a directory cannot be created
void create_directories_on_disk(const std::filesystem::path& path, Fault fault = Fault::internal);
/// Checks that write_atomically(path) can start, so that a run fails before hours of work, and does not destroy one of
/// the files that the run reads.
/// errors   usage: as write_atomically(); `path` is one of the inputs, also by another name
void require_writable(const std::filesystem::path& path, const std::vector<std::filesystem::path>& inputs = {});
/// An open directory that can detect whether its path still names it.
class OpenedDirectory {
 public:
  /// errors  Error (usage) if it cannot be opened
  explicit OpenedDirectory(std::filesystem::path path);
  OpenedDirectory(const OpenedDirectory&) = delete;
  OpenedDirectory& operator=(const OpenedDirectory&) = delete;
  ~OpenedDirectory();
  const std::filesystem::path& path() const { return path_; }
  /// Whether path() still names this directory.
  bool in_place() const;
  /// Where the directory is now; "" if it was removed.
  std::filesystem::path now() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};
/// Which temporary files remove_stale_temporaries() considers stale.
enum class Writers : std::uint8_t {
  any,   ///< other hosts may be writing: files of dead processes of this host, and files older than a day
  none,  ///< the caller has locked the directory: all files except those of this process
};
/// Removes stale temporary files from a directory: those of the file named `of`, or of all files if it is "".
void remove_stale_temporaries(const std::filesystem::path& directory, Writers writers = Writers::any,
                              std::string_view of = "");
/// Checks that the file system of an output has room for it, so that a long computation does not fail at its
/// end.
/// errors  Error: names both sizes
void require_space(const std::filesystem::path& path, std::int64_t size_bytes);
/// Reads a whole file. errors  usage: missing or unreadable
std::string read_text_file(const std::filesystem::path& path);

}  // namespace lockstep
