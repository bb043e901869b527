#include "lockstep/ops/spmm.hpp"

#include "every_isa.hpp"
#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"
#include "support/test.hpp"

namespace {

/// A random matrix with empty, single-entry and long rows; row 0 has a third of all columns.
struct Sparse {
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> column;
  Sparse(std::int64_t rows, std::int64_t columns) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const Philox draws(7, 0, "pattern", static_cast<std::uint64_t>(r));
      const double density = r == 0 ? 0.33 : r % 5 == 1 ? 0 : 0.04;
      for (std::int64_t c = 0; c < columns; ++c)
        if (draws.uniform(static_cast<std::uint64_t>(c)) < density) column.push_back(static_cast<std::int32_t>(c));
      indptr.push_back(static_cast<std::int64_t>(column.size()));
    }
  }
  ops::CsrPattern pattern() const { return {indptr, column}; }
};

template <class T>
std::vector<T> draw(std::int64_t n, const char* site) {
  const Philox draws(11, 0, site);
  std::vector<T> values(to_size(n));
  for (std::int64_t i = 0; i < n; ++i) values[to_size(i)] = static_cast<T>(draws.normal(static_cast<std::uint64_t>(i)));
  return values;
}

template <class T>
void check(std::int64_t rows, std::int64_t width, double tolerance) {
  CAPTURE(rows);
  CAPTURE(width);
  constexpr std::int64_t kColumns = 211;
  const Sparse a(rows, kColumns);
  auto values = draw<T>(static_cast<std::int64_t>(a.column.size()), "values");
  auto x = draw<T>(kColumns * width, "x");
  const auto before = draw<T>(rows * width, "y");
  std::vector<std::uint64_t> bits(4, 0);
  for (std::size_t c = 0; c < kColumns; c += 3) bits[c / 64] |= std::uint64_t{1} << (c % 64);
  std::vector<std::int32_t> list;
  for (std::int64_t r = 0; r < rows; r += 2) list.push_back(static_cast<std::int32_t>(r));
  Stream stream;
  for (const bool some_rows : {false, true}) {
    for (const bool some_columns : {false, true}) {
      for (const bool accumulate : {false, true}) {
        auto y = before;
        const auto set = some_rows ? ops::RowSet::list(list) : ops::RowSet::range(0, rows);
        ops::spmm(stream, {Tensor::of(y.data(), {rows, width}), accumulate}, a.pattern(),
                  Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())}),
                  Tensor::of(x.data(), {kColumns, width}), set, some_columns ? ops::RowBits(bits) : ops::RowBits());
        double worst = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < width; ++c) {
            const auto at = to_size(r * width + c);
            double sum = some_rows && r % 2 == 1 ? before[at] : accumulate ? before[at] : 0;
            for (std::int64_t e = a.indptr[to_size(r)]; !(some_rows && r % 2 == 1) && e < a.indptr[to_size(r) + 1];
                 ++e) {
              const std::int32_t column = a.column[to_size(e)];
              if (some_columns && column % 3 != 0) continue;
              sum += static_cast<double>(values[to_size(e)]) * x[to_size(column * width + c)];
            }
            worst = std::max(worst, std::abs(sum - y[at]));
          }
        }
        CHECK(worst < tolerance);
      }
    }
  }
}

}  // namespace

TEST_SUITE("ops.spmm") {
  TEST_CASE("the product agrees with plain sums for any width, rows and columns") {
    for_every_isa([] {
      for (const std::int64_t width : {1, 5, 10, 16, 31, 32, 48, 64, 65, 100, 176}) {
        check<float>(37, width, 2e-5);
        check<double>(37, width, 1e-13);
      }
      check<float>(2000, 16, 2e-5);  // several groups of rows and of entries
      check<float>(0, 8, 1e-5);
      check<double>(1, 3, 1e-13);
    });
  }

  TEST_CASE("a row's bits depend on neither the threads nor the other rows") {
    constexpr std::int64_t kRows = 3000, kColumns = 500, kWidth = 40;
    const Sparse a(kRows, kColumns);
    auto values = draw<float>(static_cast<std::int64_t>(a.column.size()), "values");
    auto x = draw<float>(kColumns * kWidth, "x");
    const auto product = [&](int threads, const ops::RowSet& rows) {
      std::vector<float> y(kRows * kWidth, 0);
      Stream stream;
      const Threads limit(threads);
      ops::spmm(stream, {Tensor::of(y.data(), {kRows, kWidth})}, a.pattern(),
                Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())}),
                Tensor::of(x.data(), {kColumns, kWidth}), rows);

      return y;
    };
    const auto one = product(1, ops::RowSet::range(0, kRows)), four = product(4, ops::RowSet::range(0, kRows));
    CHECK(std::memcmp(one.data(), four.data(), one.size() * sizeof(float)) == 0);
    const auto part = product(1, ops::RowSet::range(100, 30));
    CHECK(std::memcmp(one.data() + 100 * kWidth, part.data() + 100 * kWidth, 30 * kWidth * sizeof(float)) == 0);
  }

  TEST_CASE("rows of halves are read exactly") {
    constexpr std::int64_t kRows = 20, kColumns = 50, kWidth = 37;
    const Sparse a(kRows, kColumns);
    auto values = draw<float>(static_cast<std::int64_t>(a.column.size()), "values");
    const auto drawn = draw<float>(kColumns * kWidth, "x");
    const auto same = [&](auto half, const auto& to, const auto& from) {
      std::vector<decltype(half)> rounded(drawn.size());
      std::vector<float> x(drawn);
      for (std::size_t i = 0; i < x.size(); ++i) {
        rounded[i].bits = to(x[i]);
        x[i] = from(rounded[i].bits);
      }
      for_every_isa([&] {
        std::vector<float> y(kRows * kWidth), z(y);
        Stream stream;
        const auto multiply = [&](std::vector<float>& result, const Tensor& read) {
          ops::spmm(stream, {Tensor::of(result.data(), {kRows, kWidth})}, a.pattern(),
                    Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())}), read,
                    ops::RowSet::range(0, kRows));
        };
        multiply(y, Tensor::of(x.data(), {kColumns, kWidth}));
        multiply(z, Tensor::of(rounded.data(), {kColumns, kWidth}));
        CHECK(y == z);
      });
    };
    same(bf16{}, to_bf16, from_bf16);
    same(f16{}, to_f16, from_f16);
  }
}
