#include "lockstep/prep/hrm/puzzle_csv.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <istream>
#include <memory>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

namespace {

std::int32_t rating_of(const std::string& text, const std::string& where) {
  const auto rating = number_in<std::int32_t>(text);
  require_data(rating.has_value(), "reading ", where, ": rating '", text, "' is not an integer");
  require_data(*rating >= 0, "reading ", where, ": rating ", *rating, " is negative");
  return *rating;
}

/// Whether two names differ at most by the case of their letters.
bool same(const std::string& a, const std::string& b) {
  const auto lower = [](unsigned char c) { return std::tolower(c); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// The first of tab, semicolon and comma in a line; a comma if it has none.
char separator_of(const std::string& line) {
  const auto at = line.find_first_of("\t;,");
  return at == std::string::npos ? ',' : line[at];
}

/// A character in printable form.
std::string shown(char c) {
  if (c >= ' ' && c <= '~') return join("'", c, "'");
  return join("byte ", int{static_cast<unsigned char>(c)});
}

std::vector<std::uint8_t> digits_of(const std::string& text, int side, const char* what, const std::string& where) {
  std::vector<std::uint8_t> digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool blank = text[i] == '.' || text[i] == '0';
    require_data(blank || (text[i] >= '1' && text[i] <= '0' + side), "reading ", where, ": ", shown(text[i]),
                 " in cell ", i + 1, " of the ", what, " is neither a digit 1..", side, " nor a blank ('.' or '0')");
    digits.push_back(blank ? std::uint8_t{0} : static_cast<std::uint8_t>(text[i] - '0'));
  }
  return digits;
}

/// Each base puzzle is a group with `stored_variants` further puzzles.
PuzzlePart part_of(PuzzleSet& set, BasePuzzles base, std::int64_t stored_variants) {
  PuzzlePart part;
  const std::int64_t groups = base.size(), size = 1 + stored_variants;
  part.rows = groups * size;
  for (std::int64_t row = 0; row < part.rows; ++row) part.puzzle_indices.push_back(row + 1);
  for (std::int64_t group = 0; group < groups; ++group) part.group_indices.push_back((group + 1) * size);
  part.puzzle_identifiers.assign(part.rows, 0);
  const auto inputs = std::make_shared<const std::vector<std::uint8_t>>(std::move(base.inputs)),
             labels = std::make_shared<const std::vector<std::uint8_t>>(std::move(base.labels));
  part.tokens = [inputs, labels, width = static_cast<std::size_t>(set.seq_len), size,
                 variants = PuzzleVariants(set.task, set.seq_len, set.seed)](
                    std::int64_t row, std::span<std::uint8_t> out_inputs, std::span<std::uint8_t> out_labels) {
    const auto group = static_cast<std::size_t>(row / size);
    variants.apply(group, static_cast<std::uint64_t>(row % size), std::span(*inputs).subspan(group * width, width),
                   std::span(*labels).subspan(group * width, width), out_inputs, out_labels);
  };
  part.rating = std::move(base.rating);
  for (const auto& source : base.source) {
    const auto found = std::find(set.source_names.begin(), set.source_names.end(), source);
    part.source.push_back(static_cast<std::int32_t>(found - set.source_names.begin()));
    if (found == set.source_names.end()) set.source_names.push_back(source);
  }
  return part;
}

}  // namespace

PuzzleHeader read_puzzle_csv(std::istream& in, const std::string& file, const PuzzleColumns& columns, bool lists,
                             const std::function<void(const PuzzleRow&)>& use) {
  std::string line;
  std::int64_t number = 0, count = 0;
  std::size_t width = 0;
  std::ptrdiff_t source = -1, question = -1, answer = -1, rating = -1;
  char separator = ',';
  PuzzleHeader header;
  PuzzleRow row;
  std::vector<std::string> fields;
  const auto read_header = [&] {
    separator = separator_of(line);
    require_data(split_csv(line, fields, separator), "reading ", row.where, ": ", kCsvDefect);
    for (std::string& name : fields) name = trim(name);
    width = fields.size();
    if (lists && sudoku_order(fields[0].size()) > 0 &&
        fields[0].find_first_not_of(".0123456789") == std::string::npos) {
      question = 0;
      answer = width > 1 ? 1 : -1;
      header.used = join("no header: question", answer < 0 ? "" : ", answer");
      return false;
    }
    const auto column = [&](const char* what, const std::string& asked, std::vector<std::string> usual) {
      if (!asked.empty()) usual = {asked};
      for (const std::string& name : usual) {
        const auto found = std::ranges::find_if(fields, [&](const std::string& field) { return same(field, name); });
        if (found == fields.end()) continue;
        header.used += join(header.used.empty() ? "" : ", ", what, name == what ? "" : " = " + name);
        return found - fields.begin();
      }
      require_data(asked.empty(), "reading ", row.where, ": the header has no column '", asked, "'; its columns are ",
                   listed(fields));
      return std::ptrdiff_t{-1};
    };
    question = column("question", columns.question, {"question", "puzzle", "puzzles", "quiz", "quizzes"});
    answer = column("answer", columns.answer, {"answer", "solution", "solutions"});
    rating = column("rating", columns.rating, {"rating"});
    source = column("source", "", {"source"});
    require_data(question >= 0 && answer >= 0, "reading ", row.where, ": none of the columns ", listed(fields), " is ",
                 question < 0 ? "the question" : "the answer", "; name it with --",
                 question < 0 ? "question" : "answer", "-column",
                 lists ? ", or give one puzzle per line without a header" : "");
    std::vector<std::string> others;
    for (std::ptrdiff_t i = 0; i < std::ssize(fields); ++i)
      if (i != question && i != answer && i != rating && i != source) others.push_back(fields[i]);
    header.left_aside = listed(others);
    return true;
  };
  while (next_line(in, line, number, file)) {
    if (line.empty() || (width == 0 && line[0] == '#')) continue;
    row.where = join("'", file, "' line ", number);
    if (width == 0 && read_header()) continue;
    require_data(split_csv(line, fields, separator), "reading ", row.where, ": ", kCsvDefect);
    require_data(fields.size() == width, "reading ", row.where, ": ", fields.size(), " fields, ",
                 header.used.starts_with("no header") ? "the first line has " : "the header has ", width);
    const auto field = [&](std::ptrdiff_t at) { return at < 0 ? std::string() : fields[at]; };
    row.source = trim(field(source));
    require_data(is_clean_utf8(row.source), "reading ", row.where, ": the source is not UTF-8 text");
    row.question = field(question);
    row.answer = field(answer);
    row.rating.reset();
    if (rating >= 0) row.rating = rating_of(trim(field(rating)), row.where);
    use(row);
    ++count;
  }
  require_data(!in.bad(), "reading '", file, "' failed after line ", number);
  require_data(width > 0 && count > 0, "reading '", file, "': no puzzles in it");
  return header;
}

void BasePuzzles::add(const PuzzleRow& row, const std::vector<std::uint8_t>& question,
                      const std::vector<std::uint8_t>& answer) {
  const auto length = std::ssize(question);
  if (cells == 0) cells = length;
  require_data(length == cells, "reading ", row.where, ": the question has ", length,
               " cells, the puzzles before it have ", cells);
  inputs.insert(inputs.end(), question.begin(), question.end());
  labels.insert(labels.end(), answer.begin(), answer.end());
  if (row.rating) rating.push_back(*row.rating);
  if (!row.source.empty() || !source.empty()) {
    source.resize(size());  // earlier rows may have had none
    source.back() = row.source;
  }
}

BasePuzzles BasePuzzles::picked(const std::vector<std::int64_t>& rows) const {
  BasePuzzles out;
  out.cells = cells;
  for (const std::int64_t row : rows) {
    const auto at = static_cast<std::ptrdiff_t>(row * cells);
    out.inputs.insert(out.inputs.end(), inputs.begin() + at, inputs.begin() + at + cells);
    out.labels.insert(out.labels.end(), labels.begin() + at, labels.begin() + at + cells);
    if (!rating.empty()) out.rating.push_back(rating[row]);
    if (!source.empty()) out.source.push_back(source[row]);
  }
  return out;
}

void parse_sudoku(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer) {
  std::string asked = trim(row.question);
  const std::string solved = trim(row.answer);
  if (asked.size() < solved.size() && sudoku_order(solved.size()) > 0 &&
      asked.find_first_not_of("0123456789") == std::string::npos)
    asked.insert(0, solved.size() - asked.size(), '0');
  const int order = sudoku_order(asked.size());
  require_data(order > 0, "reading ", row.where, ": the question has ", asked.size(),
               " characters; a Sudoku has 81 (9x9) or 16 (4x4)");
  require_data(solved.empty() || solved.size() == asked.size(), "reading ", row.where, ": the answer has ",
               solved.size(), " characters, the question ", asked.size());
  question = digits_of(asked, order * order, "question", row.where);
  const std::string twice = sudoku_contradiction(order, question);
  require_data(twice.empty(), "reading ", row.where, ": the question contradicts itself: ", twice);
  if (solved.empty()) {
    const SudokuSolution solution = solve_sudoku(order, question);
    require_data(solution.count == 1, "reading ", row.where, ": the question has no answer, and ",
                 solution.count == 0 ? "no solution" : "more than one solution");
    answer = solution.first;
  } else {
    answer = digits_of(solved, order * order, "answer", row.where);
    const std::string defect = sudoku_answer_defect(order, question, answer);
    require_data(defect.empty(), "reading ", row.where, ": ", defect,
                 asked.size() > trim(row.question).size() ? "; the question has too few characters" : "");
  }
  for (auto* grid : {&question, &answer})
    for (auto& digit : *grid) ++digit;
}

void parse_maze(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer) {
  static constexpr std::string_view kAlphabet = "# SGo";
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(row.question.size()))));
  require_data(side > 1 && side * side == row.question.size(), "reading ", row.where, ": the question has ",
               row.question.size(), " characters, which is not a square grid");
  require_data(row.answer.size() == row.question.size(), "reading ", row.where, ": the answer has ", row.answer.size(),
               " characters, the question ", row.question.size());
  const auto tokens = [&](const std::string& text, const char* what, std::size_t letters) {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto at = kAlphabet.find(text[i]);
      require_data(at < letters, "reading ", row.where, ": ", shown(text[i]), " in cell ", i + 1, " of the ", what,
                   " is not one of '", kAlphabet.substr(0, letters), "'");
      out.push_back(static_cast<std::uint8_t>(at + 1));
    }
    return out;
  };
  question = tokens(row.question, "question", 4);
  answer = tokens(row.answer, "answer", 5);
}

PuzzleSet sudoku_set(std::int64_t cells) {
  PuzzleSet set;
  set.task = PuzzleTask::sudoku;
  set.seq_len = cells;
  set.vocab_size = std::lround(std::sqrt(static_cast<double>(cells))) + 2;
  return set;
}

PuzzleSet maze_set(std::int64_t cells) {
  PuzzleSet set;
  set.task = PuzzleTask::maze;
  set.seq_len = cells;
  set.vocab_size = 6;
  return set;
}

void add_base_puzzles(PuzzleSet& set, BasePuzzles train, BasePuzzles test, BasePuzzles val) {
  set.train.push_back(part_of(set, std::move(train), set.online ? 0 : set.num_aug));
  set.test.push_back(part_of(set, std::move(test), 0));
  if (val.size() > 0) set.val.push_back(part_of(set, std::move(val), 0));
}

}  // namespace lockstep::prep
