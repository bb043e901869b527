#include "lockstep/tasks/hrm/arc_vote.hpp"

#include "lockstep/samples/puzzle_variant.hpp"
#include "support/test.hpp"

namespace {

constexpr int kSide = 30;

struct Grid {
  int rows, columns;
  std::vector<std::uint8_t> cells;
};

/// The tokens of a grid's variant, with end markers, at the top left of a field.
std::vector<std::int32_t> field_of(const Grid& grid, const ArcName& name) {
  Grid image = grid;
  if (dihedral_turns(name.dihedral)) std::swap(image.rows, image.columns);
  dihedral(name.dihedral, grid.rows, grid.columns, grid.cells, image.cells);
  std::vector<std::int32_t> field(kSide * kSide, 0);
  const auto at = [&](int r, int c) -> std::int32_t& { return field[to_size(r * kSide + c)]; };
  for (int r = 0; r < image.rows; ++r)
    for (int c = 0; c < image.columns; ++c) at(r, c) = 2 + name.colours[image.cells[to_size(r * image.columns + c)]];
  for (int c = 0; c < image.columns && image.rows < kSide; ++c) at(image.rows, c) = 1;
  for (int r = 0; r < image.rows && image.columns < kSide; ++r) at(r, image.columns) = 1;
  return field;
}

const Grid kInput{2, 3, {1, 2, 3, 4, 5, 6}}, kTruth{3, 4, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}}, kWrong{1, 2, {7, 7}};

ArcBallot ballot(const std::string& name, const Grid& answer, double q, const Grid& input = kInput) {
  const ArcName n = read_arc_name(name);
  return arc_ballot(n, field_of(input, n), field_of(kTruth, n), field_of(answer, n), q);
}

double rate(const std::vector<std::pair<int, double>>& rates, int attempts) {
  return std::find_if(rates.begin(), rates.end(), [&](const auto& r) { return r.first == attempts; })->second;
}

}  // namespace

TEST_SUITE("tasks.arc_vote") {
  TEST_CASE("names encode variants; a name with an invalid suffix is a task of its own") {
    const ArcName plain = read_arc_name("007bbfb7"), variant = read_arc_name("007bbfb7_t3_0213456789");
    CHECK(plain.task == variant.task);
    CHECK(plain.dihedral == 0);
    CHECK(variant.dihedral == 3);
    CHECK(variant.colours[1] == 2);
    CHECK(variant.colours[2] == 1);
    const ArcName of_trm = read_arc_name("007bbfb7|||t3|||0213456789");
    CHECK(of_trm.task == plain.task);
    CHECK(of_trm.length == plain.length);
    CHECK(of_trm.dihedral == 3);
    CHECK(of_trm.colours == variant.colours);
    CHECK(read_arc_name("x_t8_0213456789").task != read_arc_name("x").task);
    CHECK(read_arc_name("x_t3_02134567a9").task != read_arc_name("x").task);
  }

  TEST_CASE("the answers of all variants are mapped back to the same grid") {
    const ArcBallot own = ballot("task", kTruth, 1);
    CHECK(own.answer == own.truth);
    for (int t = 0; t < 8; ++t) {
      const ArcBallot b = ballot("task_t" + std::to_string(t) + "_0987654321", kTruth, 1);
      CHECK(b == own);
    }
    CHECK(ballot("task_t1_0987654321", kWrong, 1).answer != own.truth);
  }

  TEST_CASE("an answer is mapped back cell by cell; candidates are ranked by votes, then by confidence") {
    const ArcName name = read_arc_name("task_t3_0987654321");
    CHECK(name.length == 4);
    const ArcAnswer answer = arc_answer(name, field_of(kTruth, name));
    CHECK(answer.rows == kTruth.rows);
    CHECK(answer.columns == kTruth.columns);
    CHECK(answer.cells == kTruth.cells);
    CHECK(answer.hash() == ballot("task", kTruth, 0).truth);
    CHECK(arc_answer(name, std::vector<std::int32_t>(kSide * kSide, 0)).cells.empty());

    // Pass@K and the submission leave out answers without cells, however many variants give them.
    const std::vector<ArcBallot> empty(3, ballot("task", {0, 0, {}}, 5));
    CHECK(arc_candidates(empty).empty());
    std::vector<ArcBallot> mostly_empty = empty;
    mostly_empty.push_back(ballot("task", kTruth, -5));
    CHECK(rate(arc_pass_rates(mostly_empty), 1) == 1);

    const Grid third{1, 1, {9}};
    std::vector<ArcBallot> ballots = {ballot("task", kWrong, 0), ballot("task", kTruth, -1), ballot("task", third, 2),
                                      ballot("task", kTruth, -1)};
    std::ranges::sort(ballots);
    const std::vector<ArcCandidate> ranked = arc_candidates(ballots);
    REQUIRE(ranked.size() == 3);
    CHECK(ranked[0].answer == answer.hash());
    CHECK(ranked[0].votes == 2);
    CHECK(ranked[1].answer == ballot("task", third, 0).answer);
    CHECK(ranked[2].confidence == Approx(0.5));
  }

  TEST_CASE("a grid is the largest rectangle of colours at the top left; ties go to fewer rows") {
    const ArcName name = read_arc_name("task");
    std::vector<std::int32_t> field(kSide * kSide, 0);
    const auto fill = [&](int rows, int columns) {
      for (int r = 0; r < rows; ++r) std::fill_n(field.begin() + r * kSide, columns, 4);
    };
    const auto is = [&](const Grid& grid) {
      return arc_ballot(name, field, field, field, 0).answer ==
             arc_ballot(name, field, field, field_of(grid, name), 0).answer;
    };
    CHECK(is({0, 0, {}}));
    fill(1, 4);
    fill(2, 2);
    CHECK(is({1, 4, {2, 2, 2, 2}}));  // 1 x 4 and 2 x 2 are a tie
    fill(3, 2);
    CHECK(is({3, 2, {2, 2, 2, 2, 2, 2}}));
  }

  TEST_CASE("candidates are ranked by votes, then confidence; a task is solved if all its inputs are") {
    const Grid other{1, 1, {5}};
    std::vector<ArcBallot> ballots = {
        ballot("a", kWrong, 5),
        ballot("a_t1_0123456789", kTruth, -3),  // two votes against one:
        ballot("a_t2_0123456789", kTruth, -3),  // the truth is first
        ballot("b", kWrong, 5),
        ballot("b_t1_0123456789", kTruth, -3),  // a tie: the more confident one is first
        ballot("c", kTruth, 1),
        ballot("c", kWrong, 1, other),  // no vote for the truth of the second input
    };
    auto rates = arc_pass_rates(ballots);
    CHECK(rates.size() == 5);
    CHECK(rate(rates, 1) == Approx(1.0 / 3));
    CHECK(rate(rates, 2) == Approx(2.0 / 3));
    CHECK(rate(rates, 1000) == Approx(2.0 / 3));
    std::reverse(ballots.begin(), ballots.end());
    CHECK(arc_pass_rates(ballots) == rates);
    CHECK(arc_pass_rates({}).empty());
  }
}
