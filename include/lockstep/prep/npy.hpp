#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::prep {

/// An array of NumPy's file format, versions 1 to 3, of integers: u1 i1 u2 i2 u4 i4 i8, little-endian.
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
};
/// errors  usage: missing; data: another file format, type or order, a size that contradicts the shape
NpyArray read_npy(const std::filesystem::path& path);

}  // namespace lockstep::prep
