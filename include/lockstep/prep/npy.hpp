#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::prep {

/// A file of NumPy's format, versions 1 to 3, with whole numbers: u1 i1 u2 i2 u4 i4 i8, little-endian, C order.
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
};
/// errors  usage: missing; data: no such file format, another type or order, more or fewer bytes than the shape says
NpyArray read_npy(const std::filesystem::path& path);

}  // namespace lockstep::prep
