#include "prep/hrm/puzzle_options.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "lockstep/base/memory_limit.hpp"
#include "lockstep/prep/hrm/puzzle_division.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

PuzzleOptions::PuzzleOptions(Options& options, std::uint64_t default_seed, Augment kind)
    : SourceOptions(options, Input::none) {
  options.add("seed", &seed, default_seed, "seed of every random choice");
  if (kind == Augment::option)
    options.choice(
        "augment", &augment, "offline", {"offline", "online"},
        "offline stores the variants; online stores only their number, and training draws the same variants");
  options.add("deflate", &deflate, 0, between(0, 9), "deflate level of the grids; 0: not compressed");
}

void PuzzleOptions::require_room(std::int64_t train, std::int64_t test, std::int64_t variants,
                                 std::int64_t cells) const {
  const auto held_out = static_cast<double>(test + val), base = static_cast<double>(train);
  const auto grid = static_cast<double>(cells);
  // Question and answer as drawn and as picked for a split, and the key that finds equivalent puzzles.
  require_memory_for((base + held_out) * 5 * grid, join("making the data: ", train + test + val, " puzzles need"),
                     "lower train, test or val");
  const double stored = base * static_cast<double>(augment == "online" ? 1 : 1 + variants) + held_out;
  if (deflate == 0) require_space(output, static_cast<std::int64_t>(stored * 2 * grid));
}

void PuzzleOptions::apply(PuzzleSet& set) const {
  set.seed = seed;
  set.online = augment == "online";
}

void PuzzleOptions::write(PuzzleSet& set) {
  const auto parts = [&](const char* split, const std::vector<PuzzlePart>& all) {
    for (const auto& part : all)
      summary.line(join(split, "/", part.name), part.groups(), " groups, ", part.puzzles(), " puzzles, ", part.rows,
                   " examples");
  };
  parts("train", set.train);
  parts("val", set.val);
  parts("test", set.test);
  if (set.num_aug > 0)
    summary.line("variants", set.num_aug, " of each training puzzle, ", set.online ? "drawn while training" : "stored");
  if (val_ && set.val.empty() && !set.test.empty() && set.test.front().rows > 0)
    summary.note("without validation puzzles, training selects its best weights by the test puzzles; see --val");
  settle(set.notes);
  write_puzzle_set(output, set, deflate);
  print_written();
}

void PuzzleOptions::add_val(Options& options, const std::string& help) {
  val_ = true;
  options.add(
      "val", &val, std::int64_t{0}, between(0, 1e9),
      help + ", none of them equivalent to another puzzle of the file; training selects its best weights by them");
}

namespace {
/// The range of the numbers that `of` gives for the puzzles: "24 to 31", "24".
std::string range_of(std::int64_t count, const auto& of) {
  std::int64_t least = of(0), most = least;
  for (std::int64_t i = 1; i < count; ++i) {
    least = std::min<std::int64_t>(least, of(i));
    most = std::max<std::int64_t>(most, of(i));
  }
  return least == most ? join(least) : join(least, " to ", most);
}

/// What a table holds.
void summarise(const BasePuzzles& puzzles, const std::string& path, const PuzzleHeader& header, bool sudoku,
               Summary& summary) {
  const auto side = std::lround(std::sqrt(static_cast<double>(puzzles.cells)));
  const auto digits_of = [&](std::int64_t i) {
    const auto first = puzzles.inputs.begin() + i * puzzles.cells;
    return std::count_if(first, first + puzzles.cells, [](std::uint8_t token) { return token > 1; });
  };
  summary.line("table", "'", path, "': ", puzzles.size(), " puzzles of ", side, " x ", side, " cells",
               sudoku ? ", givens " + range_of(puzzles.size(), digits_of) : "",
               puzzles.rating.empty() ? ", no ratings" : ", rating " + range_of(puzzles.size(), [&](std::int64_t i) {
                                                           return puzzles.rating[i];
                                                         }));
  summary.line("  columns", header.used, header.left_aside.empty() ? "" : "; left aside: ", header.left_aside);
  if (puzzles.repeated > 0)
    summary.note(puzzles.repeated, " rows of '", path,
                 "' repeat the question and answer of an earlier row; they are kept");
  if (puzzles.disputed > 0)
    summary.warning(puzzles.disputed, " rows of '", path,
                    "' give another answer to the question of an earlier row, so one of the two counts as wrong");
  if (puzzles.restored > 0)
    summary.note(puzzles.restored, " questions of '", path,
                 "' had lost zeros at their start, as in a spreadsheet; they are restored, and the answers fit them");
  if (puzzles.solved > 0) summary.note(puzzles.solved, " answers are not in '", path, "'; they are computed");
  std::int64_t few = 0;
  for (std::int64_t i = 0; sudoku && i < puzzles.size(); ++i)
    few += digits_of(i) < fewest_givens(sudoku_order(static_cast<std::size_t>(puzzles.cells)));
  if (few > 0) summary.note(few, " puzzles of '", path, "' ", kFewGivens);
}

/// The puzzles of a table, or none if `path` is "".
BasePuzzles read_puzzles(const std::string& path, const PuzzleColumns& columns, bool sudoku, const PuzzleParser& parse,
                         std::int64_t minimum, Summary& summary) {
  BasePuzzles puzzles;
  if (path.empty()) return puzzles;
  require_usage(!std::filesystem::exists(path) || std::filesystem::is_regular_file(path), "reading '", path,
                "': not a regular file");
  std::ifstream in(path);
  require_usage(in.good(), "reading '", path, "': ", std::strerror(errno));
  std::vector<std::uint8_t> question, answer;
  std::int64_t seen = 0;
  std::unordered_map<std::size_t, std::size_t> known;  // of a question its first answer, both by hash
  const PuzzleHeader header = read_puzzle_csv(in, path, columns, sudoku, [&](const PuzzleRow& row) {
    require_data(minimum < 0 || row.rating.has_value(), "reading ", row.where,
                 ": no rating, which option min-difficulty = ", minimum, " needs");
    parse(row, question, answer);
    ++seen;
    if (minimum >= 0 && *row.rating < minimum) return;
    puzzles.add(row, question, answer);
    puzzles.solved += trim(row.answer).empty();
    puzzles.restored += sudoku && trim(row.question).size() < question.size();
    const std::hash<std::string> hash_of;
    const std::size_t hash = hash_of(row.answer);
    const auto [earlier, fresh] = known.try_emplace(hash_of(row.question), hash);
    puzzles.repeated += !fresh && earlier->second == hash;
    puzzles.disputed += earlier->second != hash;
  });
  require_data(puzzles.size() > 0, "reading '", path, "': none of ", seen, " puzzles has a rating of at least ",
               minimum);
  summarise(puzzles, path, header, sudoku, summary);
  return puzzles;
}

/// Records the name and checksum of a raw file; nothing for "".
void add_source_file(PuzzleSet& set, const std::string& path) {
  if (path.empty()) return;
  set.sources.push_back(std::filesystem::path(path).filename().string());
  set.sha256.push_back(sha256_of(path));
}
}  // namespace

PuzzleTables::PuzzleTables(Options& options, const std::string& puzzles) {
  options.add("train=FILE.csv", &train_, "", "table of training " + puzzles).required();
  options.add("test=FILE.csv", &test_, "", "table of test " + puzzles);
  options.add("question-column", &columns_.question, "", "column of the questions; \"\": question, puzzle or quizzes");
  options.add("answer-column", &columns_.answer, "", "column of the answers; \"\": answer or solution(s)");
  options.add("rating-column", &columns_.rating, "",
              "column of whole numbers, the difficulty; \"\": rating, if there is one");
  options.add("subsample-size", &subsample_, std::int64_t{0}, non_negative,
              "number of training " + puzzles + " to keep, chosen at random; 0 keeps all");
}

void PuzzleTables::write(PuzzleOptions& common, const PuzzleParser& parse, std::int64_t minimum,
                         PuzzleSet (*set_of)(std::int64_t cells), std::int64_t num_aug,
                         const DatasetNotes& notes) const {
  require_writable(common.output, {train_, test_});
  const bool sudoku = set_of == sudoku_set;
  const BasePuzzles table = read_puzzles(train_, columns_, sudoku, parse, minimum, common.summary);
  BasePuzzles tested = read_puzzles(test_, columns_, sudoku, parse, minimum, common.summary);
  require_data(tested.size() == 0 || tested.cells == table.cells, "reading '", test_, "': grids of ", tested.cells,
               " cells, '", train_, "' has ", table.cells);
  PuzzleSet set = set_of(table.cells);
  DividedPuzzles kept =
      divide_puzzles(table, tested, {.task = set.task, .train = subsample_, .val = common.val, .seed = common.seed});
  common.apply(set);
  set.num_aug = num_aug;
  set.notes = {{"subsample_size", subsample_}};
  set.notes.insert(set.notes.end(), notes.begin(), notes.end());
  add_source_file(set, train_);
  add_source_file(set, test_);
  add_base_puzzles(set, std::move(kept.train), std::move(tested), std::move(kept.val));
  common.write(set);
}

}  // namespace lockstep::prep
