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
  /// Notes the rows of a table that repeat another one.
  void note_repeated(const BasePuzzles& puzzles, const std::string& path) const;
  /// Copies seed and online to the set.
  void apply(PuzzleSet& set) const;
  /// Writes the file and prints a summary.
  void write(const PuzzleSet& set) const;

 private:
  bool val_ = false;
};

/// Reads a table of puzzles, or none if `path` is "". `parse` checks and tokenises a row; rows with a rating below
/// `minimum` are dropped (below 0: none).
using PuzzleParser = std::function<void(const PuzzleRow&, std::vector<std::uint8_t>&, std::vector<std::uint8_t>&)>;
BasePuzzles read_puzzles(const std::string& path, const PuzzleParser& parse, std::int64_t minimum);
/// Records the name and checksum of a raw file; nothing for "".
void add_source_file(PuzzleSet& set, const std::string& path);
/// The common number of cells of both tables. errors  data: they differ
std::int64_t common_cells(const BasePuzzles& train, const BasePuzzles& test, const std::string& train_path,
                          const std::string& test_path);

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
