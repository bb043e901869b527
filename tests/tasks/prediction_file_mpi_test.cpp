#include "lockstep/base/options.hpp"
#include "lockstep/tasks/prediction_file.hpp"
#include "support/mpi_main.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kRows = 11;  // blocks of 2: the last one is short, and ranks have unequal numbers of blocks

float score(std::int64_t row, std::int64_t k) {
  return row == 3 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(row) / 3 + static_cast<float>(k);
}
std::string user(std::int64_t row) { return row == 1 ? "a \"quoted\", one" : "u" + std::to_string(row); }

PredictionTable table() {
  PredictionTable t;
  t.columns = {{.name = "user", .type = H5Type::text, .longest = 15},
               {.name = "items", .type = H5Type::i64, .extents = {2}},
               {.name = "score", .type = H5Type::f32, .extents = {2}, .labels = {"first", "second"}},
               {.name = "matrix", .type = H5Type::f64, .extents = {1, 2}}};
  t.rows = kRows;
  t.block_rows = 2;
  t.unit = "users";
  t.attributes = describe_source("toy", "best.h5", "00ff", "lockstep predict",
                                 {"--checkpoint", "best.h5", "--output", "elsewhere.h5", "--threads", "2", "--top", "2",
                                  "--output=x", "--run.threads=3"});
  t.block = [](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = first + i;
      std::get<std::vector<std::string>>(values[0])[to_size(i)] = user(row);
      for (std::int64_t k = 0; k < 2; ++k) {
        const auto at = to_size(2 * i + k);
        std::get<std::vector<std::int64_t>>(values[1])[at] = 10 * row + k;
        std::get<std::vector<float>>(values[2])[at] = score(row, k);
        std::get<std::vector<double>>(values[3])[at] = k == 0 ? 0.1 : static_cast<double>(row);
      }
    }
  };
  return t;
}

/// The path of a file that rank 0 writes.
std::string shared(const TempDir& dir, const std::string& name) {
  return test_world().communicator().broadcast_text((dir / name).string(), 0, "path");
}

/// The message with which all ranks leave, or "".
std::string failure(const PredictionOutput& output, const PredictionTable& t) {
  try {
    write_predictions(test_world(), output, t);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("tasks.prediction_file") {
  TEST_CASE("rank 0 sees every block in the order of the rows, also without a file") {
    PredictionTable t = table();
    std::vector<std::string> seen;
    t.see = [&](std::int64_t first, std::int64_t count, const std::vector<PredictionValues>& values) {
      CHECK(first == std::ssize(seen));
      const auto& users = std::get<std::vector<std::string>>(values[0]);
      CHECK(std::ssize(users) == count);
      seen.insert(seen.end(), users.begin(), users.end());
    };
    write_predictions(test_world(), {}, t);
    REQUIRE(std::ssize(seen) == (test_world().rank() == 0 ? kRows : 0));
    for (std::size_t row = 0; row < seen.size(); ++row) CHECK(seen[row] == user(static_cast<std::int64_t>(row)));
  }

  TEST_CASE("every format has all rows in order and reads back as the same values, on any number of ranks") {
    const TempDir dir;
    for (const std::string name : {"p.h5", "p.csv", "p.jsonl"})
      write_predictions(test_world(), {shared(dir, name), "auto"}, table());
    write_predictions(test_world(), {shared(dir, "named.txt"), "csv"}, table());
    if (test_world().rank() != 0) return;
    const H5File file = H5File::open(dir / "p.h5");
    const auto users = file.read_text("/user");
    const auto items = file.read<std::int64_t>("/items");
    const auto scores = file.read<float>("/score");
    const auto matrix = file.read<double>("/matrix");
    REQUIRE(scores.size() == 2 * kRows);
    CHECK(file.info("/matrix").shape == std::vector<std::int64_t>{kRows, 1, 2});
    for (std::int64_t row = 0; row < kRows; ++row) {
      CHECK(users[to_size(row)] == user(row));
      for (std::int64_t k = 0; k < 2; ++k) {
        const auto at = to_size(2 * row + k);
        CHECK(items[at] == 10 * row + k);
        CHECK((scores[at] == score(row, k) || (row == 3 && std::isnan(scores[at]))));
        CHECK(matrix[at] == (k == 0 ? 0.1 : static_cast<double>(row)));
      }
    }
    CHECK(file.text_attribute("/", "kind") == "toy");
    CHECK(file.text_attribute("/", "data_hash") == "00ff");
    CHECK(file.text_attribute("/", "command") == "lockstep predict --checkpoint best.h5 --top 2");

    const std::string csv = read_text(dir / "p.csv"), json = read_text(dir / "p.jsonl");
    CHECK(
        csv.starts_with("user,items_1,items_2,score_first,score_second,matrix_1_1,matrix_1_2\n"
                        "u0,0,1,0,1,0.10000000000000001,0\n"
                        "\"a \"\"quoted\"\", one\",10,11,0.333333343,1.33333337,0.10000000000000001,1\n"));
    CHECK(csv.find("\nu3,30,31,,,0.10000000000000001,3\n") != std::string::npos);
    CHECK(csv.ends_with("\nu10,100,101,3.33333325,4.33333302,0.10000000000000001,10\n"));
    CHECK(read_text(dir / "named.txt") == csv);
    CHECK(json.starts_with(R"({"user": "u0", "items": [0, 1], "score": [0, 1], "matrix": [[0.10000000000000001, 0]]})"
                           "\n"
                           R"({"user": "a \"quoted\", one", "items": [10, 11], )"));
    CHECK(json.find(R"({"user": "u3", "items": [30, 31], "score": [null, null], )") != std::string::npos);
    CHECK(std::count(json.begin(), json.end(), '\n') == kRows);
  }

  TEST_CASE("a failure on any rank ends all ranks with one message and leaves no file") {
    const TempDir dir;
    PredictionTable t = table();
    const PredictionBlock block = t.block;
    t.block = [&](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
      require_data(first < 6, "row ", first, " cannot be predicted");
      block(first, count, values);
    };
    for (const std::string name : {"p.h5", "p.csv"})
      CHECK(failure({shared(dir, name), "auto"}, t).find("row 6 cannot be predicted") != std::string::npos);
    t = table();
    t.agree = [] { test_world().together("the check", [] { throw Error(Fault::data, "the sums do not agree"); }); };
    CHECK(failure({shared(dir, "p.jsonl"), "auto"}, t).find("the sums do not agree") != std::string::npos);
    CHECK(fs::is_empty(dir.path()));
  }

  TEST_CASE("an extension that names no format, an input as output and a directory are refused") {
    const TempDir dir;
    const auto refused = [&](const PredictionOutput& output) -> std::string {
      try {
        require_output(output, {(dir / "in.csv").string(), ""});
      } catch (const Error& error) {
        return error.fault() == Fault::usage ? error.what() : "";
      }
      return "";
    };
    write_text(dir / "in.csv", "x");
    CHECK(refused({(dir / "p.parquet").string(), "auto"}).find("set --format") != std::string::npos);
    CHECK(refused({(dir / "in.csv").string(), "auto"}).find("it is the input") != std::string::npos);
    CHECK(refused({dir.path().string(), "csv"}).find("it is a directory") != std::string::npos);
    CHECK(refused({(dir / "new.ndjson").string(), "auto"}).empty());
  }
}
