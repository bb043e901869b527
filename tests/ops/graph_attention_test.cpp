#include "lockstep/ops/graph_attention.hpp"

#include "ops/every_isa.hpp"
#include "ops/on_both.hpp"

TEST_SUITE("ops.graph_attention") {
  TEST_CASE("each head's attention sums to one, for any logits; parallel triples by either policy") {
    // Head 0: three triples in two entries; head 1: none; head 2: one far below the others.
    const std::vector<std::int64_t> rows = {0, 2, 2, 3}, edges = {0, 2, 3, 4};
    for_every_isa([&] {
      const OwnedTensor logits(DType::f64, {4}), values(DType::f64, {3});
      const double v[] = {700, 701, 702, -800};
      std::copy_n(v, 4, logits->data<double>());
      Stream stream;
      const auto at = [&](std::int64_t i) { return values->data<double>()[i]; };
      ops::attention_softmax(stream, ops::ParallelEdges::per_triple, rows, edges, 0, 3, logits, values);
      const double sum = std::exp(-2.0) + std::exp(-1.0) + 1;
      CHECK(at(0) == Approx((std::exp(-2.0) + std::exp(-1.0)) / sum).epsilon(1e-12));
      CHECK(at(0) + at(1) == Approx(1).epsilon(1e-12));
      CHECK(at(2) == 1);
      ops::attention_softmax(stream, ops::ParallelEdges::sum_logits, rows, edges, 0, 3, logits, values);
      CHECK(at(0) == Approx(1).epsilon(1e-12));  // 1401 against 702
      CHECK(at(0) + at(1) == Approx(1).epsilon(1e-12));
    });
  }
}

TEST_SUITE("ops.graph_attention.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("attention logits of triples, and shares by either policy, agree with the CPU") {
    // Rows of 0, 1, 40 and 3 entries; every third entry has two triples.
    const std::vector<std::int64_t> rows = {0, 0, 1, 41, 44};
    std::vector<std::int64_t> edges = {0};
    for (std::int64_t e = 0; e < 44; ++e) edges.push_back(edges.back() + 1 + (e % 3 == 0));
    const std::int64_t triples = edges.back();
    const std::vector<std::int32_t> heads = {1, 4, 6}, tails = {0, 2, 3, 5, 8};
    std::vector<std::int32_t> head_slot, tail_slot;
    std::vector<std::int64_t> place;
    for (std::int64_t i = 0; i < triples; ++i) {
      head_slot.push_back(static_cast<std::int32_t>(i % 3));
      tail_slot.push_back(static_cast<std::int32_t>(i % 5));
      place.push_back(triples - 1 - i);
    }
    for (const auto& [d, k] : {std::pair{9, 5}, std::pair{16, 64}, std::pair{5, 200}}) {
      agrees_on_both(
          [&, d = d, k = k](Place& p) {
            const ops::RelationTriples of = {.heads = p.host(heads),
                                             .tails = p.host(tails),
                                             .head_slot = p.host(head_slot),
                                             .tail_slot = p.host(tail_slot),
                                             .place = p.host(place)};
            ops::attention_logits(p.stream, p.arena, of, p.in("table", {9, d}), p.in("matrix", {d, k}),
                                  p.in("translation", {k}), p.out("logits", {triples}));
            const auto row_ptr = p.host(rows), edge_ptr = p.host(edges);
            // Relative to the logits: exponentials of large numbers would magnify their rounding.
            const Tensor small = p.in("small", {triples});
            ops::attention_softmax(p.stream, ops::ParallelEdges::per_triple, row_ptr, edge_ptr, 0, 4, small,
                                   p.out("each", {44}));
            ops::attention_softmax(p.stream, ops::ParallelEdges::sum_logits, row_ptr, edge_ptr, 1, 4, small,
                                   p.out("added", {44}));
            // Integers have no rounding to magnify. The first row has two triples; whichever comes first is the larger.
            const OwnedTensor whole(p.dtype(), {triples});
            const auto softmax = [&](ops::ParallelEdges edges_are, const char* shares) {
              ops::attention_softmax(p.stream, edges_are, row_ptr, edge_ptr, 0, 4, p.put(whole), p.out(shares, {44}));
            };
            visit_float(p.dtype(), [&]<class T>() {
              T* const values = whole->data<T>();
              for (std::int64_t i = 0; i < triples; ++i) values[i] = static_cast<T>(1000 * (i * 5 % 7) + i % 3);
              values[2] = -1;
              softmax(ops::ParallelEdges::per_triple, "rising");
              softmax(ops::ParallelEdges::sum_logits, "large");
              std::swap(values[0], values[1]);
              softmax(ops::ParallelEdges::per_triple, "falling");
            });
          },
          2e-6, 1e-13);
    }
  }
}
