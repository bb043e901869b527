#include "lockstep/prep/hrm/arc.hpp"

#include "lockstep/io/dataset_file.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
constexpr const char* kTask =
    R"({"train":[{"input":[[1,2,0],[0,0,3]],"output":[[4]]},{"input":[[5,5]],"output":[[1],[2]]}],"test":[{"input":[[7,8],[9,6]],"output":[[6,9]]}]})";

/// Two folders with two tasks each; `evaluation` holds test tasks.
std::vector<std::vector<ArcTask>> folders() {
  std::vector<std::vector<ArcTask>> out;
  for (const char* folder : {"training", "evaluation"}) {
    fs::create_directory(folder);
    for (const char* task : {"a", "b"}) write_text(std::string(folder) + "/" + task + folder[0] + ".json", kTask);
    out.push_back(read_arc_tasks({std::string(folder) + "/", ""}));
  }
  return out;
}

/// The message with which a file or folder of tasks is refused.
std::string refusal(const char* name) {
  return error_of(Fault::data, [&] { read_arc_tasks({name, ""}); });
}

struct Row {
  std::vector<std::uint8_t> input, label;
  bool operator==(const Row&) const = default;
};
Row row_of(const PuzzlePart& part, std::int64_t row) {
  Row out{std::vector<std::uint8_t>(900), std::vector<std::uint8_t>(900)};
  part.tokens(row, out.input, out.label);
  return out;
}
/// The grid in a field, from its colours alone.
ArcGrid crop(const std::vector<std::uint8_t>& field, int& top, int& left) {
  top = left = 30;
  int bottom = -1, right = -1;
  for (int i = 0; i < 900; ++i) {
    if (field[to_size(i)] < 2) continue;
    top = std::min(top, i / 30), left = std::min(left, i % 30), bottom = std::max(bottom, i / 30),
    right = std::max(right, i % 30);
  }
  ArcGrid grid{bottom - top + 1, right - left + 1, {}};
  for (int r = top; r <= bottom; ++r)
    for (int c = left; c <= right; ++c) grid.cells.push_back(static_cast<std::uint8_t>(field[to_size(r * 30 + c)] - 2));
  return grid;
}
}  // namespace

TEST_SUITE("prep.arc") {
  TEST_CASE("test pairs of an evaluation folder are for the test, all others for training") {
    const auto tasks = folders();
    CHECK_FALSE(tasks[0][0].evaluation);
    CHECK(tasks[1][0].evaluation);
    const PuzzleSet set = arc_set(tasks, 5, 1);
    const PuzzlePart &train = set.train[0], &test = set.test[0];
    CHECK(train.groups() == 4);
    CHECK(train.puzzles() == 24);
    CHECK(train.rows == 6 * (3 + 3 + 2 + 2));
    CHECK(test.groups() == 2);
    CHECK(test.rows == 12);
    CHECK(offsets_defect(train.puzzle_indices, train.rows, Rise::strict).empty());
    CHECK(offsets_defect(train.group_indices, train.puzzles(), Rise::strict).empty());
    CHECK(set.identifiers.size() == 25);
    CHECK(set.identifiers[0] == "<blank>");
    CHECK(std::set<std::string>(set.identifiers.begin(), set.identifiers.end()).size() == 25);
    // The same variant has the same identifier in both splits; evaluation tasks come second.
    for (std::size_t p = 0; p < 12; ++p) CHECK(test.puzzle_identifiers[p] == train.puzzle_identifiers[12 + p]);
  }

  TEST_CASE("an identifier's name says how to undo its variant") {
    const auto tasks = folders();
    const PuzzleSet set = arc_set(tasks, 20, 3);
    const PuzzlePart& test = set.test[0];
    for (std::int64_t p = 0; p < test.puzzles(); ++p) {
      const std::string name = set.identifiers[to_size(test.puzzle_identifiers[to_size(p)])];
      int top = 0, left = 0;
      ArcGrid grid = crop(row_of(test, test.puzzle_indices[to_size(p)]).input, top, left);
      CHECK(top == 0);
      CHECK(left == 0);
      if (const auto at = name.find("_t"); at != std::string::npos) {
        const int id = name[at + 2] - '0';
        for (auto& cell : grid.cells)
          cell = static_cast<std::uint8_t>(name.substr(at + 4).find(static_cast<char>('0' + cell)));
        ArcVariant back;
        back.dihedral = kDihedralInverse[to_size(id)];
        grid = apply_arc_variant(back, grid);
      }
      CHECK(grid.cells == std::vector<std::uint8_t>{7, 8, 9, 6});
    }
  }

  TEST_CASE("training puzzles are shifted as one, apart from one example of each; every field is sound") {
    const PuzzleSet set = arc_set(folders(), 30, 4);
    const PuzzlePart& train = set.train[0];
    std::set<std::pair<int, int>> offsets;
    for (std::int64_t p = 0; p < train.puzzles(); ++p) {
      int at_origin = 0;
      for (auto row = train.puzzle_indices[to_size(p)]; row < train.puzzle_indices[to_size(p) + 1]; ++row) {
        const Row r = row_of(train, row);
        CHECK(arc_field_defect(r.input).empty());
        CHECK(arc_field_defect(r.label).empty());
        int top = 0, left = 0, label_top = 0, label_left = 0;
        crop(r.input, top, left);
        crop(r.label, label_top, label_left);
        CHECK(top == label_top);
        CHECK(left == label_left);
        at_origin += top == 0 && left == 0;
        offsets.insert({top, left});
      }
      CHECK(at_origin >= 1);
    }
    CHECK(offsets.size() > 100);
  }

  TEST_CASE("variants of a task differ in their pairs, as many as there are") {
    ArcTask task;
    task.train = {{{1, 1, {1}}, {1, 1, {1}}}};
    // One coloured cell: nine colours are all there is.
    CHECK(draw_arc_variants(task, 100, 1, 0).size() == 9);
    task.train = {{{1, 1, {0}}, {1, 1, {0}}}};
    CHECK(draw_arc_variants(task, 100, 1, 0).size() == 1);
    const auto read = folders();
    CHECK(draw_arc_variants(read[0][0], 200, 1, 0).size() == 201);
    // Another seed, other variants; the same, the same rows.
    const auto first = arc_set(read, 3, 1), again = arc_set(read, 3, 1), other = arc_set(read, 3, 2);
    CHECK(first.identifiers == again.identifiers);
    CHECK(first.identifiers != other.identifiers);
    for (std::int64_t row = 0; row < first.train[0].rows; ++row)
      CHECK(row_of(first.train[0], row) == row_of(again.train[0], row));
  }

  TEST_CASE("tasks without outputs, of a folder or of one file, are tests without an answer; check accepts them") {
    const auto read = folders();
    fs::create_directory("open");
    write_text("open/q.json",
               R"({"train":[{"input":[[1]],"output":[[2]]}],"test":[{"input":[[3,4]]},{"input":[[5]]}]})");
    write_text("all.json",
               R"({"r":{"train":[{"input":[[1]],"output":[[2]]}],"test":[{"input":[[3,4]]}]},)"
               R"("s":{"train":[{"input":[[1]],"output":[[2]]}],"test":[{"input":[[3]],"output":[[4]]}]}})");
    const PuzzleSet set = arc_set({read[0], read_arc_tasks({"open", ""}), read_arc_tasks({"all.json", ""})}, 2, 1);
    REQUIRE(set.test[0].groups() == 2);
    CHECK(set.test[0].rows == 3 * (2 + 1));
    const Row first = row_of(set.test[0], 0);
    CHECK(std::ranges::all_of(first.label, [](auto token) { return token == 0; }));
    CHECK(std::ranges::any_of(first.input, [](auto token) { return token != 0; }));
    CHECK(std::ranges::find(set.identifiers, "s") != set.identifiers.end());
    write_puzzle_set("set.h5", set, 0);
    const H5File file = H5File::open("set.h5");
    std::vector<std::string> remarks;
    CHECK(check_puzzle_set(file, remarks).empty());
    REQUIRE(!remarks.empty());
    check_mentions(remarks.front(), "9 test examples have no answer");

    write_text("all.json", R"({"r":{"train":[{"input":[[1]],"output":[[2]]}],)"
                           R"("test":[{"input":[[3]],"output":[[4]]},{"input":[[3]]}]}})");
    check_mentions(refusal("all.json"), "task 'r' test pair 2", "no output, unlike the first pair");
    write_text("all.json", kTask);
    check_mentions(refusal("all.json"), "all.json", "an object of tasks by name");
  }

  TEST_CASE("a contest's challenges and solutions become tasks with answers; evaluation and test are held out") {
    const std::string pairs =
        R"({"train":[{"input":[[1]],"output":[[2]]}],"test":[{"input":[[3,4]]},{"input":[[5]]}]})";
    for (const char* part : {"training", "evaluation2", "test"}) {
      write_text(std::string("x-") + part + "_challenges.json", std::string("{\"") + part[0] + "1\":" + pairs + "}");
      if (part[0] != 't' || part[1] != 'e')
        write_text(std::string("x-") + part + "_solutions.json", std::string("{\"") + part[0] + "1\":[[[6]],[[7,8]]]}");
    }
    write_text("sample_submission.json", "{}");
    std::vector<std::string> left_aside;
    const auto inputs = arc_inputs({"."}, left_aside);
    REQUIRE(inputs.size() == 3);  // by name: evaluation2, test, training
    CHECK(left_aside == std::vector<std::string>{"./sample_submission.json"});
    std::vector<ArcTask> tasks;
    for (const ArcInput& input : inputs) tasks.push_back(read_arc_tasks(input).front());
    CHECK(tasks[0].evaluation);
    CHECK(tasks[1].evaluation);
    CHECK_FALSE(tasks[2].evaluation);
    CHECK(tasks[0].test[1].output.cells == std::vector<std::uint8_t>{7, 8});
    CHECK(tasks[1].test[1].output.cells.empty());
    CHECK(tasks[2].test[0].output.cells == std::vector<std::uint8_t>{6});
    // The files by name, in any order; answers without tasks, of other tasks, too few.
    CHECK(arc_inputs({"x-training_solutions.json", "x-training_challenges.json"}, left_aside).front().answers ==
          "x-training_solutions.json");
    check_mentions(error_of(Fault::usage, [&] { arc_inputs({"x-training_solutions.json"}, left_aside); }),
                   "x-training_solutions.json", "name that file too");
    fs::create_directory("answers");
    write_text("answers/x_solutions.json", "{}");
    check_mentions(error_of(Fault::usage, [&] { arc_inputs({"answers"}, left_aside); }), "name that file too");
    const auto error = [&](const std::string& answers) {
      write_text("a.json", answers);
      return error_of(Fault::data, [&] { read_arc_tasks({"x-training_challenges.json", "a.json"}); });
    };
    check_mentions(error(R"({"other":[[[1]]]})"), "task 'other' is not in 'x-training_challenges.json'");
    check_mentions(error(R"({"t1":[[[1]]]})"), "task 't1' does not have one answer for each of its test pairs");
    check_mentions(error(R"({"t1":[[[1]],null]})"), "unlike the first pair");
    check_mentions(refusal("x-training_solutions.json"), "'t1' is a list of grids, as in a file of solutions");
  }

  TEST_CASE("of several tasks with one name the chosen one counts; repeated tasks under other names are noted") {
    const auto make = [](const std::string& folder, const std::string& name, int colour) {
      fs::create_directories(folder);
      write_text(folder + "/" + name + ".json", R"({"train":[{"input":[[1]],"output":[[2,2]]}],"test":[{"input":[[)" +
                                                    std::to_string(colour) + R"(]],"output":[[4]]}]})");
      return read_arc_tasks({folder, ""});
    };
    const std::vector<std::vector<ArcTask>> all = {make("one", "a", 5), make("two", "a", 6),
                                                   make("evaluation", "b", 5)};
    for (const SameName how : {SameName::first, SameName::last}) {
      auto tasks = all;
      CHECK(choose_of_same_name(tasks, how) == 1);
      REQUIRE(tasks.size() == 2);
      CHECK(tasks[0][0].test[0].input.cells[0] == (how == SameName::first ? 5 : 6));
      // b, held out, is a of folder one.
      const std::vector<std::string> remarks = arc_repeats(arc_set(tasks, 2, 1));
      CHECK(remarks == (how == SameName::first ? std::vector<std::string>{"1 of 1 tests are also training examples"}
                                               : std::vector<std::string>{}));
    }
    auto tasks = all;
    check_mentions(error_of(Fault::data, [&] { choose_of_same_name(tasks, SameName::refuse); }),
                   "task 'a' is also in 'one/a.json'", "--same-name first or last");
    const auto copy = make("three", "c", 5);
    CHECK(arc_repeats(arc_set({all[0], copy}, 0, 1)) ==
          std::vector<std::string>{"1 tasks have the training pairs of another task with another name"});
  }

  TEST_CASE("bad tasks are named by file, pair, row and cell") {
    const auto error = [&](const std::string& text) {
      write_text("t.json", text);
      return refusal(".");
    };
    const auto with = [](const std::string& grid) {
      return R"({"train":[{"input":)" + grid + R"(,"output":[[1]]}],"test":[{"input":[[1]],"output":[[1]]}]})";
    };
    CHECK(error(with("[[1]]")) == "no error");
    check_mentions(error("{"), "t.json", "parse error");
    check_mentions(error(R"({"train":[]})"), "t.json", "'train' with at least one pair");
    check_mentions(error(R"({"train":[{"input":[[1]]}],"test":[]})"), "train pair 1", "no 'output'");
    check_mentions(error(with("[[1,10]]")), "train pair 1", "cell 2 of row 1 of 'input' is 10");
    check_mentions(error(with("[[1,2],[3]]")), "row 2 of 'input' has 1 cells, the first 2");
    check_mentions(error(with("[[\"1\"]]")), "not a colour");
    check_mentions(error(with("[]")), "is not a list of 1 to 30 rows");
    std::string wide = "[[0";
    for (int i = 0; i < 30; ++i) wide += ",0";
    check_mentions(error(with(wide + "]]")), "row 1 of 'input' is not a list of 1 to 30");
    fs::create_directory("empty");
    check_mentions(refusal("empty"), "no .json file");
    check_mentions(error_of(Fault::usage, [&] { read_arc_tasks({"none", ""}); }), "no such folder");
  }
}
