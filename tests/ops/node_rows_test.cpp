#include "lockstep/ops/node_rows.hpp"

#include "ops/on_both.hpp"

TEST_SUITE("ops.node_rows.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("gathered, scattered, cleared and summed rows agree with the CPU, normalised or not") {
    const std::vector<std::int32_t> rows = {8, 2, 0, 31};
    const std::vector<std::int64_t> ptr = {0, 3, 3, 4}, place = {3, 0, 2, 1};
    for (const std::int64_t width : {1, 5, 64, 100}) {
      agrees_on_both(
          [&](Place& p) {
            const Tensor x = p.in("x", {32, width}), dy = p.in("dy", {4, width + 3});
            const Tensor dx = p.out("dx", {32, width}), cleared = p.out("cleared", {32, width});
            const auto list = p.host(rows);
            ops::gather_node_rows(p.stream, p.out("plain", {4, width + 3}), 2, x, list, ops::RowScale::none);
            ops::gather_node_rows(p.stream, p.out("unit", {4, width + 3}), 0, x, list, ops::RowScale::norm);
            ops::scatter_node_rows(p.stream, dx, dy, 3, x, list, ops::RowScale::norm);
            ops::scatter_node_rows(p.stream, dx, dy, 0, x, list, ops::RowScale::none);
            ops::clear_node_rows(p.stream, cleared, ops::RowSet::list(list));
            ops::clear_node_rows(p.stream, cleared, ops::RowSet::range(20, 3));
            ops::sum_node_rows(p.stream, p.out("sums", {3, width}), dy, 1, p.host(ptr), p.host(place));
            ops::sum_node_rows(p.stream, p.out("in order", {3, width}), dy, 0, p.host(ptr), {});
          },
          2e-6, 1e-13);
    }
  }
}
