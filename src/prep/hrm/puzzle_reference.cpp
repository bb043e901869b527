#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/prep/hrm/arc.hpp"
#include "lockstep/prep/hrm/puzzle_csv.hpp"
#include "lockstep/prep/reference.hpp"

namespace lockstep::prep {

namespace {

using Tokens = std::vector<std::uint8_t>;

/// Compares a part's rows and indices with the arrays of a group.
void compare_part(const H5File& golden, const std::string& group, const PuzzlePart& part, std::int64_t seq_len,
                  ReferenceReport& report) {
  Tokens inputs(part.rows * seq_len), labels(inputs.size());
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const std::int64_t at = row * seq_len;
    part.tokens(row, std::span(inputs).subspan(at, seq_len), std::span(labels).subspan(at, seq_len));
  }
  report.compare(golden, group + "/inputs", inputs, 0);
  report.compare(golden, group + "/labels", labels, 0);
  report.compare(golden, group + "/puzzle_indices", part.puzzle_indices, 0);
  report.compare(golden, group + "/group_indices", part.group_indices, 0);
  report.compare(golden, group + "/puzzle_identifiers", part.puzzle_identifiers, 0);
}

/// Compares our metadata with upstream's dataset.json.
void compare_metadata(const H5File& golden, const std::string& group, const std::string& attribute,
                      const PuzzleSet& set, const PuzzlePart& part, ReferenceReport& report) {
  const auto theirs = parse_json(golden.text_attribute(group, attribute));
  const nlohmann::json ours = {
      {"pad_id", set.pad_id},
      {"ignore_label_id", set.ignore_label_id},
      {"blank_identifier_id", set.blank_identifier_id},
      {"vocab_size", set.vocab_size},
      {"seq_len", set.seq_len},
      {"num_puzzle_identifiers", set.identifiers.size()},
      {"total_groups", part.groups()},
      {"mean_puzzle_examples", static_cast<double>(part.rows) / static_cast<double>(part.puzzles())},
      {"sets", {part.name}}};
  report.state(group.substr(1) + "/" + attribute,
               ours == theirs ? "" : "ours " + json_text(ours) + ", the reference has " + json_text(theirs));
}

BasePuzzles table(const H5File& golden, const std::string& group, const std::string& attribute,
                  void (*parse)(const PuzzleRow&, Tokens&, Tokens&)) {
  std::istringstream in(golden.text_attribute(group, attribute));
  BasePuzzles puzzles;
  Tokens question, answer;
  read_puzzle_csv(in, attribute, {}, false, [&](const PuzzleRow& row) {
    parse(row, question, answer);
    puzzles.add(row, question, answer);
  });
  return puzzles;
}

/// The variants that the reference drew: entry group * num_aug + variant - 1 of its arrays.
std::vector<SudokuVariant> recorded_variants(const H5File& golden, std::size_t expected) {
  const auto digits = golden.read<std::int32_t>("/sudoku/aug/digit_map"),
             turned = golden.read<std::int32_t>("/sudoku/aug/transpose"),
             rows = golden.read<std::int32_t>("/sudoku/aug/row_perm"),
             columns = golden.read<std::int32_t>("/sudoku/aug/col_perm");
  require_data(turned.size() == expected && digits.size() == 10 * expected && rows.size() == 9 * expected &&
                   columns.size() == 9 * expected,
               "reading '/sudoku/aug' of '", golden.path().string(), "': ", expected, " draws expected");
  const auto known = [](const std::vector<std::int32_t>& values, int most) {
    return std::all_of(values.begin(), values.end(), [most](auto v) { return v >= 0 && v <= most; });
  };
  require_data(known(digits, 9) && known(rows, 8) && known(columns, 8), "reading '/sudoku/aug' of '",
               golden.path().string(), "': values out of range");
  std::vector<SudokuVariant> variants;
  for (std::size_t i = 0; i < expected; ++i) {
    SudokuVariant variant = sudoku_identity(3);
    variant.transpose = turned[i] != 0;
    for (std::size_t k = 0; k < 10; ++k) variant.digit_map[k] = static_cast<std::uint8_t>(digits[10 * i + k]);
    for (std::size_t k = 0; k < 9; ++k) {
      variant.row_perm[k] = static_cast<std::uint8_t>(rows[9 * i + k]);
      variant.col_perm[k] = static_cast<std::uint8_t>(columns[9 * i + k]);
    }
    variants.push_back(variant);
  }
  return variants;
}

void compare_sudoku(const H5File& golden, ReferenceReport& report) {
  const BasePuzzles all = table(golden, "/sudoku", "train_csv", parse_sudoku);
  PuzzleSet set = sudoku_set(all.cells);
  set.num_aug = golden.int_attribute("/sudoku", "num_aug");
  const auto kept = golden.read<std::int64_t>("/sudoku/subsample_rows");
  require_data(set.num_aug >= 0 && set.num_aug < 1000 &&
                   std::all_of(kept.begin(), kept.end(), [&](auto r) { return r >= 0 && r < all.size(); }),
               "reading '/sudoku' of '", golden.path().string(), "': num_aug or subsample_rows out of range");
  const auto base = std::make_shared<BasePuzzles>(all.picked(kept));
  const auto variants = recorded_variants(golden, kept.size() * static_cast<std::size_t>(set.num_aug));
  add_base_puzzles(set, *base, table(golden, "/sudoku", "test_csv", parse_sudoku));
  PuzzlePart& train = set.train[0];
  const auto size = static_cast<std::size_t>(set.num_aug + 1);
  train.tokens = [drawn = train.tokens, variants, size](std::int64_t row, std::span<std::uint8_t> inputs,
                                                        std::span<std::uint8_t> labels) {
    const auto group = static_cast<std::size_t>(row) / size, variant = static_cast<std::size_t>(row) % size;
    drawn(static_cast<std::int64_t>(group * size), inputs, labels);
    if (variant == 0) return;
    for (auto grid : {inputs, labels}) {
      const Tokens original(grid.begin(), grid.end());
      apply_sudoku_variant(variants[group * (size - 1) + variant - 1], original, grid, 1);
    }
  };
  compare_part(golden, "/sudoku/train", train, set.seq_len, report);
  compare_part(golden, "/sudoku/test", set.test[0], set.seq_len, report);
  compare_metadata(golden, "/sudoku", "train_dataset_json", set, train, report);
  compare_metadata(golden, "/sudoku", "test_dataset_json", set, set.test[0], report);
}

void compare_maze(const H5File& golden, ReferenceReport& report) {
  // The reference's answers are not paths, so only alphabet, images and layout are compared.
  const BasePuzzles mazes = table(golden, "/maze", "csv", parse_maze);
  PuzzleSet set = maze_set(mazes.cells);
  set.num_aug = 7;
  add_base_puzzles(set, mazes, mazes);
  compare_part(golden, "/maze/train", set.train[0], set.seq_len, report);
  compare_part(golden, "/maze/test", set.test[0], set.seq_len, report);
  compare_metadata(golden, "/maze", "train_dataset_json", set, set.train[0], report);
  compare_metadata(golden, "/maze", "test_dataset_json", set, set.test[0], report);
}

void compare_dihedral(const H5File& golden, ReferenceReport& report) {
  const H5Info info = golden.info("/dihedral/input");
  require_data(info.shape.size() == 2, "reading '/dihedral/input' of '", golden.path().string(),
               "': two axes expected");
  const auto grid = golden.read<std::uint8_t>("/dihedral/input");
  Tokens image(grid.size());
  for (int id = 0; id < 8; ++id) {
    dihedral(id, static_cast<int>(info.shape[0]), static_cast<int>(info.shape[1]), grid, image);
    ReferenceRow& compared = report.compare(golden, join("/dihedral/", id), image, 0);
    auto shape = info.shape;
    if (dihedral_turns(id)) std::swap(shape[0], shape[1]);
    if (golden.info(join("/dihedral/", id)).shape != shape) compared.note = "rows and columns are exchanged";
  }
  report.compare(golden, "/dihedral/inverse", std::vector<int>(kDihedralInverse.begin(), kDihedralInverse.end()), 0);
}

void compare_arc(const H5File& golden, ReferenceReport& report) {
  for (const auto& entry : golden.list("/arc")) {
    const std::string group = "/arc/" + entry;
    const std::int64_t row = golden.int_attribute(group, "pad_r"), column = golden.int_attribute(group, "pad_c");
    for (const char* side : {"input", "output"}) {
      const H5Info info = golden.info(group + "/" + side);
      require_data(info.shape.size() == 2 && info.shape[0] > 0 && info.shape[1] > 0 && row >= 0 && column >= 0 &&
                       row + info.shape[0] <= kArcSide && column + info.shape[1] <= kArcSide,
                   "reading '", group, "' of '", golden.path().string(), "': the grid does not fit into the field");
      const ArcGrid grid{static_cast<int>(info.shape[0]), static_cast<int>(info.shape[1]),
                         golden.read<std::uint8_t>(group + "/" + side)};
      Tokens field(static_cast<std::size_t>(kArcCells));
      arc_tokens(grid, static_cast<int>(row), static_cast<int>(column), field);
      ReferenceRow& compared = report.compare(golden, group + "/" + side + "_tokens", field, 0);
      if (const std::string defect = arc_field_defect(field); !defect.empty())
        compared.note = "our own check: " + defect;
    }
  }
}

}  // namespace

void verify_puzzles(const H5File& golden, ReferenceReport& report) {
  compare_sudoku(golden, report);
  compare_dihedral(golden, report);
  compare_maze(golden, report);
  compare_arc(golden, report);
}

}  // namespace lockstep::prep
