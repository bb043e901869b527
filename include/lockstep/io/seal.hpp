#pragma once
#include <filesystem>
#include <string>

#include "lockstep/io/h5.hpp"

namespace lockstep {

/// What makes damage to our HDF5 files visible: HDF5 itself does not notice a flipped bit in stored numbers.

/// Gives every dataset the attribute `xxh3`, the checksum of its values, and the root `structure_xxh3`, one over all
/// names, types, shapes and attributes. The file must be complete apart from these.
void seal_contents(H5File& file);
/// What in the contents disagrees with its checksum, or "".
std::string contents_defect(const H5File& file);

/// Appends 64 bytes with the length and checksum of all bytes before them. HDF5 ends its file at the address that its
/// superblock holds and ignores what follows.
void append_end_mark(const std::filesystem::path& path);
/// The end mark itself: it tells files apart. errors  Error (data) when there is none
std::string read_end_mark(const std::filesystem::path& path);
/// Whether an attribute is one of those that seal_contents() writes.
bool is_seal(const std::string& attribute);
/// Why the end mark and the bytes before it do not fit each other, or "".
std::string end_mark_defect(const std::filesystem::path& path);

}  // namespace lockstep
