#include "lockstep/ops/bpr.hpp"

#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.bpr") {
  TEST_CASE("definition, gradients, bits and devices, including rows used more than once") {
    constexpr double kL2 = 0.1;
    // Rows: users, then items, which are liked in some pairs and not in others.
    const auto row_of = [](Int pair, Int role, Int users, Int items) {
      return role == 0 ? pair % users : users + (pair + role) % items;
    };
    const auto run = [&](Place& p, Int pairs, Int users, Int items, Int width) {
      std::vector<std::int32_t> rows[3], use;
      std::vector<std::int64_t> ptr = {0};
      for (Int row = 0; row < users + items; ++row) {
        for (Int n = 0; n < 3 * pairs; ++n)
          if (row_of(n / 3, n % 3, users, items) == row) use.push_back(static_cast<std::int32_t>(n));
        ptr.push_back(std::ssize(use));
      }
      for (Int n = 0; n < pairs; ++n)
        for (Int role = 0; role < 3; ++role)
          rows[role].push_back(static_cast<std::int32_t>(row_of(n, role, users, items)));
      const Shape shape{users + items, width};
      auto& sums = *static_cast<ops::RankingSums*>(p.arena.host().allocate(sizeof(ops::RankingSums)));
      const ops::RankedPairs batch = {p.host(rows[0]), p.host(rows[1]), p.host(rows[2]), p.host(ptr), p.host(use)};
      ops::bpr(p.stream, p.arena, batch, p.weight("rows", shape), kL2, p.out("slope", {pairs}), p.out("drows", shape),
               sums);
      p.stream.synchronize();
      p.out_values("loss", {(sums.loss + kL2 * sums.half_square) / static_cast<double>(pairs)}, 1e-13);
      p.out_values("half square", {sums.half_square}, 1e-13);
    };
    const auto definition = [&](Plain& r, Int pairs, Int users, Int items, Int width) {
      const auto rows = r.in("rows"), loss = r.out("loss"), half = r.out("half square");
      for (Int n = 0; n < pairs; ++n) {
        double difference = 0;  // of the scores: other minus liked
        for (Int i = 0; i < width; ++i) {
          const double u = rows(row_of(n, 0, users, items), i), liked = rows(row_of(n, 1, users, items), i),
                       other = rows(row_of(n, 2, users, items), i);
          difference += u * (other - liked);
          half(0) += (u * u + liked * liked + other * other) / 2;
        }
        loss(0) += std::log1p(std::exp(difference)) / static_cast<double>(pairs);
      }
      loss(0) += kL2 * half(0) / static_cast<double>(pairs);
    };
    CHECK(faults(run, definition, {{3, 2, 3, 11}, {3, 2, 3, 1}, {300, 5, 7, 3}},  // more pairs than a block has threads
                 {.f64 = 1e-12,
                  .gpu = {.f32 = 2e-6, .f64 = 1e-13, .bf16 = 0, .f16 = 0},
                  .rows = false,
                  .gpu_sizes = {{3, 2, 3, 33}, {3, 2, 3, 176}}}) == "");
  }
}
