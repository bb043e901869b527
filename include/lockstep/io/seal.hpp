#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "lockstep/io/h5.hpp"

namespace lockstep {

/// Checksums of HDF5 files. HDF5 itself does not detect a flipped bit in stored numbers.

/// Adds the attribute `xxh3`, a checksum of the values, to every dataset, and `structure_xxh3`, a checksum of all
/// names, types, shapes and attributes, to the root. The file must otherwise be complete. The checksums are of what the
/// program has written; values that it has not written row after row are read back.
void seal_contents(H5File& file);
bool is_sealed(const H5File& file);
/// The checksum of a dataset of strings, up to the first NUL of each, which begin after those with the checksum
/// `before`. (The checksum of a dataset of numbers is Hash64 of their bytes.)
std::uint64_t hash_texts(std::span<const std::string> texts, std::uint64_t before = 0);
/// Describes the first part of the contents that does not match its checksum, or returns "".
std::string contents_defect(const H5File& file);
/// Like contents_defect(), for a sealed file: only names, shapes and attributes, or only the values of one dataset.
/// `hash` is the checksum of the values; without it they are read. errors  data: a checksum is missing
std::string structure_defect(const H5File& file);
std::string values_defect(const H5File& file, const std::string& dataset, std::optional<std::uint64_t> hash = {});

/// Appends an end mark: 64 bytes with the length and checksum of all bytes before them. HDF5 ignores bytes after the
/// end address in its superblock.
void append_end_mark(const std::filesystem::path& path);
/// Reads the end mark, which identifies the file. errors  Error (data) if the file is too short or unreadable
std::string read_end_mark(const std::filesystem::path& path);
/// Whether the file ends with an end mark, right or wrong.
bool has_end_mark(const std::filesystem::path& path);
/// Whether seal_contents() writes this attribute.
bool is_seal(const std::string& attribute);
/// Describes why the end mark does not match the bytes before it, or returns "".
std::string end_mark_defect(const std::filesystem::path& path);

/// Describes what is wrong with the contents of a file, or returns "".
using ContentsDefect = std::function<std::string(const std::filesystem::path&)>;
/// Writes an HDF5 file with checksums and an end mark, whole or not at all. `fill` writes its contents.
///
/// defect  unless null, describes why the file does not read back from the disk: the checksums are of values in memory
/// errors  as write_atomically(); Error (internal) with the defect
void write_sealed(const std::filesystem::path& path, const ContentsDefect& defect,
                  const std::function<void(H5File&)>& fill);
/// Describes why such a file is not whole, by its end mark, then by its contents, or returns "". Reads it only once.
std::string sealed_file_defect(const std::filesystem::path& path, const ContentsDefect& defect);

/// Records that this process has found a file, or this part of it, whole. known_whole() is true until the file's size,
/// time, inode or last bytes change, so that no file is read twice. Thread-safe.
void note_whole(const std::filesystem::path& path, const std::string& part = "");
bool known_whole(const std::filesystem::path& path, const std::string& part = "");

}  // namespace lockstep
