#include "lockstep/ops/edge_values.hpp"

#include "ops/on_both.hpp"

TEST_SUITE("ops.edge_values.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("dropped and transposed edge values agree with the CPU") {
    for (const std::int64_t count : {0, 1, 33, 1023}) {
      std::vector<std::int64_t> opposite(to_size(count));
      std::iota(opposite.rbegin(), opposite.rend(), 0);
      agrees_on_both(
          [&](Place& p) {
            const Tensor dropped = p.out("dropped", {count});
            ops::drop_edges(p.stream, dropped, p.in("x", {count}),
                            {.rate = 0.3, .seed = 7, .step = 8, .site = Site("edges")});
            ops::transpose_edges(p.stream, p.out("transposed", {count}), dropped, p.host(opposite));
          },
          2e-6, 1e-13);
    }
  }
}
