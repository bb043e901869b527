/// The sources of puzzles as users run them: tables, folders of NumPy files, bad input, generators.

#include "lockstep/prep/hrm/puzzle_set.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"
#include "lockstep/prep/npy.hpp"
#include "prep/program.hpp"
#include "support/npy.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
const char* const kQ = "..9..4...7.....3.......91.........8....2......6..3.5..23..1...........9......8.4.";
const char* const kA = "359164728741852369682379154523691487417285936968437512234916875876543291195728643";

/// A table of n different puzzles: images of one.
std::string table(int n) {
  std::string text = "source,question,answer,rating\n";
  std::vector<std::uint8_t> q, a, q2(81), a2(81);
  for (const char* c = kQ; *c != 0; ++c) q.push_back(*c == '.' ? std::uint8_t{0} : static_cast<std::uint8_t>(*c - '0'));
  for (const char* c = kA; *c != 0; ++c) a.push_back(static_cast<std::uint8_t>(*c - '0'));
  for (int i = 0; i < n; ++i) {
    const auto variant = draw_sudoku_variant(3, 1, 0, static_cast<std::uint64_t>(i));
    apply_sudoku_variant(variant, q, q2, 0);
    apply_sudoku_variant(variant, a, a2, 0);
    text += "list,";
    for (const auto digit : q2) text += digit == 0 ? '.' : static_cast<char>('0' + digit);
    text += ',';
    for (const auto digit : a2) text += static_cast<char>('0' + digit);
    text += "," + std::to_string(i) + "\n";
  }
  return text;
}

constexpr const char* kJson =
    R"({"pad_id": 0, "ignore_label_id": 0, "blank_identifier_id": 0, "vocab_size": 6, "seq_len": 16, "num_puzzle_identifiers": 2, "total_groups": 2, "mean_puzzle_examples": 1.5, "sets": ["all"]})";

/// Three copies of a 4x4 Sudoku in two groups, written as upstream does: the train inputs as int64 by accident.
void write_upstream(const fs::path& root) {
  const std::vector<std::int64_t> one = {2, 3, 4, 5, 4, 5, 2, 3, 3, 2, 5, 4, 5, 4, 3, 2};
  std::vector<std::int64_t> wide;
  for (int i = 0; i < 3; ++i) wide.insert(wide.end(), one.begin(), one.end());
  const std::vector<std::uint8_t> narrow(wide.begin(), wide.end());
  for (const std::string split : {"train", "test"}) {
    const fs::path folder = root / split;
    fs::create_directories(folder);
    write_text(folder / "dataset.json", kJson);
    write_text(folder / "all__inputs.npy", split == "train" ? npy("<i8", "3, 16", wide) : npy("|u1", "3, 16", narrow));
    write_text(folder / "all__labels.npy", npy("|u1", "3, 16", narrow));
    write_text(folder / "all__puzzle_indices.npy", npy<std::int32_t>("<i4", "3,", {0, 1, 3}));
    write_text(folder / "all__group_indices.npy", npy<std::int32_t>("<i4", "3,", {0, 1, 2}));
    write_text(folder / "all__puzzle_identifiers.npy", npy<std::int32_t>("<i4", "2,", {1, 0}));
  }
  write_text(root / "identifiers.json", R"(["<blank>", "first"])");
}
}  // namespace

TEST_SUITE("prep.puzzle_program") {
  TEST_CASE("a Sudoku table: subsample, difficulty, variants, source and rating") {
    write_text("train.csv", "\xEF\xBB\xBF" + table(20));  // the mark of Windows
    write_text("test.csv", "\xEF\xBB\xBF" + table(6));
    prepare(
        "sudoku --train train.csv --test test.csv --subsample-size 5 --min-difficulty 3 --num-aug 4 --seed 9 -o a.h5");
    prepare("check a.h5");
    const auto file = H5File::open("a.h5");
    const PuzzleSet set = read_puzzle_set(file);
    CHECK(set.train[0].groups() == 5);
    CHECK(set.train[0].rows == 25);
    CHECK(set.test[0].rating == std::vector<std::int32_t>{3, 4, 5});
    CHECK(std::set<int>(set.train[0].rating.begin(), set.train[0].rating.end()).size() == 5);
    CHECK_FALSE(std::is_sorted(set.train[0].rating.begin(), set.train[0].rating.end()));
    CHECK(set.source_names == std::vector<std::string>{"list"});
    CHECK(set.sha256.size() == 2);
    CHECK(set.sources == std::vector<std::string>{"train.csv", "test.csv"});
    // All puzzles of this table are images of one: the check says so.
    check_mentions(run_prep("check a.h5").text, "3 of 3 test puzzles are equivalent to a training puzzle");
    // Another seed, another choice; the same seed, the same bytes.
    prepare(
        "sudoku --train train.csv --test test.csv --subsample-size 5 --min-difficulty 3 --num-aug 4 "
        "--seed 9 -o b.h5");
    CHECK(read_text("a.h5") == read_text("b.h5"));
    prepare("sudoku --train train.csv --subsample-size 5 --seed 10 -o c.h5");
    CHECK(read_text("a.h5") != read_text("c.h5"));
  }

  TEST_CASE("validation puzzles are made on request and stored; rows that repeat are counted") {
    const auto make = [&](const std::string& words) { return prepare(words + " -o out.h5"); };
    const std::string synth = "synth-sudoku --order 2 --train 20 --test 6 --min-givens 5 --max-givens 9";
    check_mentions(make(synth), "training selects its best weights by the test puzzles; see --val");
    const auto tokens = [&](const char* set) {
      return H5File::open("out.h5").read<std::uint8_t>(std::string(set) + "/all/inputs");
    };
    const auto train = tokens("/train"), test = tokens("/test");
    CHECK_FALSE(H5File::open("out.h5").has("/val"));
    CHECK(make(synth + " --val 7").find("note") == std::string::npos);
    CHECK(tokens("/train") == train);
    CHECK(tokens("/test") == test);
    const auto val = tokens("/val");
    CHECK(val.size() == 7 * 16);
    std::string bytes = read_text("out.h5");
    const std::size_t first = bytes.find(std::string(val.begin(), val.end()));
    REQUIRE(first != std::string::npos);
    bytes[first + bytes.substr(first).find_first_not_of('\1')] = '\1';  // a given becomes a blank
    write_text("changed.h5", bytes);
    check_mentions(run_prep("check changed.h5").text, "/val/all/inputs", "checksum");
    check_mentions(run_prep("check out.h5").text, "0 of 7 validation puzzles are equivalent to a training",
                   "0 of 6 test puzzles are equivalent to a validation", "good");
    check_mentions(run_prep("info out.h5").text, "val/all            7 groups");

    std::string rows;  // the puzzles as a table, the first three twice
    for (std::size_t puzzle = 0; puzzle < 23; ++puzzle) {
      std::string question, answer;
      const auto labels = H5File::open("out.h5").read<std::uint8_t>("/train/all/labels");
      for (std::size_t cell = 0; cell < 16; ++cell) {
        const std::size_t at = puzzle % 20 * 16 + cell;
        question += static_cast<char>('0' + train[at] - 1);
        answer += static_cast<char>('0' + labels[at] - 1);
      }
      rows += question + "," + answer + "\n";
    }
    write_text("t.csv", "question,answer\n" + rows);
    check_mentions(make("sudoku --train t.csv --val 4 --num-aug 2"), "3 rows of 't.csv' repeat", "19 groups",
                   "val/all            4 groups, 4 puzzles");
    prepare("check out.h5");
    make("synth-maze --side 6 --train 5 --test 2 --val 3 --aug");
    CHECK(tokens("/val").size() == 3 * 36);
    prepare("check out.h5");
    check_mentions(prepare("sudoku --train t.csv --val 21 -o many.h5", 2), "option val = 21");
  }

  TEST_CASE("a table's columns, givens, ratings, lost zeros and puzzles of many solutions are printed") {
    std::string sparse(81, '0');
    for (std::size_t i = 0; i < 16; ++i) sparse[5 * i] = kA[5 * i];
    std::string lost = kQ;
    std::ranges::replace(lost, '.', '0');
    write_text("t.csv", std::string("question,answer,rating,level\n") + kQ + "," + kA + ",7,x\n" + lost.substr(2) +
                            "," + kA + ",9,y\n" + sparse + "," + kA + ",1,z\n");
    const std::string text = prepare("sudoku --train t.csv -o o.h5");
    check_mentions(text, "'t.csv': 3 puzzles of 9 x 9 cells, givens 16 to 17, rating 1 to 9",
                   "question, answer, rating; left aside: level", "1 questions of 't.csv' had lost zeros",
                   "1 puzzles of 't.csv' have fewer givens than any Sudoku with one solution");
    check_mentions(prepare("check o.h5"), "1 puzzles have fewer givens", "o.h5: good");
    prepare("sudoku --train t.csv --strict -o o.h5");  // notes, no warnings
    write_text("list.txt", std::string(kQ) + "\n");
    check_mentions(prepare("sudoku --train list.txt -o o.h5"), "no header: question",
                   "1 answers are not in 'list.txt'");
    write_text("t.csv", "question,answer\n1...............,1234341221434321\n1...............,1324241331424231\n");
    check_mentions(prepare("sudoku --train t.csv -o o.h5"),
                   "warning: 1 rows of 't.csv' give another answer to the question of an earlier row");
  }

  TEST_CASE("mazes from a table, eight images per training group") {
    write_text("m.csv", "source,question,answer,rating\ng,S  # # #    ## G,\"S  #o# #oooo## G\",6\n");
    prepare("maze --train m.csv --test m.csv --aug -o m.h5");
    check_mentions(run_prep("check m.h5").text, "1 of 1 test puzzles are equivalent", "good");
    const auto file = H5File::open("m.h5");
    CHECK(read_puzzle_set(file).train[0].puzzles() == 8);
    CHECK(read_puzzle_set(file).test[0].puzzles() == 1);
  }

  TEST_CASE("generated puzzles pass the check; no test puzzle is equivalent to a training puzzle") {
    const std::pair<const char*, const char*> made[] = {
        {"small.h5", "synth-sudoku --order 2 --train 60 --test 20 --min-givens 5 --max-givens 8 --num-aug 3"},
        {"nine.h5", "synth-sudoku --train 12 --test 4 --min-givens 26 --max-givens 34 --num-aug 50 --augment online"},
        {"hard.h5", "synth-sudoku --train 6 --test 2 --min-rating 2"},
        {"carved.h5", "synth-maze --side 15 --min-path 40 --train 20 --test 5"},
        {"random.h5", "synth-maze --side 10 --walls random --unique --aug --train 20 --test 5"}};
    for (const auto& [name, words] : made) {
      CAPTURE(std::string(words));
      prepare(std::string(words) + " -o " + name);
      check_mentions(prepare(std::string("check ") + name), ": 0 of ", "test puzzles are equivalent");
      prepare(std::string(words) + " -o again.h5");
      CHECK(read_text(name) == read_text("again.h5"));
      prepare(std::string("info ") + name);
    }
    // Each puzzle has one solution, the asked number of givens and the stored rating.
    for (const std::string name : {"nine.h5", "hard.h5"}) {
      const auto file = H5File::open(name);
      const PuzzleSet set = read_puzzle_set(file);
      std::vector<std::uint8_t> question(81), answer(81);
      for (const auto* part : {&set.train[0], &set.test[0]}) {
        for (std::int64_t row = 0; row < part->rows; ++row) {
          part->tokens(row, question, answer);
          for (auto* grid : {&question, &answer})
            for (auto& digit : *grid) --digit;
          const auto solution = solve_sudoku(3, question);
          CHECK(solution.count == 1);
          CHECK(solution.first == answer);
          CHECK(solution.guesses == part->rating[to_size(row)]);
          const auto givens = 81 - std::count(question.begin(), question.end(), std::uint8_t{0});
          if (name == "nine.h5") CHECK((givens >= 26 && givens <= 34));
          if (name == "hard.h5") CHECK(solution.guesses >= 2);
        }
      }
    }
  }

  TEST_CASE("a generator that runs out of new puzzles says how many there were") {
    check_mentions(
        prepare("synth-sudoku --order 2 --train 500 --min-givens 15 --max-givens 15 --max-tries 300 -o a.h5", 2),
        "of 700 inequivalent ones found", "max-tries");
    prepare("synth-maze --side 5 --min-path 60 --max-tries 50 -o a.h5", 2);
    prepare("synth-sudoku --min-givens 40 --max-givens 30 -o a.h5", 2);
    prepare("synth-sudoku --order 4 -o a.h5", 2);
    CHECK(names_in(".").empty());
  }

  TEST_CASE("a folder of NumPy files becomes the same puzzles, names and indices") {
    write_upstream("up");
    check_mentions(prepare("hrm-npy --input up --task sudoku -o a.h5"),
                   "sudoku; 16 tokens per grid, vocabulary 6, padding 0; 2 identifiers");
    prepare("check a.h5");
    const auto file = H5File::open("a.h5");
    const PuzzleSet set = read_puzzle_set(file);
    CHECK(set.identifiers == std::vector<std::string>{"<blank>", "first"});
    CHECK(set.train[0].puzzle_indices == std::vector<std::int64_t>{0, 1, 3});
    CHECK(set.train[0].puzzle_identifiers == std::vector<std::int32_t>{1, 0});
    CHECK(set.sources.size() == 10);
    CHECK(file.real_attribute("/train", "mean_puzzle_examples") == 1.5);
    std::vector<std::uint8_t> in(16), out(16);
    set.train[0].tokens(2, in, out);
    CHECK(in == std::vector<std::uint8_t>{2, 3, 4, 5, 4, 5, 2, 3, 3, 2, 5, 4, 5, 4, 3, 2});
    check_mentions(run_prep("hrm-npy --input up -o b.h5").text, "do not determine the task");
    for (const char* input : {"up/train/dataset.json", "up/test/all__labels.npy"})
      check_refused(std::string("hrm-npy --input up --task sudoku -o ") + input, 2, "it is the input");
  }

  TEST_CASE("damaged NumPy folders are refused by file and row, and nothing is written") {
    struct Case {
      const char* file;
      std::string bytes;
      const char* expected;
    };
    const Case cases[] = {
        {"all__group_indices.npy", npy<std::int32_t>("<i4", "3,", {0, 2, 1}), "it does not rise at row 2: 1 after 2"},
        {"all__group_indices.npy", npy<std::int32_t>("<i4", "2,", {0, 1}), "it runs from 0 to 1, expected 0 to 2"},
        {"all__puzzle_indices.npy", npy<std::int32_t>("<i4", "3,", {0, 1, 4}), "it runs from 0 to 4, expected 0 to 3"},
        {"all__puzzle_identifiers.npy", npy<std::int32_t>("<i4", "2,", {1, 2}), "row 1: identifier 2 is not in 0 .. 1"},
        {"all__labels.npy", npy("|u1", "3, 16", std::vector<std::uint8_t>(48, 7)), "row 0: token 7 is not in 0 .. 5"},
        {"all__labels.npy", npy("|u1", "3, 15", std::vector<std::uint8_t>(45, 1)), "shape (3, 15), expected (3, 16)"},
        {"all__labels.npy", npy("<f4", "3, 16", std::vector<float>(48, 1)), "values of type 'f4'"},
        {"all__labels.npy", npy("|u1", "3, 16", std::vector<std::uint8_t>(47, 1)),
         "more values than the 47 that are stored"},
        {"all__labels.npy", "no array", "no NumPy array"},
        {"dataset.json", "{", "parse error"},
        {"dataset.json", std::string(100'000, '[') + std::string(100'000, ']'), "nested too deeply"},
        {"dataset.json", R"({"seq_len": 16, "vocab_size": 500})", "'vocab_size' is 500"}};
    for (const auto& [file, bytes, expected] : cases) {
      write_upstream("up");
      const std::string damaged = std::string("up/test/") + file;
      write_text(damaged, bytes);
      check_refused("hrm-npy --input up --task sudoku -o a.h5", 3, expected, damaged);
      CHECK(names_in(".") == std::vector<std::string>{"up"});
    }
  }

  TEST_CASE("a number of identifiers that a NumPy folder does not have is refused before memory is reserved for it") {
    write_upstream("up");
    const std::string stated = "\"num_puzzle_identifiers\": ", json = kJson;
    const auto state = [&](const std::string& number) {
      std::string text = json;
      text.replace(text.find(stated) + stated.size(), 1, number);
      for (const char* split : {"train", "test"}) write_text(fs::path("up") / split / "dataset.json", text);
    };
    state("2147483647");
    const std::string command = "hrm-npy --input up --task sudoku -o a.h5";
    check_refused(command, 3, "expected a list of 2147483647 names", "identifiers.json");
    fs::remove("up/identifiers.json");
    check_refused(command, 3, "'num_puzzle_identifiers' is 2147483647, but there are 4 puzzles");
    state("6");
    check_refused(command, 3, "'num_puzzle_identifiers' is 6, but there are 4 puzzles");
    state("5");
    prepare(command);
  }

  TEST_CASE("bad tables end with one line, exit code 3 and no file") {
    const std::string header = "source,question,answer,rating\n", good = std::string("x,") + kQ + "," + kA + ",0\n";
    write_text("header.csv", "a,b\n1,2\n");
    write_text("empty.csv", header);
    write_text("short.csv", header + good + "x,12,12,0\n");
    std::string two(81, '.');
    write_text("two.csv", header + "x," + two + "," + kA + ",0\n");
    write_text("unrated.csv", std::string("question,answer\n") + kQ + "," + kA + "\n");
    write_text("gap.csv", header + "g,S  # # #    ## G,S  #o# # ooo## G,6\n");
    write_text("good.csv", header + good);
    write_text("latin.csv", header + "caf\xE9" + good);
    write_text("four.csv", header + "x,123434122143432.,1234341221434321,0\n");
    const auto before = names_in(".");
    const std::pair<const char*, const char*> cases[] = {
        {"sudoku --train header.csv -o o.h5", "'header.csv' line 1: none of the columns a, b is the question"},
        {"sudoku --train empty.csv -o o.h5", "no puzzles in it"},
        {"sudoku --train short.csv -o o.h5", "'short.csv' line 3: the question has 2 characters"},
        {"sudoku --train two.csv --require-unique -o o.h5",
         "'two.csv' line 2: the question has more than one solution"},
        {"sudoku --train unrated.csv --min-difficulty 1 -o o.h5", "'unrated.csv' line 2: no rating"},
        {"sudoku --train good.csv --min-difficulty 1 -o o.h5", "none of 1 puzzles has a rating of at least 1"},
        {"sudoku --train good.csv --test four.csv -o o.h5", "grids of 16 cells, 'good.csv' has 81"},
        {"sudoku --train latin.csv -o o.h5", "'latin.csv' line 2: the source is not UTF-8"},
        {"maze --train gap.csv -o o.h5", "'gap.csv' line 2: the path of the answer does not lead"},
        {"maze --train good.csv -o o.h5", "'good.csv' line 2: '.' in cell 1"}};
    for (const auto& [words, expected] : cases) check_refused(words, 3, expected);
    prepare("sudoku --train none.csv -o o.h5", 2);
    prepare("sudoku --train . -o o.h5", 2);
    prepare("hrm-npy --input . -o o.h5", 2);
    prepare("arc --input none -o o.h5", 2);
    CHECK(names_in(".") == before);
  }
}
