#pragma once
// Shared by lockstep predict and lockstep jacobian: load an emulator, and distribute blocks of states over the ranks.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/tasks/prediction_file.hpp"

namespace lockstep {

/// The files that one command reads and writes.
struct EmulatorFiles {
  std::string checkpoint, model_file;  ///< exactly one is set; checkpoint: text for checkpoint_files()
  std::string input;
  PredictionOutput output;
  /// All files that are read.
  std::vector<std::string> inputs() const;
};
/// Rows of a block of write_predictions().
inline constexpr std::int64_t kEmulatorBlock = 16384;
/// Adds the options that name these files. `written` describes the output ("predictions").
void add_file_options(Options& options, EmulatorFiles& files, const std::string& written);

/// Checks run.precision. errors  usage: neither fp32 nor fp64
void require_precision(const Options& options);

/// Attributes for the origin of a command's output, see describe_source() of prediction_file.hpp.
PredictionAttributes describe_source(const EmulatorFiles& files, const std::string& command, const Args& args);

/// Reads the emulator of a checkpoint or a model file, or the members of an ensemble, on every rank. Collective.
/// errors  usage: neither or both are named; data: members with other variables or units; see read_emulator
std::vector<TrainedEmulator> load_emulators(World& world, const EmulatorFiles& files);
/// load_emulators() for a command that takes one network. errors  usage: several are named
TrainedEmulator load_emulator(World& world, const EmulatorFiles& files);

/// The states of an input file: /x (n, n_in), f32 or f64, physical units. A prepared data set is such a file.
class InputRows {
 public:
  /// verifies  compare the used datasets with their checksums, if they have any (prepared data sets do); for one rank
  /// errors  data: no /x, a wrong number of columns, variables, units or levels that differ from the emulator's
  ///         (where the file names them)
  InputRows(const std::filesystem::path& path, const TrainedEmulator& emulator, bool verifies);
  const H5File& file() const { return file_; }
  std::int64_t size() const { return rows_; }
  /// Whether the file names outputs other than the emulator's: then its /y are not targets.
  bool other_outputs() const { return other_outputs_; }
  /// Whether the file has this dataset. errors  data: its shape is not (n, columns), or (n) for columns = 0; damaged
  bool has(const std::string& dataset, std::int64_t columns) const;
  /// Reads rows of /x, or of a dataset that has() found.
  template <class T>
  std::vector<T> read(const std::string& dataset, std::int64_t first, std::int64_t count, std::int64_t columns) const {
    std::vector<T> values(count * (columns == 0 ? 1 : columns));
    file_.read_rows<T>(dataset, first, count, values);
    return values;
  }

 private:
  std::string where(const std::string& dataset) const;
  /// errors  data: its elements are neither f32 nor f64
  std::vector<std::int64_t> shape_of(const std::string& dataset) const;
  void verify(const std::string& dataset) const;
  H5File file_;
  bool verifies_, other_outputs_ = false;
  std::int64_t rows_ = 0;
};

/// Sums over rows, stored per block and added in block order: the same bits on any number of ranks.
class BlockSums {
 public:
  explicit BlockSums(std::size_t count) : count_(count) {}
  /// Appends a block of zeros, for the caller to add to.
  std::span<double> next_block();
  /// The sums over all blocks of all ranks, which must compute blocks in the order of write_predictions(). Collective.
  std::vector<double> total(World& world) const;

 private:
  std::size_t count_;
  std::vector<double> blocks_;
};

}  // namespace lockstep
