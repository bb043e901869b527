#include "lockstep/ops/row_groups.hpp"

#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
std::vector<std::int32_t> counted(Int n, Int below) {
  std::vector<std::int32_t> values;
  for (Int i = 0; i < n; ++i) values.push_back(static_cast<std::int32_t>(i % below));
  return values;
}
}  // namespace

TEST_SUITE("ops.row_groups") {
  TEST_CASE("definition, gradients, bits and devices of copied, summed and masked rows") {
    const auto run = [](Place& p, Int n, Int group, Int c) {
      const Tensor few = p.in("few", {n, c}), many = p.in("many", {group * n, c});
      ops::copy_rows(p.stream, p.to("copies", {group * n, c}), few, group);
      ops::sum_rows(p.stream, p.to("sums", {n, c}), many, group);
      ops::mask_rows(p.stream, p.to("masked", {n, c}), few, p.list("ids", counted(n, 3)));
    };
    const auto definition = [](Plain& r, Int n, Int group, Int c) {
      const auto few = r.in("few"), many = r.in("many");
      const auto copies = r.out("copies"), sums = r.out("sums"), masked = r.out("masked");
      const auto ids = r.list("ids");
      for (Int m = 0; m < n; ++m)
        for (Int i = 0; i < c; ++i) {
          masked(m, i) = ids[to_size(m)] != 0 ? few(m, i) : 0;
          for (Int k = 0; k < group; ++k) {
            copies(m * group + k, i) = few(m, i);
            sums(m, i) += many(m * group + k, i);
          }
        }
    };
    CHECK(faults(run, definition, {{31, 3, 5}, {9, 2, 16}, {1, 1, 1}, {0, 3, 2}}) == "");
  }

  TEST_CASE("definition, gradients, bits and devices of sums and means of sequences") {
    const auto run = [](Place& p, Int n, Int group, Int c) {
      const Shape all{n * group, 3, c}, groups{n, 3, c}, one{1, 3, c};
      const Tensor x = p.in("x", all), table = p.weight("table", one);
      ops::add_to_each(p.stream, p.out("sum", all), x, table);
      ops::sum_of_all(p.stream, p.to_sum("total", one), x);
      ops::mean_of_groups(p.stream, p.to("mean", groups), x);
      ops::spread_mean(p.stream, p.to("spread", all), p.in("g", groups));
    };
    const auto definition = [](Plain& r, Int n, Int group, Int c) {
      const auto x = r.in("x"), table = r.in("table"), g = r.in("g");
      const auto sum = r.out("sum"), total = r.out("total"), mean = r.out("mean"), spread = r.out("spread");
      for (Int m = 0; m < n * group; ++m)
        for (Int t = 0; t < 3; ++t)
          for (Int i = 0; i < c; ++i) {
            sum(m, t, i) = x(m, t, i) + table(0, t, i);
            total(0, t, i) += x(m, t, i);
            mean(m / group, t, i) += x(m, t, i) / static_cast<double>(group);
            spread(m, t, i) = g(m / group, t, i) / static_cast<double>(group);
          }
    };
    CHECK(faults(run, definition, {{2, 3, 8}, {100, 3, 5}, {1, 1, 1}, {0, 3, 5}}, {.f64 = 1e-13}) == "");
  }
}
