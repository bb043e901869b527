#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

/// The name of a file system that several hosts can share, such as "NFS" or "Lustre". Returns "" for a file system of
/// one host, and for FUSE, which may be either.
///
/// type  `f_type` of statfs
std::string shared_file_system(long type);
/// Like above, for the file system of a file or directory. Returns "" if it cannot be determined.
std::string shared_file_system(const std::filesystem::path& path);
/// Checks that an input is a regular file. doing: "opening". errors  usage: missing, a directory, or not accessible
void require_file(const std::filesystem::path& path, const char* doing);
/// Checks that two outputs of a command are different files. They need not exist. errors  usage
void require_different(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace lockstep
