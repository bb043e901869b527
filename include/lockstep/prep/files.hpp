#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::prep {

/// SHA-256 of a file as 64 hexadecimal digits. errors  usage: unreadable
std::string sha256_of(const std::filesystem::path& path);
/// Expands shell patterns in order; the files of one pattern are sorted by name. errors  usage: a pattern without files
std::vector<std::filesystem::path> expand_files(const std::vector<std::string>& patterns);
/// Whether a file's name or whole path matches a shell pattern.
bool matches_pattern(const std::filesystem::path& file, const std::string& pattern);

}  // namespace lockstep::prep
