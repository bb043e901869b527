#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

/// The name of a file system that several hosts share, such as "NFS" or "Lustre", by its number (`f_type` of statfs); ""
/// for those of one host, and for FUSE, which may be either.
std::string shared_file_system(long type);
/// The same for the file system of an existing file or directory; "" also if it cannot be read.
std::string shared_file_system(const std::filesystem::path& path);

}  // namespace lockstep
