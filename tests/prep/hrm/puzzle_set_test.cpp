#include "lockstep/prep/hrm/puzzle_set.hpp"

#include "lockstep/prep/hrm/puzzle_division.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"
#include "prep/hrm/puzzle_options.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
/// Some Sudoku of order 2, as base puzzles.
BasePuzzles base(std::uint64_t seed, int count) {
  BasePuzzles puzzles;
  Below below(seed, 0, "test");
  for (int i = 0; i < count; ++i) {
    auto answer = random_solution(2, std::ref(below));
    auto question = answer;
    for (auto& digit : question)
      if (below(2) == 0) digit = 0;
    for (auto* grid : {&question, &answer})
      for (auto& digit : *grid) ++digit;
    PuzzleRow row;
    row.rating = i;
    row.source = i % 2 == 0 ? "even" : "odd";
    puzzles.add(row, question, answer);
  }
  return puzzles;
}
PuzzleSet sample(bool online) {
  PuzzleSet set = sudoku_set(16);
  set.num_aug = 3;
  set.online = online;
  set.seed = 77;
  set.sources = {"train.csv"};
  set.sha256 = {"0"};
  add_base_puzzles(set, base(1, 5), base(2, 4));
  return set;
}
std::vector<std::string> problems(const fs::path& path) {
  std::vector<std::string> remarks;
  return check_puzzle_set(H5File::open(path), remarks);
}
/// The result of the check for a set that was changed before it was written.
std::string after(auto change) {
  PuzzleSet set = sample(false);
  change(set);
  write_puzzle_set("bad.h5", set, 0);
  std::string all;
  for (const auto& problem : problems("bad.h5")) all += problem + "\n";
  return all;
}
}  // namespace

TEST_SUITE("prep.puzzle_set") {
  TEST_CASE("validation puzzles are apart from training and test, and equivalent to none of them") {
    const BasePuzzles test = base(2, 10);
    BasePuzzles table = base(1, 50);
    for (const BasePuzzles& again : {base(1, 10), test}) {  // twins of training and test puzzles
      for (std::int64_t row = 0; row < again.size(); ++row) {
        const PuzzleVariants variants(PuzzleTask::sudoku, 16, 5);
        std::vector<std::uint8_t> question(16), answer(16);
        const auto of = [&](const std::vector<std::uint8_t>& all) {
          return std::span(all).subspan(to_size(16 * row), 16);
        };
        variants.apply(static_cast<std::uint64_t>(row), 1, of(again.inputs), of(again.labels), question, answer);
        PuzzleRow added;
        added.rating = 1;
        added.source = "again";
        table.add(added, question, answer);
      }
    }
    const auto texts = [](const BasePuzzles& puzzles) {
      std::multiset<std::string> out;
      for (std::int64_t row = 0; row < puzzles.size(); ++row) {
        const auto at = to_size(16 * row);
        out.insert(canonical_puzzle(PuzzleTask::sudoku, std::span(puzzles.inputs).subspan(at, 16),
                                    std::span(puzzles.labels).subspan(at, 16)));
      }
      return out;
    };
    const auto tested = texts(test);
    for (const std::int64_t kept : {0, 20}) {
      CAPTURE(kept);
      const PuzzleDivision how{.task = PuzzleTask::sudoku, .train = kept, .val = 15, .seed = 3};
      const auto parts = divide_puzzles(table, test, how);
      CHECK(parts.train.size() == (kept == 0 ? 55 : 20));
      CHECK(parts.val.size() == 15);
      const auto trained = texts(parts.train), chosen = texts(parts.val);
      for (const auto& text : chosen) {
        CHECK(chosen.count(text) == 1);
        CHECK(trained.count(text) == 0);
        CHECK(tested.count(text) == 0);
      }
      const auto without = divide_puzzles(table, test, {.task = PuzzleTask::sudoku, .train = kept, .seed = 3});
      CHECK(without.val.size() == 0);
      if (kept > 0) CHECK(without.train.inputs == parts.train.inputs);
    }
    check_mentions(error_of(Fault::usage,
                            [&] { divide_puzzles(table, test, {.task = PuzzleTask::sudoku, .train = 20, .val = 50}); }),
                   "option val = 50: of 70 puzzles", "20 are for training");
  }

  TEST_CASE("the layout is the documented one") {
    write_puzzle_set("a.h5", sample(false), 0);
    const auto file = H5File::open("a.h5");
    CHECK(file.text_attribute("/", "kind") == "hrm-puzzles");
    CHECK(file.text_attribute("/", "task") == "sudoku");
    CHECK(file.int_attribute("/", "vocab_size") == 6);
    CHECK(file.int_attribute("/", "num_puzzle_identifiers") == 1);
    CHECK(file.int_attribute("/train", "total_groups") == 5);
    CHECK(file.int_attribute("/train", "total_puzzles") == 20);
    CHECK(file.real_attribute("/train", "mean_puzzle_examples") == 1.0);
    CHECK(std::get<std::vector<std::string>>(file.attribute("/train", "sets")) == std::vector<std::string>{"all"});
    CHECK(file.read_text("/identifiers") == std::vector<std::string>{"<blank>"});
    CHECK(file.info("/train/all/inputs").type == H5Type::u8);
    CHECK(file.info("/train/all/inputs").shape == std::vector<std::int64_t>{20, 16});
    CHECK(file.info("/train/all/group_indices").type == H5Type::i64);
    CHECK(file.read<std::int64_t>("/train/all/group_indices") == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20});
    CHECK(file.info("/train/all/puzzle_identifiers").type == H5Type::i32);
    CHECK(file.read<std::int32_t>("/train/all/rating") == std::vector<std::int32_t>{0, 1, 2, 3, 4});
    CHECK(file.read<std::int32_t>("/test/all/source") == std::vector<std::int32_t>{0, 1, 0, 1});
    CHECK(file.read_text("/source_names") == std::vector<std::string>{"even", "odd"});
    CHECK(problems("a.h5").empty());
  }

  TEST_CASE("stored variants are those that training draws from a file with augment = online") {
    write_puzzle_set("off.h5", sample(false), 6);
    write_puzzle_set("on.h5", sample(true), 0);
    CHECK(problems("off.h5").empty());
    CHECK(problems("on.h5").empty());
    const auto off_file = H5File::open("off.h5"), on_file = H5File::open("on.h5");
    const PuzzleSet off = read_puzzle_set(off_file), on = read_puzzle_set(on_file);
    CHECK(on.online);
    CHECK(on.train[0].rows == 5);
    const PuzzleVariants variants(on.task, on.seq_len, on.seed);
    std::vector<std::uint8_t> in(16), out(16), want_in(16), want_out(16), got_in(16), got_out(16);
    for (std::int64_t row = 0; row < 20; ++row) {
      on.train[0].tokens(row / 4, in, out);
      variants.apply(static_cast<std::uint64_t>(row / 4), static_cast<std::uint64_t>(row % 4), in, out, got_in,
                     got_out);
      off.train[0].tokens(row, want_in, want_out);
      CHECK(got_in == want_in);
      CHECK(got_out == want_out);
    }
  }

  TEST_CASE("equal sets make equal bytes") {
    write_puzzle_set("a.h5", sample(false), 0);
    write_puzzle_set("b.h5", sample(false), 0);
    CHECK(read_text("a.h5") == read_text("b.h5"));
  }

  TEST_CASE("indices that do not rise, foreign identifiers and tokens are named by row") {
    check_mentions(after([](PuzzleSet& s) { std::swap(s.train[0].group_indices[1], s.train[0].group_indices[2]); }),
                   "/train/all/group_indices does not rise at row 2: 4 after 8");
    check_mentions(after([](PuzzleSet& s) { s.train[0].puzzle_indices[20] = 21; }),
                   "/train/all/puzzle_indices runs from 0 to 21, expected 0 to 20");
    check_mentions(after([](PuzzleSet& s) { s.test[0].puzzle_indices[0] = 1; }),
                   "/test/all/puzzle_indices does not rise at row 1");
    check_mentions(after([](PuzzleSet& s) { s.train[0].puzzle_identifiers[7] = 3; }),
                   "/train/all/puzzle_identifiers row 7: 3");
    check_mentions(after([](PuzzleSet& s) { s.train[0].source[2] = 9; }), "/train/all/source row 2: 9");
    const auto spoil = [](PuzzleSet& s, std::int64_t row, std::size_t cell, std::uint8_t token, bool label) {
      s.test[0].tokens = [tokens = s.test[0].tokens, row, cell, token, label](std::int64_t r, auto in, auto out) {
        tokens(r, in, out);
        if (r == row) (label ? out : in)[cell] = token;
      };
    };
    check_mentions(after([&](PuzzleSet& s) { spoil(s, 2, 4, 6, true); }),
                   "/test/all/labels row 2: token 6 in cell 5 is not below vocab_size 6");
    check_mentions(after([&](PuzzleSet& s) { spoil(s, 1, 4, 0, false); }), "/test/all row 1: a padding token");
    check_mentions(after([&](PuzzleSet& s) { spoil(s, 3, 0, 1, true); }),
                   "/test/all row 3: the answer leaves cell 1 blank");
    check_mentions(after([](PuzzleSet& s) {
                     s.train[0].tokens = s.test[0].tokens = [](auto, auto in, auto out) {
                       std::fill(in.begin(), in.end(), std::uint8_t{1});
                       std::fill(out.begin(), out.end(), std::uint8_t{2});
                     };
                   }),
                   "/train/all row 0: the answer has digit 1 twice in row 1", "and 15 more like these");
    check_mentions(after([](PuzzleSet& s) { s.online = true; }), "augment is online");
    check_mentions(after([](PuzzleSet& s) { s.vocab_size = 12; }), "task sudoku has");
  }

  TEST_CASE("other files and impossible sizes are refused; the page shows a puzzle") {
    PuzzleSet set = sample(false);
    set.pad_id = 9;
    write_puzzle_set("a.h5", set, 0);
    check_mentions(error_of(Fault::data, [&] { problems("a.h5"); }), "a.h5", "pad_id = 9");
    H5File::create("b.h5").close();
    check_mentions(error_of(Fault::data, [&] { problems("b.h5"); }), "no attribute 'format'");
    write_puzzle_set("c.h5", sample(false), 0);
    std::ostringstream page;
    describe_puzzle_set(H5File::open("c.h5"), page);
    check_mentions(page.str(), "5 groups, 20 puzzles", "even: 3", "mean 2, 0 .. 4", "first example of train/all");
  }
}
