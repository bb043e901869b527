#pragma once
#include <functional>
#include <string>
#include <vector>

#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/hrm/puzzle_csv.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

/// Options that the puzzle sources share: output, seed, compression, storage of variants.
struct PuzzleOptions : SourceOptions {
  std::string augment;
  std::uint64_t seed = 0;
  int deflate = 0;
  std::int64_t val = 0;  ///< validation puzzles

  enum class Augment : std::uint8_t { option, none };
  PuzzleOptions(Options& options, std::uint64_t default_seed, Augment kind);
  /// Adds the option --val; `help` says where validation puzzles come from.
  void add_val(Options& options, const std::string& help);
  /// Checks that memory can hold generated puzzles, and the file system of the output what is stored of them.
  /// variants  of each training puzzle
  /// errors    usage: memory; internal: file system
  void require_room(std::int64_t train, std::int64_t test, std::int64_t variants, std::int64_t cells) const;
  /// Copies seed and online to the set.
  void apply(PuzzleSet& set) const;
  /// Writes the file and prints a summary.
  void write(PuzzleSet& set);

 private:
  bool val_ = false;
};

/// Checks and tokenises a row of a table.
using PuzzleParser = std::function<void(const PuzzleRow&, std::vector<std::uint8_t>&, std::vector<std::uint8_t>&)>;

/// Puzzles from a table for training and one for tests: the options train, test, the columns and subsample-size.
class PuzzleTables {
 public:
  /// puzzles  what the help calls them
  PuzzleTables(Options& options, const std::string& puzzles);
  /// Reads and divides the tables and writes the file.
  ///
  /// minimum  rows with a rating below it are dropped; below 0: none
  /// set_of   makes a set without puzzles for grids of this many cells
  /// errors   data: an invalid row; tables whose grids differ in size
  void write(PuzzleOptions& common, const PuzzleParser& parse, std::int64_t minimum,
             PuzzleSet (*set_of)(std::int64_t cells), std::int64_t num_aug, const DatasetNotes& notes = {}) const;

 private:
  std::string train_, test_;
  PuzzleColumns columns_;
  std::int64_t subsample_ = 0;
};

/// Consecutive uniform integers in 0 .. n-1 from the key (seed, item, site).
class Below {
 public:
  Below(std::uint64_t seed, std::uint64_t item, Site site) : random_(seed, 0, site, item) {}
  std::uint64_t operator()(std::uint64_t n) { return random_.below(n, next_++); }

 private:
  Philox random_;
  std::uint64_t next_ = 0;
};

}  // namespace lockstep::prep
