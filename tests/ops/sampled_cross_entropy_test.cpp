#include "lockstep/ops/sampled_cross_entropy.hpp"

#include "lockstep/ops/row_scores.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.sampled_cross_entropy") {
  TEST_CASE("definition, gradients, bits and devices for frequent items and tokens without an item") {
    for (const Int each : {1, 3}) {
      const double beta = each == 1 ? 1 : 0.4;
      const auto run = [&](Place& p, Int tokens, Int c) {
        std::vector<std::int32_t> pos, neg;
        const Philox draws(5, 0, "items");
        for (Int m = 0; m < tokens; ++m) {
          const auto draw = static_cast<std::uint64_t>(m * (1 + each));
          pos.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(m % 2 ? 3 : 40, draw)));
          for (Int k = 1; k <= each; ++k)
            neg.push_back(
                m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(40, draw + static_cast<std::uint64_t>(k))));
        }
        const Tensor f = p.in("f", {tokens, c}), table = p.weight("table", {41, c});
        const auto next = p.list("pos", pos), drawn = p.list("neg", neg);
        const Tensor slopes = p.sum("slopes", {1 + each, tokens});
        ops::sampled_cross_entropy_forward(p.stream, p.sum("loss", {}), slopes, f, table, next, drawn, beta);
        ops::sampled_cross_entropy_backward(p.stream, p.to("df", {tokens, c}), p.added(p.sum("dtable", {41, c})),
                                            p.real_weight("dloss", {}), slopes, f, table, next, drawn);
      };
      const auto definition = [&](Plain& r, Int tokens, Int c) {
        const auto f = r.in("f"), table = r.in("table"), loss = r.out("loss");
        const std::vector<std::int32_t> pos = r.list("pos"), neg = r.list("neg");
        const auto softplus = [&](Int m, Int item, double sign) {
          double score = 0;
          for (Int i = 0; i < c; ++i) score += f(m, i) * table(item, i);
          return std::log1p(std::exp(sign * score));
        };
        for (Int m = 0; m < tokens; ++m) {
          if (pos[to_size(m)] == 0) continue;
          loss() += beta * softplus(m, pos[to_size(m)], -1);
          for (Int k = 0; k < each; ++k) loss() += softplus(m, neg[to_size(m * each + k)], 1);
        }
      };
      CHECK(faults(run, definition, {{1, 33}, {38, 33}},
                   {.f64 = 1e-13,
                    .gpu = {.f32 = 2e-5, .f64 = 1e-11},
                    .cpu_sizes = {{700, 5}},
                    .gpu_sizes = each == 1 ? std::vector<Sizes>{{8193, 1}} : std::vector<Sizes>{}}) == "");
    }
  }
}

TEST_SUITE("ops.row_scores") {
  TEST_CASE("definition, bits and devices (scores have no gradient)") {
    const auto run = [](Place& p, Int rows, Int each, Int c) {
      std::vector<std::int32_t> ids;
      for (Int i = 0; i < rows * each; ++i) ids.push_back(static_cast<std::int32_t>(i % 12));
      const Tensor f = p.in("f", {rows, c}), table = p.weight("table", {12, c});
      ops::row_scores(p.stream, p.real_out("scores", {rows, each}), f, table, p.list("ids", ids));
    };
    const auto definition = [](Plain& r, Int rows, Int each, Int c) {
      const auto f = r.in("f"), table = r.in("table"), scores = r.out("scores");
      for (Int m = 0; m < rows; ++m)
        for (Int k = 0; k < each; ++k)
          for (Int i = 0; i < c; ++i) scores(m, k) += f(m, i) * table(Int{r.list("ids")[to_size(m * each + k)]}, i);
    };
    CHECK(faults(run, definition, {{7, 5, 33}, {1, 1, 1}, {0, 2, 3}}) == "");
  }
}
