#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class H5File;

/// XXH3 over names and their order, such as the raw ids of items.
std::uint64_t hash_of_names(const std::vector<std::string>& names);
/// Keeps the hash of names to which weights refer in a checkpoint.
void save_names(H5File& checkpoint, std::uint64_t hash);
/// errors  data: the checkpoint holds the hash of other names. One of an earlier version, without a hash, is accepted
void require_names(const H5File& checkpoint, std::uint64_t hash, const std::string& data_path, const char* what);

}  // namespace lockstep
