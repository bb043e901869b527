#include "tasks/hrm/puzzle_rules.hpp"

#include "support/test.hpp"

namespace {

/// The tokens of a maze's or Sudoku's cells.
std::vector<std::int32_t> tokens(const std::string& cells, const std::string& alphabet) {
  std::vector<std::int32_t> out;
  for (const char c : cells) out.push_back(static_cast<std::int32_t>(alphabet.find(c)));
  return out;
}

}  // namespace

TEST_SUITE("tasks.puzzle_rules") {
  TEST_CASE("a maze is solved by a shortest path and by nothing else") {
    const auto defect = [](const std::string& answer) {
      return puzzle_defect("maze", tokens("S  G    # # ##  ", "?# SGo"), tokens(answer, "?# SGo"));
    };
    CHECK(defect("SooG    # # ##  ").empty());
    CHECK(defect("S  G    # # ##  ") == "the path of the answer does not lead from the start to the goal");
    CHECK(defect("So G    # # ##  ") == "the path of the answer does not lead from the start to the goal");
    CHECK(defect("S  Goooo# # ##  ") == "a path of 5 steps; the shortest has 3");
    CHECK(defect("SooG   o# # ##  ") == "a path of 4 steps; the shortest has 3");  // with a cell beside it
    CHECK(defect("SooG    o # ##  ") == "cell 9 of the answer does not match the question");
    CHECK(defect("SoSG    # # ##  ") == "cell 3 of the answer does not match the question");
  }

  TEST_CASE("a Sudoku is solved by full rows, columns and boxes that keep the given cells") {
    const auto defect = [](const std::string& answer) {
      return puzzle_defect("sudoku", tokens("1..............1", "?.1234"), tokens(answer, "?.1234"));
    };
    CHECK(defect("1234341221434321").empty());
    CHECK(defect("12343412214343.1") == "cell 15 is empty");
    CHECK(defect("1134341221434321") == "digit 1 twice in row 1");
    CHECK(defect("2134341212434321") == "given cell 1 was changed");
  }
}
