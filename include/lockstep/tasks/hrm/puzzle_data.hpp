#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/data_memory.hpp"
#include "lockstep/samples/puzzle_variant.hpp"
#include "lockstep/tasks/hrm/arc_vote.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class H5File;

/// One named set: groups of puzzles, puzzles of examples. An example is one row of inputs and labels.
struct PuzzlePart {
  std::string name;
  RowArray inputs, labels;    ///< u8 (rows of all parts, seq_len)
  std::int64_t first = 0;     ///< row of the first example
  Tensor puzzle_indices;      ///< i64 (P+1), first example of each puzzle
  Tensor group_indices;       ///< i64 (G+1), first puzzle of each group
  Tensor puzzle_identifiers;  ///< i32 (P)
  Tensor rating, source;      ///< i32 (G), or empty if the file has none

  std::int64_t examples() const { return first_example(puzzles()); }
  std::int64_t puzzles() const { return puzzle_identifiers.size(); }
  std::int64_t groups() const { return group_indices.size() - 1; }
  std::int64_t first_example(std::int64_t puzzle) const { return puzzle_indices.data<std::int64_t>()[puzzle]; }
  std::int64_t first_puzzle(std::int64_t group) const { return group_indices.data<std::int64_t>()[group]; }
  /// The puzzle of an example, and the group of a puzzle, by binary search.
  std::int64_t puzzle_of(std::int64_t example) const;
  std::int64_t group_of(std::int64_t puzzle) const;
};

/// One example of a part, in one variant.
struct PuzzleExample {
  const PuzzlePart* part = nullptr;
  std::int64_t row = 0;
  std::int64_t group = 0;
  std::int64_t variant = 0;  ///< of the row, drawn while training (online files); 0: the stored puzzle
  std::int32_t identifier = 0;
  std::int64_t table_row() const { return part->first + row; }  ///< of inputs and labels
};

/// A prepared puzzle file (hrm-puzzles). Inputs and labels of all parts are the rows of one table.
struct PuzzleData {
  std::filesystem::path path;
  std::string task;  ///< sudoku | maze | arc
  std::int64_t seq_len = 0, vocab_size = 0, identifiers = 0;
  std::int64_t pad_id = 0, ignore_label_id = 0, blank_identifier_id = 0;  ///< ignore_label_id -1: none
  std::int64_t variants = 1;                 ///< variants of each stored training puzzle: 1 + num_aug of an online file
  PuzzleVariants online;                     ///< the variants of such a file
  std::vector<PuzzlePart> train, test, val;  ///< val is empty in files without validation puzzles
  std::vector<std::string> source_names;
  std::vector<ArcName> arc_names;      ///< one per identifier if the task is arc, else empty
  std::uint64_t hash = 0;              ///< XXH3 over all arrays of all splits
  std::uint64_t identifier_names = 0;  ///< hash_of_names() of the identifiers

  /// Reads the stored tokens of an example, spans of seq_len, into the network's form: ignored labels are -1.
  void read(const PuzzleExample& example, std::span<std::int32_t> inputs, std::span<std::int32_t> labels) const;
  /// read() of n examples. shapes  inputs, labels (n, seq_len), identifiers (n)
  struct Rows {
    std::vector<std::int32_t> inputs, labels, identifiers;
  };
  Rows read(std::span<const PuzzleExample> examples) const;
  /// The same for any examples, the same ones on all ranks. Collective unless all rows are here.
  Rows fetch(std::span<const PuzzleExample> examples) const;

  /// errors  data, naming the file: another format or version; a dataset that is missing or of a wrong type or shape;
  ///         with the row: indices that do not ascend, an identifier or token out of range
  static PuzzleData open(const std::filesystem::path& path, DataMemory& data_memory);
};

}  // namespace lockstep
