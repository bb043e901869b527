#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/tasks/arguments.hpp"

namespace lockstep {

class Option;

/// The output file of a command's predictions.
struct PredictionOutput {
  std::string path;    ///< "": nowhere
  std::string format;  ///< "hdf5", "csv", "jsonl"; "auto": by the extension of the path
  bool force = false;  ///< replaces a file of any kind
};
/// Adds --output, which it returns, --format and --force. `written` describes the contents: "predictions".
Option& add_output_options(Options& options, PredictionOutput& output, const std::string& written);
/// Checks that the file can be written and is not one of the inputs ("" for none). One rank calls it before the work.
/// errors  usage: an extension that names no format; see require_replaceable()
void require_output(const PredictionOutput& output, const std::vector<std::string>& inputs);

/// One column of a table of predictions: a value, or an array of values, per row.
struct PredictionColumn {
  std::string name;                        ///< of the dataset: "score"
  H5Type type;                             ///< i64, f32, f64 or text
  std::vector<std::int64_t> extents = {};  ///< of one row's array; empty: a value
  std::size_t longest = 1;                 ///< text: bytes of the longest value
  std::vector<std::string> labels = {};    ///< names of an array's values for the header of CSV; empty: 1, 2, ...
  std::int64_t width() const;              ///< values per row
};

using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;
/// The values of a column for some rows, row after row.
using PredictionValues = std::variant<Integers, std::vector<float>, std::vector<double>, Texts>;
/// Fills values[c], which has the type and size of column c, for rows [first, first + count). Runs on the rank that
/// computes the block.
using PredictionBlock =
    std::function<void(std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values)>;

/// Attributes of an HDF5 file of predictions. CSV and JSON lines have no attributes.
using PredictionAttributes = std::vector<std::pair<std::string, H5Value>>;

/// A table of predictions and how the ranks share it.
struct PredictionTable {
  std::vector<PredictionColumn> columns;
  std::int64_t rows = 0;
  std::int64_t block_rows = 1024;  ///< rows per call of `block`; the values must not depend on it
  std::string unit = "rows";       ///< what rows are, for messages: "users"
  PredictionAttributes attributes = {};
  PredictionBlock block = {};
  /// Runs on rank 0 with the values of each block, in the order of the rows; null: nothing.
  std::function<void(std::int64_t first, std::int64_t count, const std::vector<PredictionValues>& values)> see = {};
  /// Runs on all ranks after the last block, and may throw there; null: nothing.
  std::function<void()> agree = {};
  /// Runs on rank 0 before an HDF5 file is closed, to add data other than columns; null: nothing.
  std::function<void(H5File&)> finish = {};
};

/// Attributes for the origin of predictions: `kind` of the model, `checkpoint`, `data_hash` (hexadecimal, unless
/// empty), `command` (without --output, --force and the number of threads, so that equal predictions are equal files)
/// and `lockstep`, the version.
PredictionAttributes describe_source(const std::string& kind, const std::string& checkpoint,
                                     const std::string& data_hash, const std::string& command, const Args& args);

/// Writes a table: rank r computes the blocks r, r + ranks, ..., and rank 0 writes them in order; without a path it
/// only receives them. The file is written atomically, and has the same bytes on any number of ranks. Memory is bounded
/// by one block per rank. Rank 0 shows the progress on standard error and prints a line with the totals. Collective.
///
///   hdf5    a dataset per column, (rows, extents...); text has a fixed length, padded with NUL
///   csv     a header and a line per row (RFC 4180; lines end in \n). An array takes a column per value: score_1, ...
///   jsonl   an object per line, {"user": "7", "score": [0.5, 0.25]}; an array of several axes is nested
///
/// As text, f32 has 9 and f64 17 significant digits, so that it reads back as the same value. A value that is not
/// finite is an empty field (NaN), inf or -inf in CSV, and null in JSON. Bytes that are not UTF-8 become U+FFFD in
/// JSON.
///
/// errors  those of `block` and `agree` on any rank, on all ranks with one message; see write_atomically()
void write_predictions(World& world, const PredictionOutput& output, const PredictionTable& table);

}  // namespace lockstep
