#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/row_source.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/models/emulator/emulator_columns.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// Which name of an input or output is empty or occurs twice: "two inputs are named 'sst'". "": none.
std::string names_defect(const EmulatorVariables& variables);
/// "sst, sss -> aice"
std::string columns_text(const EmulatorVariables& variables);

/// A prepared data set (lockstep-emulator-data): physical columns in f32, and the rows of each split.
///
/// Only a process that fills memory reads and checks the columns. It reads directly into the arrays.
struct EmulatorData {
  std::filesystem::path path;
  RowArray x;           ///< f32 (n, n_in), physical units
  RowArray y;           ///< f32 (n, n_out), physical units
  RowArray jacobian;    ///< f32 (n, n_out, n_in), dy/dx in physical units (/jac); empty if the file has none
  Tensor weights = {};  ///< f32 (n), factors of the rows in the loss; empty: 1
  Tensor order;  ///< i32 (n), i64 from 2^31 rows, row numbers: training, validation, test; ascending within a split
  std::array<std::int64_t, 3> count{};  ///< rows of each split
  Moments moments;
  EmulatorVariables variables;
  std::string mask_mode;   ///< sea_ice | ocean | both; "" if the file has none
  std::uint64_t hash = 0;  ///< XXH3 over x, y, order, the Jacobian and the moments

  std::int64_t rows() const { return x.shape()[0]; }
  std::int64_t n_in() const { return x.shape()[1]; }
  std::int64_t n_out() const { return y.shape()[1]; }
  std::int64_t first_of(Split split) const;  ///< in `order`
  /// The rows of the split's samples [first, first + count), by default of all.
  std::vector<std::int64_t> rows_of(Split split, std::int64_t first = 0, std::int64_t count = -1) const;
  /// The row of a sample of a split.
  std::int64_t row_of(Split split, std::int64_t sample) const {
    const std::int64_t at = first_of(split) + sample;
    return order.dtype() == DType::i32 ? order.data<std::int32_t>()[at] : order.data<std::int64_t>()[at];
  }
  void prefetch_row_of(std::int64_t at) const {
    __builtin_prefetch(static_cast<const std::byte*>(order.raw()) + at * (order.dtype() == DType::i32 ? 4 : 8));
  }
  bool has_jacobian() const { return static_cast<bool>(jacobian); }
  /// errors  data: a network, called `trained` in messages, has other columns, units or levels than these
  void require_columns_of(const EmulatorVariables& its, const std::string& trained) const;

  /// Reads a file that lockstep-prep wrote.
  /// errors  data, naming the file: another format or version; a missing attribute or dataset; a wrong shape or type; a
  ///         value that is not finite, with its column and row; no training or no validation rows; std <= 0; names of
  ///         columns as in names_defect()
  static EmulatorData read(const std::filesystem::path& path, DataMemory& data_memory);
};

}  // namespace lockstep
