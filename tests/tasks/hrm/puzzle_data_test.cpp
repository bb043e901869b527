#include "lockstep/tasks/hrm/puzzle_data.hpp"

#include "support/test.hpp"

namespace {

/// A puzzle file of three groups with four puzzles and five examples of four cells.
struct Contents {
  std::vector<std::uint8_t> inputs = {1, 2, 3, 1, 2, 1, 1, 3, 1, 1, 2, 3, 3, 2, 1, 1, 2, 2, 1, 3};
  std::vector<std::uint8_t> labels = {3, 2, 3, 0, 2, 3, 2, 3, 2, 3, 2, 3, 3, 2, 3, 2, 2, 2, 3, 3};
  std::vector<std::int64_t> puzzle_indices = {0, 1, 3, 4, 5}, group_indices = {0, 1, 3, 4};
  std::vector<std::int32_t> identifiers = {0, 1, 2, 1}, source = {0, 1, 0};
  std::int64_t version = 1;
  std::string format = "hrm-puzzles", leave_out;
};

void write(const fs::path& path, const Contents& c) {
  H5File file = H5File::create(path);
  for (const auto& [name, value] : {std::pair{"version", c.version},
                                    {"seq_len", 4},
                                    {"vocab_size", 4},
                                    {"pad_id", 0},
                                    {"num_puzzle_identifiers", 3},
                                    {"ignore_label_id", 0},
                                    {"blank_identifier_id", 0}})
    file.set_attribute("/", name, static_cast<std::int64_t>(value));
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>{"format", c.format}, {"task", "sudoku"}, {"augment", "offline"}})
    file.set_attribute("/", name, value);
  file.write_text("/source_names", {"easy", "hard"});
  const auto put = [&]<class T>(const std::string& name, const std::vector<T>& values, std::int64_t width) {
    const auto n = std::ssize(values);
    const auto shape = width > 1 ? std::vector<std::int64_t>{n / width, width} : std::vector<std::int64_t>{n};
    if (name != c.leave_out) file.write<T>("/train/all/" + name, values, shape);
  };
  file.create_group("/train/all");
  put("inputs", c.inputs, 4);
  put("labels", c.labels, 4);
  put("puzzle_indices", c.puzzle_indices, 1);
  put("group_indices", c.group_indices, 1);
  put("puzzle_identifiers", c.identifiers, 1);
  put("source", c.source, 1);
}

/// The message of the data error that opening the damaged file throws.
std::string refusal_of(const std::function<void(Contents&)>& spoil) {
  Contents contents;
  spoil(contents);
  write("puzzles.h5", contents);
  LocalDataMemory data_memory;
  return error_of(Fault::data, [&] { PuzzleData::open("puzzles.h5", data_memory); });
}

void refused(const std::function<void(Contents&)>& spoil, const std::string& part) {
  check_mentions(refusal_of(spoil), "puzzles.h5", part);
}

}  // namespace

TEST_SUITE("tasks.puzzle_data") {
  TEST_CASE("written data are read back") {
    write("puzzles.h5", {});
    LocalDataMemory data_memory;
    const PuzzleData data = PuzzleData::open("puzzles.h5", data_memory);
    REQUIRE(data.train.size() == 1);
    const PuzzlePart& part = data.train[0];
    CHECK(data.test.empty());
    CHECK(part.examples() == 5);
    CHECK(part.puzzles() == 4);
    CHECK(part.groups() == 3);
    CHECK(part.puzzle_of(2) == 1);
    CHECK(part.group_of(2) == 1);
    std::vector<std::int32_t> inputs(4), labels(4);
    data.read({.part = &part, .row = 0}, inputs, labels);
    CHECK(inputs == std::vector<std::int32_t>{1, 2, 3, 1});
    CHECK(labels == std::vector<std::int32_t>{3, 2, 3, -1});  // the last cell is ignored
  }

  TEST_CASE("invalid contents are an error with dataset and row") {
    refused([](Contents& c) { c.format = "kg"; }, "its format is 'kg', expected 'hrm-puzzles'");
    refused([](Contents& c) { c.version = 9; }, "version 9, this program reads version 1");
    refused([](Contents& c) { c.inputs[9] = 4; }, "token 4 in row 2 is not in 0 .. 3");
    refused([](Contents& c) { c.labels[19] = 200; }, "label 200 in row 4 is not in 0 .. 3");
    refused([](Contents& c) { c.labels.resize(16); }, "4 rows, but inputs have 5");
    refused([](Contents& c) { c.identifiers[2] = 3; }, "identifier 3 in row 2 is not in 0 .. 2");
    refused([](Contents& c) { c.identifiers[1] = -1; }, "identifier -1 in row 1");
    refused([](Contents& c) { c.source[1] = 2; }, "source 2 in row 1 is not in 0 .. 1");
    refused([](Contents& c) { c.group_indices = {0, 3, 3, 4}; }, "/group_indices' of '");
    refused([](Contents& c) { c.group_indices = {0, 3, 2, 4}; }, "does not rise at row 2");
    refused([](Contents& c) { c.group_indices = {0, 1, 3, 5}; }, "runs from 0 to 5, expected 0 to 4");
    refused([](Contents& c) { c.puzzle_indices = {0, 1, 1, 4, 5}; }, "does not rise at row 2");
    refused([](Contents& c) { c.puzzle_indices = {0, 1, 3, 5}; }, "expected (5)");
    refused([](Contents& c) { c.leave_out = "labels"; }, "no such dataset");
  }
}
