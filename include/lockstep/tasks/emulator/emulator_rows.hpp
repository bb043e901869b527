#pragma once
// Shared by lockstep predict and lockstep jacobian: load an emulator, and distribute blocks of states over the ranks.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_files.hpp"

namespace lockstep {

class Options;

/// The files that one command reads and writes.
struct EmulatorFiles {
  std::string checkpoint, model_file;  ///< exactly one is set
  std::string input, output;
};
/// Adds their options. `written` describes the output ("predictions").
void add_file_options(Options& options, EmulatorFiles& files, const std::string& written);

/// Reads the emulator of a checkpoint or a model file on every rank. Collective.
/// errors  usage: neither or both are named; see read_emulator
TrainedEmulator load_emulator(World& world, const std::string& checkpoint, const std::string& model_file);

/// The states of an input file: /x (n, n_in), f32 or f64, physical units. A prepared data set is such a file.
class InputRows {
 public:
  /// errors  data: no /x, a wrong number of columns, variables, units or levels that differ from the emulator's
  ///         (where the file names them)
  InputRows(const std::filesystem::path& path, const TrainedEmulator& emulator);
  const H5File& file() const { return file_; }
  std::int64_t size() const { return rows_; }
  /// Whether the file has this dataset. errors  data: its shape is not (n, columns), or (n) for columns = 0
  bool has(const std::string& dataset, std::int64_t columns) const;
  /// Reads rows of /x, or of a dataset that has() found.
  template <class T>
  std::vector<T> read(const std::string& dataset, std::int64_t first, std::int64_t count, std::int64_t columns) const {
    std::vector<T> values(static_cast<std::size_t>(count * (columns == 0 ? 1 : columns)));
    file_.read_rows<T>(dataset, first, count, values);
    return values;
  }

 private:
  std::string where(const std::string& dataset) const;
  H5File file_;
  std::int64_t rows_ = 0;
};

/// A dataset of the output and the extents of one row.
struct OutputColumn {
  std::string dataset;
  std::vector<std::int64_t> columns;
};

/// Computes one block: fills values[k] with `count` rows of dataset k.
template <class T>
using RowBlock = std::function<void(std::int64_t first, std::int64_t count, std::vector<std::vector<T>>& values)>;

/// Writes `output` atomically: rank r computes the blocks r, r + ranks, ... of the rows, and rank 0 writes them. After
/// the last block every rank runs `agree`, which may throw, on all ranks; then rank 0 runs `finish` and closes the
/// file. Collective.
template <class T>
void write_rows(World& world, const std::filesystem::path& output, std::int64_t rows,
                const std::vector<OutputColumn>& columns, const RowBlock<T>& block, const std::function<void()>& agree,
                const std::function<void(H5File&)>& finish);

/// Sums over rows, stored per block and added in block order: the same bits on any number of ranks.
class BlockSums {
 public:
  explicit BlockSums(std::size_t count) : count_(count) {}
  /// Appends a block of zeros, for the caller to add to.
  std::span<double> next_block();
  /// The sums over all blocks of all ranks, which must use write_rows()'s block order. Collective.
  std::vector<double> total(World& world) const;

 private:
  std::size_t count_;
  std::vector<double> blocks_;
};

}  // namespace lockstep
