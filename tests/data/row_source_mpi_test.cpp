#include <numeric>

#include "lockstep/base/hash.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/row_source.hpp"
#include "support/errors.hpp"
#include "support/mpi_main.hpp"
#include "support/temp_dir.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kRows = 1000, kWidth = 3, kBytes = 5;

float number(std::int64_t row, std::int64_t c) { return static_cast<float>(row * 10 + c); }
std::uint8_t byte(std::int64_t row, std::int64_t c) { return static_cast<std::uint8_t>(row * 7 + c); }

/// Rows of kWidth numbers and of kBytes bytes.
std::vector<RowColumn> columns() {
  return {{DType::f32,
           {kRows, kWidth},
           [](std::int64_t first, const Tensor& to) {
             for (std::int64_t i = 0; i < to.size(); ++i) to.data<float>()[i] = number(first + i / kWidth, i % kWidth);
           }},
          {DType::u8, {kRows, kBytes}, [](std::int64_t first, const Tensor& to) {
             for (std::int64_t i = 0; i < to.size(); ++i)
               to.data<std::uint8_t>()[i] = byte(first + i / kBytes, i % kBytes);
           }}};
}

/// Rows of which no rank holds any: each reads its share of them from the file.
struct InFile {
  explicit InFile(const fs::path& path = {})
      : source(memory, &test_world(), {.layout = DataLayout::divided, .memory_bytes = 4096}),
        arrays(source.place(kRows, columns(), path)) {}
  bool has(std::int64_t row) const {
    for (std::int64_t c = 0; c < kWidth; ++c)
      if (arrays[0].row<float>(row)[c] != number(row, c)) return false;
    for (std::int64_t c = 0; c < kBytes; ++c)
      if (arrays[1].row<std::uint8_t>(row)[c] != byte(row, c)) return false;
    return true;
  }
  LocalDataMemory memory;
  RowSource source;
  std::vector<RowArray> arrays;
};

}  // namespace

TEST_SUITE("data.row_source") {
  TEST_CASE("each rank finds the rows that it fetched, and only these") {
    InFile rows;
    REQUIRE(!rows.source.whole());
    CHECK(rows.source.fetch_rows() < kRows);
    const std::int64_t rank = test_world().rank();
    const std::vector<std::vector<std::int64_t>> fetches = {
        {999, 0, 500, 501, 0, 998 - rank}, {}, {7 + rank}, std::vector<std::int64_t>(to_size(rank), 3)};
    for (const auto& wanted : fetches) {
      rows.source.fetch(wanted);
      for (const std::int64_t row : wanted) CHECK(rows.has(row));
      CHECK_THROWS_WITH_AS(rows.has(600), doctest::Contains("reading row 600: this rank has not fetched it"), Error);
    }
    std::vector<std::int64_t> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    rows.source.fetch(all);
    CHECK(std::ranges::all_of(all, [&](std::int64_t row) { return rows.has(row); }));
  }

  TEST_CASE("the rows of a fetch stay until the next one is finished, and an unfinished one can be replaced") {
    InFile rows;
    rows.source.fetch({1, 2});
    rows.source.start({3});
    CHECK(rows.has(2));
    const std::int64_t mine = rows.source.fetches();
    rows.source.fetch({4});  // as an evaluation does
    CHECK(rows.source.fetches() != mine);
    CHECK(rows.has(4));
  }

  TEST_CASE("the hash is that of all rows in memory") {
    InFile rows;
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < kRows * kWidth; ++i) numbers.push_back(number(i / kWidth, i % kWidth));
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{77}})
      CHECK(rows.source.hash(rows.arrays[0], seed) == hash64(numbers.data(), numbers.size() * sizeof(float), seed));
    CHECK(rows.source.hash(rows.arrays[0], 5, 100, 500) ==
          hash64(numbers.data() + 100 * kWidth, 500 * kWidth * sizeof(float), 5));
    CHECK(rows.source.hash(rows.arrays[0], 5, 100, 0) == hash64("", 0, 5));
  }

  TEST_CASE("a sum over rows calls for each row once, on a rank that has it") {
    InFile rows;
    std::vector<double> found(300);
    const auto row_of = [](std::int64_t i) { return kRows - 1 - 3 * i; };
    rows.arrays[0].sum_over(
        300, row_of, [&](std::int64_t i) { found[to_size(i)] += rows.arrays[0].row<float>(row_of(i))[1]; }, found);
    for (std::int64_t i = 0; i < 300; ++i) CHECK(found[to_size(i)] == number(row_of(i), 1));
  }

  TEST_CASE("rows may differ in size, and some may be empty") {
    std::vector<std::int64_t> starts = {0};
    for (std::int64_t row = 0; row < kRows; ++row) starts.push_back(starts.back() + (row % 7 == 3 ? 0 : row % 40));
    const std::int64_t all = starts.back();
    const auto values = [&]<class T>(T) {
      return RowColumn{dtype_of<T>::value,
                       {all},
                       [&](std::int64_t first, const Tensor& to) {
                         for (std::int64_t i = 0; i < to.size(); ++i)
                           to.data<T>()[i] = static_cast<T>(3 * (starts[to_size(first)] + i));
                       },
                       starts};
    };
    for (const double memory_bytes : {4096.0, 1e9}) {
      LocalDataMemory memory;
      RowSource source(memory, &test_world(), {.layout = DataLayout::divided, .memory_bytes = memory_bytes});
      const auto arrays = source.place(kRows, {values(std::int32_t{}), values(std::int64_t{})}, {});
      CHECK(source.whole() == (memory_bytes == 1e9));
      const std::vector<std::int64_t> wanted = {3, 999, 39, 40 + test_world().rank(), 500};
      arrays[0].fetch(wanted);
      for (const std::int64_t row : wanted)
        for (std::int64_t at = starts[to_size(row)], i = 0; at < starts[to_size(row) + 1]; ++at, ++i) {
          CHECK(arrays[0].row<std::int32_t>(row)[i] == 3 * at);
          CHECK(arrays[1].row<std::int64_t>(row)[i] == 3 * at);
        }
      std::vector<std::int64_t> numbers;
      for (std::int64_t at = 0; at < all; ++at) numbers.push_back(3 * at);
      CHECK(source.hash(arrays[1], 9) == hash64(numbers.data(), numbers.size() * sizeof(std::int64_t), 9));
      CHECK(source.hash(arrays[1], 9, 0, 30) == hash64(numbers.data(), to_size(starts[30]) * sizeof(std::int64_t), 9));
    }
  }

  TEST_CASE("row numbers have 64 bits") {
    constexpr std::int64_t kMany = 3'000'000'000;
    LocalDataMemory memory;
    RowSource source(memory, &test_world(), {.layout = DataLayout::divided, .memory_bytes = 4096});
    const auto low_byte = [](std::int64_t first, const Tensor& to) {
      for (std::int64_t i = 0; i < to.size(); ++i) to.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(first + i);
    };
    const RowArray rows = source.place(kMany, {{DType::u8, {kMany, 1}, low_byte}}, {}).front();
    const std::vector<std::int64_t> wanted = {kMany - 1 - test_world().rank(), 2'147'483'648, 2'147'483'647, 0};
    rows.fetch(wanted);
    for (const std::int64_t row : wanted) CHECK(*rows.row<std::uint8_t>(row) == row % 256);
  }

  TEST_CASE("rows that fit are held, and the layout decides nothing else") {
    LocalDataMemory memory;
    for (const DataLayout layout : {DataLayout::automatic, DataLayout::divided, DataLayout::replicate}) {
      RowSource source(memory, &test_world(), {.layout = layout, .memory_bytes = 1e6});
      const std::vector<RowArray> arrays = source.place(kRows, columns(), {});
      CHECK(source.whole());
      CHECK(arrays[0].row<float>(kRows - 1)[1] == number(kRows - 1, 1));
      CHECK(arrays[1].all().size() == kRows * kBytes);
    }
  }

  TEST_CASE("a file that changes is refused when the next rows are read") {
    const TempDir dir;
    const fs::path path = dir / join("rows-", test_world().rank());
    std::ofstream(path) << "abc";
    InFile rows(path);
    std::ofstream(path) << "abcd";
    rows.source.start({1});
    CHECK(error_of(Fault::data, [&] { rows.source.finish(); })
              .find("has changed since the run opened it (3 bytes then, 4 "
                    "now)") != std::string::npos);
  }
}
