#pragma once
#include <functional>
#include <string>
#include <vector>

#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/puzzle_csv.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// What the sources of puzzles share: output, seed, compression, and how variants are kept.
struct PuzzleOptions {
  std::string output, augment;
  bool quiet = false;
  std::uint64_t seed = 0;
  int deflate = 0;

  enum class Augment : std::uint8_t { option, none };
  PuzzleOptions(Options& options, std::uint64_t default_seed, Augment kind);
  /// Fills seed and online.
  void apply(PuzzleSet& set) const;
  /// Writes the file and says what is in it.
  void write(const PuzzleSet& set) const;
};

/// A table of puzzles; `parse` checks a row and turns it into numbers, `minimum` keeps rows of at least this rating (below 0: all).
/// A `path` of "" gives none.
using PuzzleParser = std::function<void(const PuzzleRow&, std::vector<std::uint8_t>&, std::vector<std::uint8_t>&)>;
BasePuzzles read_puzzles(const std::string& path, const PuzzleParser& parse, std::int64_t minimum);
/// `count` rows at random in the drawn order; all rows in theirs for 0 or for a count that is not below their number.
BasePuzzles subsampled(BasePuzzles puzzles, std::int64_t count, std::uint64_t seed);
/// Notes the name and sum of a raw file; nothing for "".
void add_source_file(PuzzleSet& set, const std::string& path);
/// Both tables must hold grids of one size, which is returned.
std::int64_t common_cells(const BasePuzzles& train, const BasePuzzles& test, const std::string& train_path,
                          const std::string& test_path);

/// Integers uniform in 0 .. n-1, one after another, from the key (seed, item, site).
class Below {
 public:
  Below(std::uint64_t seed, std::uint64_t item, Site site) : random_(seed, 0, site, item) {}
  std::uint64_t operator()(std::uint64_t n) { return random_.below(n, next_++); }

 private:
  Philox random_;
  std::uint64_t next_ = 0;
};

}  // namespace lockstep::prep
