#include "lockstep/ops/gather.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_SUITE("ops.gather") {
  TEST_CASE("rows come in the requested order, with repetitions, in any dtype") {
    Stream stream;
    const OwnedTensor table = random_tensor(DType::f32, {5, 3}, "table"), y(DType::f32, {4, 3});
    const std::vector<std::int64_t> rows = {4, 0, 4, 2};
    ops::gather_rows(stream, y, table, rows);
    for (std::size_t i = 0; i < rows.size(); ++i)
      CHECK(same_bits(y->slice(static_cast<std::int64_t>(i), 1), table->slice(rows[i], 1)));
    const std::vector<std::uint8_t> bytes = {7, 8, 9};
    std::vector<std::uint8_t> one(1);
    ops::gather_rows(stream, Tensor::of(one.data(), {1}), Tensor::of(bytes.data(), {3}), std::vector<std::int64_t>{2});
    CHECK(one[0] == 9);
    ops::gather_rows(stream, OwnedTensor(DType::f32, {0, 3}), table, {});
  }

  TEST_CASE("a row that does not exist is reported") {
    Stream stream;
    const OwnedTensor table(DType::f32, {5, 3}), y(DType::f32, {1, 3});
    CHECK_THROWS_WITH_AS(ops::gather_rows(stream, y, table, std::vector<std::int64_t>{5}),
                         "gather_rows: row 5 of a table of 5 rows", Error);
    CHECK_THROWS_WITH_AS(ops::gather_rows(stream, y, table, std::vector<std::int64_t>{-1}),
                         "gather_rows: row -1 of a table of 5 rows", Error);
    CHECK_THROWS_AS(ops::gather_rows(stream, y, table, std::vector<std::int64_t>{1, 2}), Error);
    CHECK_THROWS_AS(ops::gather_rows(stream, OwnedTensor(DType::f64, {1, 3}), table, std::vector<std::int64_t>{1}),
                    Error);
  }
}
