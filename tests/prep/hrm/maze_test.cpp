#include "lockstep/prep/hrm/maze.hpp"

#include "lockstep/samples/puzzle_variant.hpp"
#include "prep/hrm/puzzle_options.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
MazeGrid tokens(const std::string& text) {
  MazeGrid out;
  for (const char c : text) out.push_back(static_cast<std::uint8_t>(std::string("# SGo").find(c) + 1));
  return out;
}
const std::string kQuestion =
    "S  #"
    " # #"
    "    "
    "## G";
}  // namespace

TEST_SUITE("prep.maze") {
  TEST_CASE("an answer must keep the walls and lead to the goal; its length is compared with the shortest") {
    const auto question = tokens(kQuestion);
    const auto defect = [&](const std::string& answer) { return inspect_maze(4, question, tokens(answer)); };
    const auto good = defect("S  #o# #oooo## G");
    CHECK(good.defect.empty());
    CHECK(good.steps == 6);
    CHECK(good.shortest == 6);
    const auto around = defect("Soo#o#o#oooo## G");
    CHECK(around.defect.empty());
    CHECK(around.steps == 9);
    check_mentions(defect("S  #o# #o oo## G").defect, "does not lead");
    check_mentions(defect("S   o# #oooo## G").defect, "cell 4 of the answer does not match");
    check_mentions(defect("S  #oo #oooo## G").defect, "cell 6");
    CHECK(inspect_maze(2, tokens("SS #"), tokens("SS #")).defect ==
          "the question has 2 starts and 0 goals, expected one of each");
  }

  TEST_CASE("generated mazes have the requested length, and the only or the first shortest way") {
    MazeRecipe recipe{.side = 12, .min_path = 14};
    for (const bool carved : {true, false}) {
      recipe.carved = carved;
      recipe.unique = !carved;
      recipe.density = 0.3;
      int made = 0;
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Below below(seed, 0, "test");
        MazeGrid question, answer;
        if (!make_maze(recipe, std::ref(below), question, answer)) continue;
        ++made;
        const auto report = inspect_maze(12, question, answer);
        CHECK(report.defect.empty());
        CHECK(report.steps == report.shortest);
        CHECK(report.shortest >= 14);
        // The only way: with any path cell walled up the shortest way is longer, or there is none.
        const auto goal = to_size(std::find(question.begin(), question.end(), kMazeGoal) - question.begin());
        const auto start = to_size(std::find(question.begin(), question.end(), kMazeStart) - question.begin());
        for (std::size_t cell = 0; cell < answer.size(); ++cell) {
          if (answer[cell] != kMazePath) continue;
          auto walled = question;
          walled[cell] = kMazeWall;
          const auto steps = maze_distances(12, walled, start)[goal];
          CHECK((steps < 0 || (steps > report.shortest && !carved)));
        }
      }
      CHECK(made > 5);
    }
  }

  TEST_CASE("of several shortest ways the answer goes up before left, seen from the goal") {
    // An empty field: every draw's way first climbs from the goal to the start's row, then walks along it.
    MazeRecipe recipe = {.side = 6, .carved = false, .density = 0, .min_path = 2};
    Below below(4, 0, "test");
    MazeGrid question, answer;
    int seen = 0;
    for (int round = 0; round < 50; ++round) {
      REQUIRE(make_maze(recipe, std::ref(below), question, answer));
      const auto start = static_cast<int>(std::find(question.begin(), question.end(), kMazeStart) - question.begin());
      const auto goal = static_cast<int>(std::find(question.begin(), question.end(), kMazeGoal) - question.begin());
      if (goal / 6 <= start / 6 || goal % 6 == start % 6) continue;
      ++seen;
      for (int row = start / 6; row < goal / 6; ++row) CHECK(answer[to_size(row * 6 + goal % 6)] == kMazePath);
    }
    CHECK(seen > 5);
  }

  TEST_CASE("the canonical form is that of the images, and of nothing else") {
    const auto question = tokens(kQuestion);
    MazeGrid image(16);
    for (int id = 0; id < 8; ++id) {
      dihedral(id, 4, 4, question, image);
      CHECK(canonical_maze(4, image) == canonical_maze(4, question));
    }
    image = question;
    image[1] = kMazeWall;
    CHECK(canonical_maze(4, image) != canonical_maze(4, question));
  }

  TEST_CASE("foreign characters, path cells in questions and grids that are no squares are named") {
    std::vector<std::uint8_t> question, answer;
    const auto error = [&](const std::string& q, const std::string& a) {
      return error_of(Fault::data, [&] { parse_maze({"'m.csv' line 2", "", q, a, {}}, question, answer); });
    };
    check_mentions(error("S G", "S G"), "'m.csv' line 2", "3 characters, which is not a square grid");
    check_mentions(error("S?G ", "S G "), "'?' in cell 2 of the question");
    check_mentions(error("SoG ", "SoG "), "'o' in cell 2 of the question");
    check_mentions(error("S G ", "SoG\t"), "byte 9 in cell 4 of the answer");
    CHECK(error("S G ", "SoG ") == "no error");
    CHECK(answer == MazeGrid{3, 5, 4, 2});
  }
}
