#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/arc.hpp"
#include "lockstep/prep/golden_checks.hpp"
#include "lockstep/prep/puzzle_csv.hpp"

namespace lockstep::prep {

namespace {

using Tokens = std::vector<std::uint8_t>;

template <class A>
GoldenRow same(const H5File& golden, const std::string& dataset, const std::vector<A>& ours) {
  GoldenRow row{dataset.substr(1), 0, 0, ""};
  const auto theirs = golden.read<std::int32_t>(dataset);
  if (ours.size() != theirs.size()) {
    row.note = join(ours.size(), " values, the reference has ", theirs.size());
    return row;
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (static_cast<std::int64_t>(ours[i]) != theirs[i]) row.error += 1;
  }
  if (row.error > 0) row.note = join(row.error, " of ", ours.size(), " values differ");
  return row;
}

/// A part's rows and indices against the arrays of a group.
void compare_part(const H5File& golden, const std::string& group, const PuzzlePart& part, std::int64_t seq_len,
                  std::vector<GoldenRow>& rows) {
  const auto width = static_cast<std::size_t>(seq_len);
  Tokens inputs(static_cast<std::size_t>(part.rows) * width), labels(inputs.size());
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const std::size_t at = static_cast<std::size_t>(row) * width;
    part.tokens(row, std::span(inputs).subspan(at, width), std::span(labels).subspan(at, width));
  }
  rows.push_back(same(golden, group + "/inputs", inputs));
  rows.push_back(same(golden, group + "/labels", labels));
  rows.push_back(same(golden, group + "/puzzle_indices", part.puzzle_indices));
  rows.push_back(same(golden, group + "/group_indices", part.group_indices));
  rows.push_back(same(golden, group + "/puzzle_identifiers", part.puzzle_identifiers));
}

/// The numbers of a dataset.json that upstream wrote, against ours.
GoldenRow compare_metadata(const H5File& golden, const std::string& group, const std::string& attribute,
                           const PuzzleSet& set, const PuzzlePart& part) {
  GoldenRow row{group.substr(1) + "/" + attribute, 0, 0, ""};
  const auto theirs = nlohmann::json::parse(golden.text_attribute(group, attribute), nullptr, false);
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
  if (ours != theirs) row.note = "ours " + ours.dump() + ", the reference has " + theirs.dump();
  return row;
}

BasePuzzles table(const H5File& golden, const std::string& group, const std::string& attribute,
                  void (*parse)(const PuzzleRow&, Tokens&, Tokens&)) {
  std::istringstream in(golden.text_attribute(group, attribute));
  BasePuzzles puzzles;
  Tokens question, answer;
  read_puzzle_csv(in, attribute, [&](const PuzzleRow& row) {
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

void compare_sudoku(const H5File& golden, std::vector<GoldenRow>& rows) {
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
  compare_part(golden, "/sudoku/train", train, set.seq_len, rows);
  compare_part(golden, "/sudoku/test", set.test[0], set.seq_len, rows);
  rows.push_back(compare_metadata(golden, "/sudoku", "train_dataset_json", set, train));
  rows.push_back(compare_metadata(golden, "/sudoku", "test_dataset_json", set, set.test[0]));
}

void compare_maze(const H5File& golden, std::vector<GoldenRow>& rows) {
  // The reference's answers are no paths: only alphabet, images and layout are compared.
  const BasePuzzles mazes = table(golden, "/maze", "csv", parse_maze);
  PuzzleSet set = maze_set(mazes.cells);
  set.num_aug = 7;
  add_base_puzzles(set, mazes, mazes);
  compare_part(golden, "/maze/train", set.train[0], set.seq_len, rows);
  compare_part(golden, "/maze/test", set.test[0], set.seq_len, rows);
  rows.push_back(compare_metadata(golden, "/maze", "train_dataset_json", set, set.train[0]));
  rows.push_back(compare_metadata(golden, "/maze", "test_dataset_json", set, set.test[0]));
}

void compare_dihedral(const H5File& golden, std::vector<GoldenRow>& rows) {
  const H5Info info = golden.info("/dihedral/input");
  require_data(info.shape.size() == 2, "reading '/dihedral/input' of '", golden.path().string(),
               "': two axes expected");
  const auto grid = golden.read<std::uint8_t>("/dihedral/input");
  Tokens image(grid.size());
  for (int id = 0; id < 8; ++id) {
    dihedral(id, static_cast<int>(info.shape[0]), static_cast<int>(info.shape[1]), grid, image);
    rows.push_back(same(golden, join("/dihedral/", id), image));
    auto shape = info.shape;
    if (dihedral_turns(id)) std::swap(shape[0], shape[1]);
    if (golden.info(join("/dihedral/", id)).shape != shape) rows.back().note = "rows and columns are exchanged";
  }
  rows.push_back(same(golden, "/dihedral/inverse", std::vector<int>(kDihedralInverse.begin(), kDihedralInverse.end())));
}

void compare_arc(const H5File& golden, std::vector<GoldenRow>& rows) {
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
      rows.push_back(same(golden, group + "/" + side + "_tokens", field));
      if (const std::string defect = arc_field_defect(field); !defect.empty())
        rows.back().note = "our own check: " + defect;
    }
  }
}

}  // namespace

std::vector<GoldenRow> check_golden_puzzles(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  std::vector<GoldenRow> rows;
  compare_sudoku(golden, rows);
  compare_dihedral(golden, rows);
  compare_maze(golden, rows);
  compare_arc(golden, rows);
  return rows;
}

}  // namespace lockstep::prep
