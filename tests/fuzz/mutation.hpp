#pragma once
#include <filesystem>
#include <random>
#include <string>

namespace lockstep::fuzz {

using Random = std::mt19937_64;

/// One flipped bit, or in one case of five a file that ends too early.
std::string flip_or_truncate(std::string bytes, Random& random);
/// One to four damages of bytes: bits, extreme numbers of 1, 2, 4 and 8 bytes in both orders, blocks that are moved,
/// repeated, removed or inserted, another length.
std::string mutate_bytes(std::string bytes, Random& random);
/// One to four damages of text: numbers become extreme or no numbers, lines are removed, repeated or exchanged, odd
/// characters are inserted; or mutate_bytes().
std::string mutate_text(std::string text, Random& random);

/// Writes a damaged file with valid checksums, to reach the readers behind them: the end mark of HDF5 files, the CRC-32
/// of .lsem files and those of a ZIP archive's stored members.
void write_resealed(const std::filesystem::path& path, std::string bytes);

}  // namespace lockstep::fuzz
