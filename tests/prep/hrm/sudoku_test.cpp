#include "lockstep/prep/hrm/sudoku.hpp"

#include "lockstep/samples/puzzle_variant.hpp"
#include "prep/hrm/puzzle_options.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
SudokuGrid grid(const std::string& text) {
  SudokuGrid out;
  for (const char c : text) out.push_back(c == '.' ? std::uint8_t{0} : static_cast<std::uint8_t>(c - '0'));
  return out;
}
// 17 givens, singles suffice; and one for which they do not (rating 130 of another solver).
const auto kEasy = grid("..9..4...7.....3.......91.........8....2......6..3.5..23..1...........9......8.4.");
const auto kEasyAnswer = grid("359164728741852369682379154523691487417285936968437512234916875876543291195728643");
const auto kHard = grid("4....3..1..32......7..483..........9.......5.3...796..78.9.......4.867..6.......8");
const auto kHardAnswer = grid("428763591563291487179548362846315279917624853352879614785932146294186735631457928");

/// Solutions by trying every digit in every blank: slow and obvious.
int count_plainly(SudokuGrid& g, int order, std::size_t at, int limit) {
  while (at < g.size() && g[at] != 0) ++at;
  if (at == g.size()) return 1;
  int count = 0;
  for (int digit = 1; digit <= order * order && count < limit; ++digit) {
    g[at] = static_cast<std::uint8_t>(digit);
    if (sudoku_contradiction(order, g).empty()) count += count_plainly(g, order, at + 1, limit - count);
  }
  g[at] = 0;
  return count;
}
}  // namespace

TEST_SUITE("prep.sudoku") {
  TEST_CASE("known puzzles get their answers; guesses are counted only where singles do not suffice") {
    const auto easy = solve_sudoku(3, kEasy);
    CHECK(easy.count == 1);
    CHECK(easy.first == kEasyAnswer);
    const auto hard = solve_sudoku(3, kHard);
    CHECK(hard.count == 1);
    CHECK(hard.first == kHardAnswer);
    CHECK(hard.guesses > 1);
    auto nearly = kEasyAnswer;
    nearly[40] = 0;
    CHECK(solve_sudoku(3, nearly).guesses == 0);
  }

  TEST_CASE("the number of solutions agrees with plain trial on random 4x4 grids") {
    Below below(3, 0, "test");
    std::array<int, 6> seen{};
    for (int round = 0; round < 300; ++round) {
      SudokuGrid question = random_solution(2, std::ref(below));
      CHECK(sudoku_contradiction(2, question).empty());
      for (auto& digit : question)
        if (below(4) != 0) digit = 0;
      if (round % 5 == 0) question[below(16)] = static_cast<std::uint8_t>(1 + below(4));  // mostly without a solution
      SudokuGrid copy = question;
      const int expected = sudoku_contradiction(2, question).empty() ? count_plainly(copy, 2, 0, 5) : 0;
      CHECK(solve_sudoku(2, question, 5).count == expected);
      ++seen[to_size(expected)];
    }
    CHECK(seen[0] > 0);
    CHECK(seen[1] > 0);
    CHECK(seen[5] > 0);
  }

  TEST_CASE("symmetries keep the canonical form, any other puzzle has another") {
    for (const int order : {2, 3}) {
      Below below(order == 2 ? 11 : 12, 0, "test");
      std::set<std::string> forms;
      for (int round = 0; round < 6; ++round) {
        SudokuGrid answer = random_solution(order, std::ref(below)), question = answer;
        for (auto& digit : question)
          if (below(2) == 0) digit = 0;
        const std::string form = canonical_sudoku(order, question, answer);
        SudokuGrid q(question.size()), a(answer.size());
        for (std::uint64_t variant = 1; variant <= 8; ++variant) {
          const auto drawn = draw_sudoku_variant(order, 5, static_cast<std::uint64_t>(round), variant);
          apply_sudoku_variant(drawn, question, q, 0);
          apply_sudoku_variant(drawn, answer, a, 0);
          CHECK(canonical_sudoku(order, q, a) == form);
        }
        // One given more or fewer is another puzzle.
        auto other = question;
        other[0] = other[0] == 0 ? answer[0] : std::uint8_t{0};
        CHECK(canonical_sudoku(order, other, answer) != form);
        forms.insert(form);
      }
      CHECK(forms.size() > 4);
    }
  }

  TEST_CASE("4x4 grids have two classes, as is known") {
    Below below(1, 0, "test");
    std::set<std::string> classes;
    std::set<std::string> grids;
    for (int round = 0; round < 4000; ++round) {
      const auto answer = random_solution(2, std::ref(below));
      if (grids.insert(std::string(answer.begin(), answer.end())).second)
        classes.insert(canonical_sudoku(2, answer, answer));
    }
    CHECK(grids.size() == 288);
    CHECK(classes.size() == 2);
  }

  TEST_CASE("a table's rows become tokens, and what is wrong with one is named by file and line") {
    const std::string q = "..9..4...7.....3.......91.........8....2......6..3.5..23..1...........9......8.4.";
    const std::string a = "359164728741852369682379154523691487417285936968437512234916875876543291195728643";
    const auto read = [](const std::string& text) {
      BasePuzzles puzzles;
      std::istringstream in("source,question,answer,rating\n" + text);
      std::vector<std::uint8_t> question, answer;
      read_puzzle_csv(in, "t.csv", {}, true, [&](const PuzzleRow& row) {
        parse_sudoku(row, question, answer);
        puzzles.add(row, question, answer);
      });
      return puzzles;
    };
    const auto puzzles = read("lists," + q + "," + a + ",3\r\n\n\"a, \"\"b\"\"\",\"" + q + "\"," + a + ",1\n");
    REQUIRE(puzzles.size() == 2);
    CHECK(puzzles.inputs[0] == 1);
    CHECK(puzzles.inputs[2] == 10);
    CHECK(puzzles.labels[80] == 4);
    CHECK(puzzles.rating == std::vector<std::int32_t>{3, 1});
    CHECK(puzzles.source == std::vector<std::string>{"lists", "a, \"b\""});
    CHECK(read("," + q + "," + a + ",3\nlists," + q + "," + a + ",1\n").source ==
          std::vector<std::string>{"", "lists"});

    const auto error = [&](const std::string& text) {
      return error_of(Fault::data, [&] { read("x," + q + "," + a + ",0\n" + text); });
    };
    const auto changed = [](std::string text, std::size_t at, char c) {
      text[at] = c;
      return text;
    };
    check_mentions(error("x," + q + "," + a + ",-1\n"), "'t.csv' line 3", "rating -1 is negative");
    check_mentions(error("x," + q.substr(1) + "," + a + ",0\n"), "'t.csv' line 3", "80 characters");
    check_mentions(error("x," + q + "," + a + "1,0\n"), "line 3", "82 characters");
    check_mentions(error("x," + changed(q, 4, 'x') + "," + a + ",0\n"), "line 3", "'x' in cell 5 of the question");
    check_mentions(error("x," + changed(q, 0, '9') + "," + a + ",0\n"), "line 3",
                   "contradicts itself: digit 9 twice in row 1");
    check_mentions(error("x," + q + "," + changed(a, 2, '3') + ",0\n"),
                   "the answer has 3 in cell 3, where the question gives 9");
    check_mentions(error("x," + q + "," + changed(a, 0, '5') + ",0\n"), "line 3",
                   "the answer has digit 5 twice in row 1");
    check_mentions(error("x," + q + "," + changed(a, 0, '.') + ",0\n"), "leaves cell 1 blank");
    check_mentions(error("x," + q + "," + a + ",hard\n"), "rating 'hard'");
    check_mentions(error("x," + q + "," + a + "\n"), "3 fields, the header has 4");
    check_mentions(error("x,\"" + q + "," + a + ",0\n"), "a quoted field is not closed");
    check_mentions(error("x,1234341221434321,1234341221434321,0\n"), "16 cells, the puzzles before it have 81");
  }

  TEST_CASE("tables have any usual header and separator; lists have none; what was left aside is named") {
    const std::string q = "..9..4...7.....3.......91.........8....2......6..3.5..23..1...........9......8.4.";
    const std::string a = "359164728741852369682379154523691487417285936968437512234916875876543291195728643";
    struct Read {
      PuzzleHeader header;
      std::vector<std::uint8_t> question, answer;
    };
    const auto read = [](const std::string& text, const PuzzleColumns& columns = {}) {
      Read read;
      std::istringstream in(text);
      read.header = read_puzzle_csv(in, "t.csv", columns, true,
                                    [&](const PuzzleRow& row) { parse_sudoku(row, read.question, read.answer); });
      return read;
    };
    const Read expected = read("source,question,answer,rating\nx," + q + "," + a + ",3\n");
    CHECK(expected.header.used == "question, answer, rating, source");
    CHECK(expected.header.left_aside.empty());
    std::string zeros = q;
    std::ranges::replace(zeros, '.', '0');
    for (const std::string& text : {
             "quizzes,solutions\n" + zeros + "," + a + "\n",
             "id,puzzle,solution,clues,difficulty\n1," + q + "," + a + ",21,2.5\n",
             "source; question; answer; rating\nx; " + q + "; " + a + "; 3\n",
             "Question\tAnswer\n" + q + "\t" + a + "\n",
             "question,answer\n" + zeros.substr(2) + "," + a + "\n",  // as a number
             "# hard ones\n" + q + "\n",                              // solved
             q + "," + a + "\n",
         }) {
      CAPTURE(text);
      const Read found = read(text);
      CHECK(found.question == expected.question);
      CHECK(found.answer == expected.answer);
    }
    CHECK(read("id,puzzle,solution,clues\n1," + q + "," + a + ",21\n").header.left_aside == "id, clues");
    CHECK(read("p,s,level\n" + q + "," + a + ",21\n", {"p", "s", "level"}).header.used ==
          "question = p, answer = s, rating = level");
    const auto error = [&](const std::string& text, const PuzzleColumns& columns = {}) {
      return error_of(Fault::data, [&] { read(text, columns); });
    };
    check_mentions(error("a,b\n1,2\n"), "line 1: none of the columns a, b is the question", "--question-column");
    check_mentions(error("question,b\n1,2\n"), "is the answer", "--answer-column");
    check_mentions(error("a,b\n1,2\n", {"c", "", ""}), "no column 'c'; its columns are a, b");
    check_mentions(error(std::string(81, '.') + "\n"), "no answer, and more than one solution");
    // Digits that do not begin with zeros are not made to fit.
    check_mentions(error("question,answer\n" + zeros.substr(0, 79) + "," + a + "\n"), "line 2",
                   "the question has too few characters");
  }
}
