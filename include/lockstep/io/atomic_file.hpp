#pragma once
#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep {

/// Makes `path` whole or leaves it as it was: `write` fills a temporary name in the same directory, which is then fsynced and
/// renamed, and the directory fsynced. When `write` throws or the disk is full the temporary file is removed and the Error goes on.
/// Temporary names are `<name>.tmp.<pid>`; left over ones of dead processes are harmless and removed by remove_stale_temporaries().
void write_atomically(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write);
/// The same for a text.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);
void remove_stale_temporaries(const std::filesystem::path& directory);

}  // namespace lockstep
