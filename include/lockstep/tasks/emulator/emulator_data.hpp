#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/models/emulator/emulator_columns.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// A prepared data set (lockstep-emulator-data) in memory: physical columns in f32, and the rows of each split.
///
/// Only the process that fills a copy reads and checks the columns. It reads directly into the arrays.
struct EmulatorData {
  std::filesystem::path path;
  Tensor x;         ///< f32 (n, n_in), physical units
  Tensor y;         ///< f32 (n, n_out), physical units
  Tensor order;     ///< i32 (n), row numbers: training, then validation, then test; ascending within a split
  Tensor jacobian;  ///< f32 (n, n_out, n_in), dy/dx in physical units (/jac); empty if the file has none
  std::array<std::int64_t, 3> count{};  ///< rows of each split
  Moments moments;
  EmulatorVariables variables;
  std::string mask_mode;   ///< sea_ice | ocean | both; "" if the file has none
  std::uint64_t hash = 0;  ///< XXH3 over x, y, order, the Jacobian and the moments

  std::int64_t rows() const { return x.shape()[0]; }
  std::int64_t n_in() const { return x.shape()[1]; }
  std::int64_t n_out() const { return y.shape()[1]; }
  /// Row numbers of a split.
  std::span<const std::int32_t> rows_of(Split split) const;
  bool has_jacobian() const { return static_cast<bool>(jacobian); }

  /// Reads a file that lockstep-prep wrote.
  /// errors  data, naming the file: another format or version; a missing attribute or dataset; a wrong shape or type; a
  ///         value that is not finite, with its column and row; no training or no validation rows; std <= 0
  static EmulatorData read(const std::filesystem::path& path, DataMemory& data_memory);
};

}  // namespace lockstep
