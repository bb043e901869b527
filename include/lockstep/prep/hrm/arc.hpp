#pragma once
#include <compare>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/prep/hrm/puzzle_set.hpp"

namespace lockstep::prep {

inline constexpr int kArcSide = 30;
inline constexpr std::int64_t kArcCells = 900, kArcVocab = 12;
inline constexpr std::uint8_t kArcEnd = 1, kArcColour = 2;  ///< tokens: 0 padding, 1 end marker, colour + 2

struct ArcGrid {
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> cells;  ///< colours 0 .. 9, row-major
  auto operator<=>(const ArcGrid&) const = default;
};
struct ArcPair {
  ArcGrid input, output;  ///< the output of a test pair may be unknown: a grid without cells
  auto operator<=>(const ArcPair&) const = default;
};
struct ArcTask {
  std::string name;
  std::string where;        ///< the file
  bool evaluation = false;  ///< its test pairs are not for training: from an evaluation folder, or without outputs
  std::vector<ArcPair> train, test;
};

/// A folder of *.json files, one task each, or a file of tasks by name, and the file that holds its answers apart ("":
/// none), as contests publish them: X_challenges.json and X_solutions.json.
struct ArcInput {
  std::filesystem::path tasks, answers;
};
/// Pairs the files of challenges and solutions; folders that hold such files are replaced by them.
/// left_aside  gets the files that hold no tasks
/// errors      usage: solutions without their challenges
std::vector<ArcInput> arc_inputs(const std::vector<std::filesystem::path>& paths, std::vector<std::string>& left_aside);
/// Reads the tasks of a folder in order of file name, or those of a file, by name. They are test tasks if a word of the
/// folder's or file's name is evaluation or test, such as in arc-agi_evaluation2_challenges.json.
/// errors  usage: no such folder; data: a folder without tasks, invalid JSON, a grid that is empty, ragged, larger than
///         30 x 30 or has other colours, a task with outputs for some of its test pairs only, answers of another task
std::vector<ArcTask> read_arc_tasks(const ArcInput& input);

/// Places a grid at (row, column) in a 30 x 30 field of padding, with end markers below it and to its right where the
/// field continues.
void arc_tokens(const ArcGrid& grid, int row, int column, std::span<std::uint8_t> field);
/// Describes why a field is not a single grid with its end markers; "" if it is.
std::string arc_field_defect(std::span<const std::uint8_t> field);

/// One of the eight dihedral images, and a permutation of the colours 1 .. 9.
struct ArcVariant {
  int dihedral = 0;
  std::array<std::uint8_t, 10> colours = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  /// The ending of the task's name: "_t3_0182736459"; "" for the identity, a task's first variant.
  std::string suffix() const;
};
ArcGrid apply_arc_variant(const ArcVariant& variant, const ArcGrid& grid);
/// The identity, then at most `num_aug` variants whose pairs all differ, from at most 5 * num_aug draws keyed
/// (seed, task).
std::vector<ArcVariant> draw_arc_variants(const ArcTask& task, std::int64_t num_aug, std::uint64_t seed,
                                          std::uint64_t task_number);

/// Which one of several tasks with one name counts.
enum class SameName : std::uint8_t { refuse, first, last };
/// Removes all but one of the tasks with one name. Returns how many. errors  data: `how` is refuse, and there are such
std::int64_t choose_of_same_name(std::vector<std::vector<ArcTask>>& folders, SameName how);

/// Builds the data set: shuffles the tasks of each folder and makes splits, variants, identifiers and offsets.
PuzzleSet arc_set(const std::vector<std::vector<ArcTask>>& folders, std::int64_t num_aug, std::uint64_t seed);

}  // namespace lockstep::prep
