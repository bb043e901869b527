#include "lockstep/ops/spmm.hpp"

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/f16.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "ops/every_isa.hpp"
#include "ops/on_both.hpp"

namespace {

/// A random matrix with empty, single-entry and long rows; row 0 has a third of all columns, rows 2 and 4 many.
struct Sparse {
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> column;
  Sparse(std::int64_t rows, std::int64_t columns) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const Philox draws(7, 0, "pattern", static_cast<std::uint64_t>(r));
      const double density = r == 0 ? 0.33 : r % 5 == 1 ? 0 : 0.04;
      for (std::uint64_t e = 0; e < (r == 2 ? 700u : r == 4 ? 257u : 0u); ++e)
        column.push_back(static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(columns), 1000 + e)));
      for (std::int64_t c = 0; c < columns && r != 2 && r != 4; ++c)
        if (draws.uniform(static_cast<std::uint64_t>(c)) < density) column.push_back(static_cast<std::int32_t>(c));
      indptr.push_back(std::ssize(column));
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

}  // namespace

TEST_SUITE("ops.spmm") {
  TEST_CASE("definition, bits and devices for any width, rows and columns (a product has no gradient of its own)") {
    constexpr Int kColumns = 211;
    std::map<Int, Sparse> matrices;
    const auto matrix = [&](Int rows) -> const Sparse& {
      return matrices.try_emplace(rows, rows, kColumns).first->second;
    };
    std::vector<std::uint64_t> third(4, 0);
    for (std::size_t c = 0; c < kColumns; c += 3) third[c / 64] |= std::uint64_t{1} << (c % 64);
    for (const bool some_columns : {false, true}) {
      const auto run = [&](Place& p, Int rows, Int width) {
        const Sparse& a = matrix(rows);
        std::vector<std::int32_t> even;
        for (Int r = 0; r < rows; r += 2) even.push_back(static_cast<std::int32_t>(r));
        const ops::CsrPattern pattern = {p.host(a.indptr), p.host(a.column)};
        const ops::RowBits columns = some_columns ? ops::RowBits(p.host(third)) : ops::RowBits();
        const ops::RowSet all = ops::RowSet::range(0, rows), some = ops::RowSet::list(p.host(even));
        const Tensor values = p.weight("values", {std::ssize(a.column)}), x = p.weight("x", {kColumns, width});
        const Tensor listed = p.out("listed", {rows, width}), added = p.out("listed, added", {rows, width});
        ops::spmm(p.stream, p.to("y", {rows, width}), pattern, values, x, all, columns);
        ops::spmm(p.stream, {listed, false}, pattern, values, x, some, columns);
        ops::spmm(p.stream, {added, true}, pattern, values, x, some, columns);
      };
      const auto definition = [&](Plain& r, Int rows, Int width) {
        const Sparse& a = matrix(rows);
        const auto values = r.in("values"), x = r.in("x"), before = r.in("listed"), old = r.in("listed, added");
        const auto y = r.out("y"), listed = r.out("listed"), added = r.out("listed, added");
        for (Int m = 0; m < rows; ++m)
          for (Int i = 0; i < width; ++i) {
            for (Int e = a.indptr[to_size(m)]; e < a.indptr[to_size(m) + 1]; ++e)
              if (const Int c = a.column[to_size(e)]; !some_columns || c % 3 == 0) y(m, i) += values(e) * x(c, i);
            listed(m, i) = m % 2 == 0 ? y(m, i) : before(m, i);
            added(m, i) = old(m, i) + (m % 2 == 0 ? y(m, i) : 0);
          }
      };
      CHECK(faults(run, definition, {{37, 1}, {37, 10}, {37, 33}, {37, 64}},
                   {.f32 = 5e-6,
                    .f64 = 1e-13,
                    .gpu = {.f32 = 2e-6, .f64 = 1e-13, .bf16 = 0, .f16 = 0},
                    .rows = false,  // rows of the matrix; below
                    // The tall one: several groups of rows and of entries.
                    .cpu_sizes = {{37, 5},
                                  {37, 16},
                                  {37, 31},
                                  {37, 32},
                                  {37, 48},
                                  {37, 65},
                                  {37, 100},
                                  {37, 176},
                                  {2000, 16},
                                  {0, 8},
                                  {1, 3}},
                    .gpu_sizes = {{37, 4}, {37, 132}}}) == "");
    }
  }

  TEST_CASE("a row's bits depend on neither the threads nor the other rows") {
    constexpr std::int64_t kRows = 3000, kColumns = 500, kWidth = 40;
    const Sparse a(kRows, kColumns);
    auto values = draw<float>(std::ssize(a.column), "values");
    auto x = draw<float>(kColumns * kWidth, "x");
    const auto product = [&](int threads, const ops::RowSet& rows) {
      std::vector<float> y(kRows * kWidth, 0);
      Stream stream;
      const Threads limit(threads);
      ops::spmm(stream, {Tensor::of(y.data(), {kRows, kWidth})}, a.pattern(),
                Tensor::of(values.data(), {std::ssize(values)}), Tensor::of(x.data(), {kColumns, kWidth}), rows);

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
    auto values = draw<float>(std::ssize(a.column), "values");
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
                    Tensor::of(values.data(), {std::ssize(values)}), read, ops::RowSet::range(0, kRows));
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

TEST_SUITE("ops.spmm.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("a row of spmm has the same bits however many rows a block computes") {
    constexpr std::int64_t kRows = 9001, kPart = 1300, kWidth = 20, kColumns = 90;
    std::vector<std::int64_t> indptr = {0};
    std::vector<std::int32_t> column;
    const Philox draw(5, 0, "matrix");
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t e = 0; e < (r % 1500 == 7 ? 600 : r % 5 == 3 ? 40 : r % 3); ++e)
        column.push_back(static_cast<std::int32_t>(draw.below(kColumns, column.size())));
      indptr.push_back(std::ssize(column));
    }
    std::vector<std::uint64_t> bits = {0x123456789abcdef, 0x5555555};
    agrees_on_both(
        [&](Place& p) {
          const Tensor x = p.in("x", {kColumns, kWidth}), values = p.in("values", {std::ssize(column)});
          const ops::CsrPattern pattern = {p.host(indptr), p.host(column)};
          for (const ops::RowBits columns : {ops::RowBits(), ops::RowBits(p.host(bits))}) {
            const Tensor all = p.out("all", {kRows, kWidth}), parts = p.out("parts", all.shape());
            ops::spmm(p.stream, {all}, pattern, values, x, ops::RowSet::range(0, kRows), columns);
            for (std::int64_t first = 0; first < kRows; first += kPart)
              ops::spmm(p.stream, {parts}, pattern, values, x,
                        ops::RowSet::range(first, std::min(kPart, kRows - first)), columns);
            CHECK(same_bits(HostView(all), HostView(parts)));
          }
        },
        2e-6, 1e-13);
  }

  TEST_CASE("spmm reads bf16 as the CPU does, after the same rounding") {
    constexpr std::int64_t kRows = 75, kColumns = 90;
    const Sparse m(kRows, kColumns);
    std::vector<std::int32_t> all(kColumns);
    std::iota(all.begin(), all.end(), 0);
    std::swap(all.front(), all[to_size(m.column.front())]);  // a row of x that the matrix reads
    for (const std::int64_t width : {7, 64}) {
      const auto run = [&](Place& p) {
        const Tensor x = p.in("x", {kColumns, width}), half = p.put(OwnedTensor(DType::bf16, x.shape()));
        ops::round_node_rows(p.stream, half, x, ops::RowSet::list(p.host(all)));
        ops::spmm(p.stream, {p.out("y", {kRows, width})}, {p.host(m.indptr), p.host(m.column)},
                  p.in("values", {std::ssize(m.column)}), half, ops::RowSet::range(0, kRows));
      };
      CHECK(device_faults(run, {2e-6, 0, 0, 0}) == "");
    }
  }
}
