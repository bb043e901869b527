#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/prep/puzzle_set.hpp"

namespace lockstep::prep {

inline constexpr int kArcSide = 30;
inline constexpr std::int64_t kArcCells = 900, kArcVocab = 12;
inline constexpr std::uint8_t kArcEnd = 1, kArcColour = 2;  ///< tokens: 0 padding, 1 end marker, colour + 2

struct ArcGrid {
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> cells;  ///< colours 0 .. 9, row-major
};
struct ArcPair {
  ArcGrid input, output;
};
struct ArcTask {
  std::string name;
  std::string where;  ///< the file
  bool evaluation = false;
  std::vector<ArcPair> train, test;
};

/// The tasks of a folder's *.json files in order of name; a folder called `evaluation` holds test tasks.
/// errors  usage: no such folder; data: no task in it, no JSON, a grid that is empty, ragged, larger than 30 x 30 or of other colours
std::vector<ArcTask> read_arc_folder(const std::filesystem::path& folder);

/// Puts a grid at (row, column) into a field of 30 x 30 paddings, end markers below and to the right of it where the field goes on.
void arc_tokens(const ArcGrid& grid, int row, int column, std::span<std::uint8_t> field);
/// Why a field is not one grid with its end markers, or "".
std::string arc_field_defect(std::span<const std::uint8_t> field);

/// A dihedral image and a permutation of the colours 1 .. 9.
struct ArcVariant {
  int dihedral = 0;
  std::array<std::uint8_t, 10> colours = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  /// NAME_t3_0182736459; NAME alone for the identity that heads a task's variants.
  std::string suffix() const;
};
ArcGrid apply_arc_variant(const ArcVariant& variant, const ArcGrid& grid);
/// The task itself, then at most `num_aug` variants of it that differ from it and from one another in their pairs, from at most
/// 5 * num_aug draws keyed (seed, task).
std::vector<ArcVariant> draw_arc_variants(const ArcTask& task, std::int64_t num_aug, std::uint64_t seed,
                                          std::uint64_t task_number);

/// The data set of these folders: tasks shuffled per folder, splits, variants, identifiers and offsets. errors  data: two tasks of a name
PuzzleSet arc_set(const std::vector<std::vector<ArcTask>>& folders, std::int64_t num_aug, std::uint64_t seed);

}  // namespace lockstep::prep
