#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// Makes `path` whole or leaves it as it was: `write` fills a temporary name in the same directory, which is then fsynced and
/// renamed, and the directory fsynced. When `write` throws or the disk is full the temporary file is removed and the Error goes on.
/// Temporary names are `<name>.tmp.<pid>@<host>`; left over ones of dead processes are harmless and removed by
/// remove_stale_temporaries().
///
/// errors  usage: the directory is missing or not writable, `path` is a directory; internal: the disk is full, or the write fails
void write_atomically(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write);
/// The same for a text.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);
/// Fails now, before hours of work, if write_atomically(path) could not start. errors  usage: as above
void require_writable(const std::filesystem::path& path);
/// Removes what dead processes of this host left in the directory, and any temporary file older than a day.
void remove_stale_temporaries(const std::filesystem::path& directory);
/// The text of a file. errors  usage: missing or unreadable
std::string read_text_file(const std::filesystem::path& path);

}  // namespace lockstep
