#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

/// A file format that the programs read, with a small sample of it.
struct Format {
  const char* name;
  bool text;    ///< mutated as text
  bool sealed;  ///< every bit counts: a changed file is refused, or its contents are those of the sample
  /// Writes the sample into this directory. Returns its files to damage, relative to the directory.
  std::vector<std::string> (*make)(const std::filesystem::path& directory);
  /// Reads the sample as the programs do. Returns a checksum of what was read.
  std::uint64_t (*read)(const std::filesystem::path& directory);
};

std::span<const Format> formats();
/// Why a message cannot be shown on a terminal, or "".
std::string message_defect(std::string_view message);

}  // namespace lockstep::fuzz
