#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_set>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/prep/hrm/arc.hpp"
#include "lockstep/prep/hrm/maze.hpp"
#include "lockstep/prep/hrm/puzzle_division.hpp"
#include "lockstep/prep/hrm/puzzle_set.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"
#include "prep/page.hpp"
#include "prep/problems.hpp"

namespace lockstep::prep {

namespace {

using Tokens = std::vector<std::uint8_t>;

/// Problems of one kind: the first few, then the number of the others.
class Tally {
 public:
  explicit Tally(Problems& problems) : problems_(problems) {}
  ~Tally() {
    if (count_ > kShown) problems_.push_back(join("and ", count_ - kShown, " more like these"));
  }
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;
  void add(const auto&... parts) {
    if (count_++ < kShown) problems_.push_back(join(parts...));
  }

 private:
  static constexpr std::int64_t kShown = 5;
  Problems& problems_;
  std::int64_t count_ = 0;
};

int side_of(const PuzzleSet& set) { return static_cast<int>(std::lround(std::sqrt(static_cast<double>(set.seq_len)))); }

std::vector<std::pair<std::string, const std::vector<PuzzlePart>*>> splits_of(const PuzzleSet& set) {
  return {{"/train", &set.train}, {"/val", &set.val}, {"/test", &set.test}};
}

void check_task(const PuzzleSet& set, Problems& problems) {
  const auto expect = [&](bool holds, const char* sizes) {
    if (!holds)
      problems.push_back(join("task ", name(set.task), " has ", sizes, ", the file says seq_len ", set.seq_len,
                              ", vocab_size ", set.vocab_size));
  };
  const std::int64_t side = side_of(set);
  switch (set.task) {
    case PuzzleTask::sudoku:
      expect(sudoku_order(static_cast<std::size_t>(set.seq_len)) > 0 && set.vocab_size == side + 2,
             "seq_len 81, vocab_size 11 or seq_len 16, vocab_size 6");
      break;
    case PuzzleTask::maze:
      expect(side * side == set.seq_len && set.vocab_size == 6, "a square seq_len and vocab_size 6");
      break;
    case PuzzleTask::arc:
      expect(set.seq_len == kArcCells && set.vocab_size == kArcVocab, "seq_len 900, vocab_size 12");
      break;
  }
  check_sums(set.sources, set.sha256, problems);
}

/// Numbers of valid examples that a remark states.
struct Remarkable {
  std::int64_t longer = 0;      ///< maze answers that are not shortest paths
  std::int64_t unanswered = 0;  ///< ARC tests without an output
  std::int64_t few_givens = 0;  ///< Sudokus that cannot have a single solution
};

/// Why an example of a split is invalid, or "".
std::string example_defect(const PuzzleSet& set, bool test, const Tokens& inputs, const Tokens& labels,
                           Remarkable& seen) {
  if (set.task == PuzzleTask::sudoku) {
    const int order = sudoku_order(inputs.size());
    Tokens question(inputs), answer(labels);
    for (auto* grid : {&question, &answer})
      for (auto& token : *grid) {
        if (token == 0) return "a padding token in the grid";
        --token;
      }
    seen.few_givens += givens_of(question) < fewest_givens(order);
    if (const std::string twice = sudoku_contradiction(order, question); !twice.empty())
      return "the question contradicts itself: " + twice;
    return sudoku_answer_defect(order, question, answer);
  }
  if (set.task == PuzzleTask::maze) {
    const MazeReport report = inspect_maze(side_of(set), inputs, labels);
    seen.longer += report.defect.empty() && report.steps != report.shortest;
    return report.defect;
  }
  const bool unanswered = test && std::ranges::all_of(labels, [](auto token) { return token == 0; });
  seen.unanswered += unanswered;
  const std::string input = arc_field_defect(inputs), label = unanswered ? "" : arc_field_defect(labels);
  return !input.empty() ? "the input " + input : !label.empty() ? "the label grid " + label : "";
}

void check_rows(const PuzzleSet& set, const PuzzlePart& part, const std::string& where, Remarkable& seen,
                Problems& problems) {
  Tally tally(problems);
  Tokens inputs(static_cast<std::size_t>(set.seq_len)), labels(inputs.size());
  for (std::int64_t row = 0; row < part.rows; ++row) {
    part.tokens(row, inputs, labels);
    const auto foreign = [&](std::uint8_t token) { return token >= set.vocab_size; };
    const auto in = std::find_if(inputs.begin(), inputs.end(), foreign);
    const auto out = std::find_if(labels.begin(), labels.end(), foreign);
    if (in != inputs.end() || out != labels.end()) {
      const bool input = in != inputs.end();
      tally.add(where, input ? "/inputs" : "/labels", " row ", row, ": token ", int{input ? *in : *out}, " in cell ",
                (input ? in - inputs.begin() : out - labels.begin()) + 1, " is not below vocab_size ", set.vocab_size);
      continue;
    }
    const std::string defect = example_defect(set, where.starts_with("/test/"), inputs, labels, seen);
    if (!defect.empty()) tally.add(where, " row ", row, ": ", defect);
  }
}

void check_totals(const H5File& file, const std::string& split, const std::vector<PuzzlePart>& parts,
                  Problems& problems) {
  const PuzzleTotals totals(parts);
  const double mean = totals.mean(), stored_mean = file.real_attribute(split, "mean_puzzle_examples");
  const std::int64_t stored_groups = file.int_attribute(split, "total_groups"),
                     stored_puzzles = file.int_attribute(split, "total_puzzles");
  if (stored_groups != totals.groups || stored_puzzles != totals.puzzles ||
      !(std::abs(stored_mean - mean) <= 1e-12 * mean))
    problems.push_back(join(split, " says ", stored_groups, " groups, ", stored_puzzles, " puzzles, ", stored_mean,
                            " examples each; its arrays hold ", totals.groups, ", ", totals.puzzles, ", ", mean));
}

/// Counts puzzles of each split that are equivalent to one of an earlier split, comparing the first puzzle of each
/// group.
void compare_splits(const PuzzleSet& set, std::vector<std::string>& remarks) {
  constexpr std::int64_t kMost = 20000;
  std::int64_t groups = 0;
  for (const auto* parts : {&set.train, &set.val, &set.test}) groups += PuzzleTotals(*parts).groups;
  if (groups > kMost) {
    remarks.push_back(
        join("equivalent puzzles in train and test were not searched: ", groups, " groups are more than ", kMost));
    return;
  }
  std::unordered_set<std::string> train, val;
  Tokens inputs(static_cast<std::size_t>(set.seq_len)), labels(inputs.size());
  for (const auto* parts : {&set.train, &set.val, &set.test}) {
    std::int64_t seen = 0, in_train = 0, in_val = 0;
    for (const auto& part : *parts) {
      for (std::int64_t group = 0; group < part.groups(); ++group) {
        const auto puzzle = static_cast<std::size_t>(part.group_indices[group]);
        part.tokens(part.puzzle_indices[puzzle], inputs, labels);
        const std::string text = canonical_puzzle(set.task, inputs, labels);
        ++seen;
        in_train += train.contains(text);
        in_val += val.contains(text);
        if (parts == &set.train) train.insert(text);
        if (parts == &set.val) val.insert(text);
      }
    }
    const char* const what = parts == &set.val ? "validation" : "test";
    if (parts != &set.train && seen > 0)
      remarks.push_back(join(in_train, " of ", seen, " ", what, " puzzles are equivalent to a training puzzle"));
    if (parts == &set.test && !set.val.empty())
      remarks.push_back(join(in_val, " of ", seen, " test puzzles are equivalent to a validation puzzle"));
  }
}

/// The grid in a field, without its place: the colours, then the width.
Tokens grid_of(const Tokens& field) {
  Tokens grid;
  std::size_t left = kArcSide, right = 0;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] < kArcColour) continue;
    left = std::min(left, i % kArcSide);
    right = std::max(right, i % kArcSide);
    grid.push_back(field[i]);
  }
  grid.push_back(static_cast<std::uint8_t>(right - left));
  return grid;
}

void show_grid(const PuzzleSet& set, const Tokens& inputs, const Tokens& labels, std::ostream& out) {
  static constexpr std::string_view kSudoku = "?.123456789", kMaze = "?# SGo", kArc = " |0123456789";
  const std::string_view letters = set.task == PuzzleTask::sudoku ? kSudoku
                                   : set.task == PuzzleTask::maze ? kMaze
                                                                  : kArc;
  const auto side = static_cast<std::size_t>(side_of(set));
  for (std::size_t row = 0; row < side; ++row) {
    std::string line = "  ";
    for (const Tokens* grid : {&inputs, &labels}) {
      for (std::size_t column = 0; column < side; ++column) {
        const std::size_t token = (*grid)[row * side + column];
        line += token < letters.size() ? letters[token] : '?';
      }
      line += "   ";
    }
    const auto last = line.find_last_not_of(' ');
    if (last != std::string::npos) out << line.substr(0, last + 1) << "\n";
  }
}

}  // namespace

std::vector<std::string> arc_repeats(const PuzzleSet& set) {
  using Pair = std::pair<Tokens, Tokens>;
  Tokens inputs(static_cast<std::size_t>(set.seq_len)), labels(inputs.size());
  /// The pairs of a group's first puzzle, the task itself.
  const auto pairs_of = [&](const PuzzlePart& part, std::int64_t group) {
    std::vector<Pair> pairs;
    const auto puzzle = static_cast<std::size_t>(part.group_indices[group]);
    for (std::int64_t row = part.puzzle_indices[puzzle]; row < part.puzzle_indices[puzzle + 1]; ++row) {
      part.tokens(row, inputs, labels);
      pairs.emplace_back(grid_of(inputs), grid_of(labels));
    }
    std::ranges::sort(pairs);
    return pairs;
  };
  std::set<std::vector<Pair>> tasks;
  std::set<Pair> trained;
  std::int64_t twice = 0, tests = 0, known = 0;
  for (const PuzzlePart& part : set.train)
    for (std::int64_t group = 0; group < part.groups(); ++group) {
      std::vector<Pair> pairs = pairs_of(part, group);
      trained.insert(pairs.begin(), pairs.end());
      twice += !tasks.insert(std::move(pairs)).second;
    }
  for (const PuzzlePart& part : set.test) {
    for (std::int64_t group = 0; group < part.groups(); ++group)
      for (const Pair& pair : pairs_of(part, group)) {
        ++tests;
        known += trained.contains(pair);
      }
  }
  std::vector<std::string> remarks;
  if (twice > 0) remarks.push_back(join(twice, " tasks have the training pairs of another task with another name"));
  if (known > 0) remarks.push_back(join(known, " of ", tests, " tests are also training examples"));
  return remarks;
}

std::vector<std::string> check_puzzle_set(const H5File& file, std::vector<std::string>& remarks) {
  Problems problems;
  const PuzzleSet set = read_puzzle_set(file, &problems);
  check_task(set, problems);
  check_totals(file, "/train", set.train, problems);
  check_totals(file, "/test", set.test, problems);
  if (!set.val.empty()) check_totals(file, "/val", set.val, problems);
  if (PuzzleTotals(set.train).rows == 0) problems.emplace_back("there are no training rows");
  if (PuzzleTotals(set.test).rows == 0) remarks.emplace_back("there are no test rows");
  if (set.online) {
    if (set.task == PuzzleTask::arc) problems.emplace_back("task arc has no variants that are drawn while training");
    if (set.task == PuzzleTask::maze && set.num_aug > 7)
      problems.push_back(join("a maze has 7 variants, not ", set.num_aug));
    for (const auto& part : set.train)
      if (part.puzzles() != part.groups() || part.rows != part.groups())
        problems.push_back(
            join("/train/", part.name, ": augment is online, so each group must hold one puzzle of one example"));
  }
  if (!problems.empty()) return problems;

  for (const char* split : {"/train", "/val", "/test"})
    if (file.has(split)) DatasetFile(file, kHrmFormat).verify(split);
  Remarkable seen;
  for (const auto& [split, parts] : splits_of(set))
    for (const auto& part : *parts) check_rows(set, part, split + "/" + part.name, seen, problems);
  if (seen.longer > 0) remarks.push_back(join(seen.longer, " answers are not the shortest path"));
  if (seen.few_givens > 0) remarks.push_back(join(seen.few_givens, " puzzles ", kFewGivens));
  if (seen.unanswered > 0)
    remarks.push_back(join(seen.unanswered, " test examples have no answer: lockstep predict solves them"));
  if (problems.empty() && set.task != PuzzleTask::arc) compare_splits(set, remarks);
  if (problems.empty() && set.task == PuzzleTask::arc)
    for (const std::string& remark : arc_repeats(set)) remarks.push_back(remark);
  return problems;
}

void describe_puzzle_set(const H5File& file, std::ostream& out) {
  const PuzzleSet set = read_puzzle_set(file);
  Page page(out, file, join("puzzles (", name(set.task), ")"));
  page.line("tokens", set.seq_len, " per grid, vocabulary ", set.vocab_size, ", padding ", set.pad_id,
            ", ignored label ", set.ignore_label_id);
  page.line("identifiers", set.identifiers.size());
  page.line("variants", set.num_aug, set.num_aug == 0 ? "" : set.online ? ", drawn while training" : ", stored");
  page.line("seed", set.seed);
  for (const auto& [split, parts] : splits_of(set)) {
    for (const auto& part : *parts) {
      page.line(split.substr(1) + "/" + part.name, part.groups(), " groups, ", part.puzzles(), " puzzles, ", part.rows,
                " examples");
      if (!part.rating.empty()) {
        const auto [low, high] = std::minmax_element(part.rating.begin(), part.rating.end());
        double sum = 0;
        for (const auto rating : part.rating) sum += rating;
        page.line("  rating", "mean ", sum / static_cast<double>(part.rating.size()), ", ", *low, " .. ", *high);
      }
      std::map<std::int32_t, std::int64_t> by_source;
      for (const auto source : part.source) ++by_source[source];
      for (const auto& [source, count] : by_source) {
        const bool known = source >= 0 && source < std::ssize(set.source_names);
        page.line("  source", known ? set.source_names[source] : std::to_string(source), ": ", count);
      }
    }
  }
  page.sources(set.sources, set.sha256);
  page.attributes("/", set.notes);
  for (const auto& part : set.train) {
    if (part.rows == 0) continue;
    Tokens inputs(static_cast<std::size_t>(set.seq_len)), labels(inputs.size());
    part.tokens(0, inputs, labels);
    out << "\n  first example of train/" << part.name << ", and its answer\n";
    show_grid(set, inputs, labels, out);
    break;
  }
}

}  // namespace lockstep::prep
