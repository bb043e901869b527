#pragma once
// What lockstep predict and lockstep jacobian share: an emulator from a file, and states that are dealt out to the ranks block by block.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator_files.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::apps {

/// The files of one call.
struct EmulatorFiles {
  std::string checkpoint, model_file;  ///< one of the two
  std::string input, output;
};
/// Their options; `written` says what the output holds ("predictions").
void add_file_options(Options& options, EmulatorFiles& files, const std::string& written);

/// The emulator of a checkpoint or model file, read by every rank; exactly one of the two is named. Collective.
/// errors  usage: none or both; what read_emulator says
TrainedEmulator load_emulator(World& world, const std::string& checkpoint, const std::string& model_file);

/// States to apply an emulator to: /x (n, n_in), f32 or f64, physical units, from a plain file or a prepared data set.
class InputRows {
 public:
  /// errors  data: no /x, another number of columns, other variables than the emulator's (where the file names them)
  InputRows(const std::filesystem::path& path, const TrainedEmulator& emulator);
  const H5File& file() const { return file_; }
  std::int64_t size() const { return rows_; }
  /// Whether the file has this dataset; if so it must be (n, columns), or (n) for columns = 0.
  bool has(const std::string& dataset, std::int64_t columns) const;
  /// Rows of /x, or of a dataset that has() found.
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

/// A dataset of the output: its columns per row, as extents.
struct OutputColumn {
  std::string dataset;
  std::vector<std::int64_t> columns;
};

/// One block of rows: fills values[k] (count rows of column k).
template <class T>
using RowBlock = std::function<void(std::int64_t first, std::int64_t count, std::vector<std::vector<T>>& values)>;

/// Writes `output`, whole or not at all: rank r computes block r, r + ranks, ... of the rows, rank 0 writes them. `finish` runs on rank 0 before the file is
/// closed, after every rank has passed `agree` (which may throw the same error everywhere). Collective.
template <class T>
void write_rows(World& world, const std::filesystem::path& output, std::int64_t rows,
                const std::vector<OutputColumn>& columns, const RowBlock<T>& block, const std::function<void()>& agree,
                const std::function<void(H5File&)>& finish);

/// Sums over rows, kept apart by block and added in the order of the blocks: the same bits on any number of ranks.
class BlockSums {
 public:
  explicit BlockSums(std::size_t count) : count_(count) {}
  /// Zeros for the block under way.
  std::span<double> next_block();
  /// Over all blocks of all ranks, which have taken their blocks in write_rows()'s order. Collective.
  std::vector<double> total(World& world) const;

 private:
  std::size_t count_;
  std::vector<double> blocks_;
};

}  // namespace lockstep::apps
