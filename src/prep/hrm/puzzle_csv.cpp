#include "lockstep/prep/hrm/puzzle_csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

namespace {

std::int32_t rating_of(const std::string& text, const std::string& where) {
  std::int32_t rating = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rating);
  require_data(error == std::errc() && end == text.data() + text.size(), "reading ", where, ": rating '", text,
               "' is not an integer");
  require_data(rating >= 0, "reading ", where, ": rating ", rating, " is negative");
  return rating;
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

PuzzlePart part_of(PuzzleSet& set, BasePuzzles base, std::int64_t stored_variants) {
  auto inputs = std::make_shared<const std::vector<std::uint8_t>>(std::move(base.inputs));
  auto labels = std::make_shared<const std::vector<std::uint8_t>>(std::move(base.labels));
  PuzzlePart part = grouped_part(set, std::move(inputs), std::move(labels), stored_variants);
  part.rating = std::move(base.rating);
  for (const auto& source : base.source) {
    const auto found = std::find(set.source_names.begin(), set.source_names.end(), source);
    part.source.push_back(static_cast<std::int32_t>(found - set.source_names.begin()));
    if (found == set.source_names.end()) set.source_names.push_back(source);
  }
  return part;
}

}  // namespace

void read_puzzle_csv(std::istream& in, const std::string& file, const std::function<void(const PuzzleRow&)>& use) {
  std::string line;
  std::int64_t number = 0, count = 0;
  std::size_t columns = 0;
  std::ptrdiff_t source = -1, question = -1, answer = -1, rating = -1;
  PuzzleRow row;
  std::vector<std::string> fields;
  while (next_line(in, line, number, file)) {
    if (line.empty()) continue;
    row.where = join("'", file, "' line ", number);
    require_data(split_csv(line, fields), "reading ", row.where, ": ", kCsvDefect);
    if (columns == 0) {
      columns = fields.size();
      const auto column = [&](const char* name) {
        const auto found = std::find(fields.begin(), fields.end(), name);
        return found == fields.end() ? std::ptrdiff_t{-1} : found - fields.begin();
      };
      source = column("source"), question = column("question"), answer = column("answer"), rating = column("rating");
      require_data(question >= 0 && answer >= 0, "reading ", row.where,
                   ": the header names no 'question' and 'answer'; expected source,question,answer,rating");
      continue;
    }
    require_data(fields.size() == columns, "reading ", row.where, ": ", fields.size(), " fields, the header has ",
                 columns);
    const auto field = [&](std::ptrdiff_t at) { return at < 0 ? std::string() : fields[static_cast<std::size_t>(at)]; };
    row.source = field(source);
    require_data(is_clean_utf8(row.source), "reading ", row.where, ": the source is not UTF-8 text");
    row.question = field(question);
    row.answer = field(answer);
    row.rating.reset();
    if (rating >= 0) row.rating = rating_of(field(rating), row.where);
    use(row);
    ++count;
  }
  require_data(!in.bad(), "reading '", file, "' failed after line ", number);
  require_data(columns > 0 && count > 0, "reading '", file, "': no puzzles in it");
}

void BasePuzzles::add(const PuzzleRow& row, const std::vector<std::uint8_t>& question,
                      const std::vector<std::uint8_t>& answer) {
  const auto length = static_cast<std::int64_t>(question.size());
  if (cells == 0) cells = length;
  require_data(length == cells, "reading ", row.where, ": the question has ", length,
               " cells, the puzzles before it have ", cells);
  inputs.insert(inputs.end(), question.begin(), question.end());
  labels.insert(labels.end(), answer.begin(), answer.end());
  if (row.rating) rating.push_back(*row.rating);
  if (!row.source.empty() || !source.empty()) {
    source.resize(static_cast<std::size_t>(size()));  // earlier rows may have had none
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
    if (!rating.empty()) out.rating.push_back(rating[static_cast<std::size_t>(row)]);
    if (!source.empty()) out.source.push_back(source[static_cast<std::size_t>(row)]);
  }
  return out;
}

void parse_sudoku(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer) {
  const int order = sudoku_order(row.question.size());
  require_data(order > 0, "reading ", row.where, ": the question has ", row.question.size(),
               " characters; a Sudoku has 81 (9x9) or 16 (4x4)");
  require_data(row.answer.size() == row.question.size(), "reading ", row.where, ": the answer has ", row.answer.size(),
               " characters, the question ", row.question.size());
  question = digits_of(row.question, order * order, "question", row.where);
  answer = digits_of(row.answer, order * order, "answer", row.where);
  const std::string twice = sudoku_contradiction(order, question);
  require_data(twice.empty(), "reading ", row.where, ": the question contradicts itself: ", twice);
  const std::string defect = sudoku_answer_defect(order, question, answer);
  require_data(defect.empty(), "reading ", row.where, ": ", defect);
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
