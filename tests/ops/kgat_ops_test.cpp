// The ops of knowledge-graph networks: aggregators, both ranking losses, attention.

#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/graph_attention.hpp"
#include "lockstep/ops/transr.hpp"
#include "ops/aggregate_layer.hpp"
#include "ops/every_isa.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {

/// The gradient of f by 4th-order central differences in x.
OwnedTensor numeric(const Tensor& x, const std::function<double()>& f) {
  constexpr double h = 1e-3;
  OwnedTensor gradient(DType::f64, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    double& at = x.data<double>()[i];
    const double before = at;
    const auto moved = [&](double by) {
      at = before + by;
      return f();
    };
    gradient->data<double>()[i] = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    at = before;
  }
  return gradient;
}

constexpr ops::Aggregator kKinds[] = {ops::Aggregator::bi_interaction, ops::Aggregator::gcn,
                                      ops::Aggregator::graphsage};

/// A layer of 5 inputs and 7 outputs over 9 nodes.
struct Layer {
  static constexpr std::int64_t kNodes = 9, kIn = 5, kOut = 7;
  DType dtype;
  OwnedTensor w1, b1, w2, b2, x, s, out, marks{DType::u8, {kNodes, kOut}};
  ops::AggregateLayer layer;
  ops::AggregateRows rows;

  Layer(ops::Aggregator kind, DType type, double dropout)
      : dtype(type),
        w1(random_tensor(type, {kOut, kind == ops::Aggregator::graphsage ? 2 * kIn : kIn}, "w1")),
        b1(random_tensor(type, {kOut}, "b1")),
        w2(random_tensor(type, {kOut, kIn}, "w2")),
        b2(random_tensor(type, {kOut}, "b2")),
        x(random_tensor(type, {kNodes, kIn}, "x")),
        s(random_tensor(type, {kNodes, kIn}, "s")),
        out(type, {kNodes, kOut}) {
    layer = aggregate_layer(kind, w1, b1, w2, b2, dropout);
    rows = {.x = x, .s = s, .out = out, .marks = marks};
  }
  void forward(const ops::RowSet& block) {
    Arena arena;
    Stream stream;
    ops::aggregate_forward(stream, arena, layer, rows, block);
  }
};

}  // namespace

TEST_SUITE("ops.aggregate") {
  TEST_CASE("definition, gradients, bits and devices, on all rows and on some, with and without dropout") {
    for (const ops::Aggregator kind : kKinds)
      for (const double dropout : {0.0, 0.3})
        for (const bool some : {false, true}) {
          const std::vector<std::int32_t> list = {1, 4, 33, 69};
          const auto run = [&](Place& p, Int nodes, Int in, Int out) {
            const Shape w1{out, kind == ops::Aggregator::graphsage ? 2 * in : in}, w2{out, in}, b{out};
            const ops::AggregateLayer layer = aggregate_layer(kind, p.weight("w1", w1), p.weight("b1", b),
                                                              p.weight("w2", w2), p.weight("b2", b), dropout),
                                      gradient =
                                          aggregate_layer(kind, p.added(p.sum("dw1", w1)), p.added(p.sum("db1", b)),
                                                          p.added(p.sum("dw2", w2)), p.added(p.sum("db2", b)), dropout);
            const ops::AggregateRows rows = {.x = p.in("x", {nodes, in}),
                                             .s = p.in("s", {nodes, in}),
                                             .out = p.out("out", {nodes, out}),
                                             .marks = p.exact_out("marks", OwnedTensor(DType::u8, {nodes, out}))};
            const Tensor dout = p.in("dout", {nodes, out}), dx = p.out("dx", {nodes, in}),
                         ds = p.out("ds", {nodes, in});
            const ops::RowSet all = ops::RowSet::range(0, nodes);
            ops::aggregate_forward(p.stream, p.arena, layer, rows, all);
            for (const ops::RowSet& part :
                 some ? std::vector{ops::RowSet::list(p.host(list)), ops::RowSet::range(40, 20)} : std::vector{all})
              ops::aggregate_backward(p.stream, p.arena, layer, rows, part, dout, ds, dx, gradient);
          };
          const auto definition = [&](Plain& r, Int nodes, Int in, Int out) {
            if (dropout > 0) return;
            const auto w1 = r.in("w1"), b1 = r.in("b1"), w2 = r.in("w2"), b2 = r.in("b2");
            const auto x = r.in("x"), s = r.in("s"), y = r.out("out");
            const auto f = [](double z) { return z > 0 ? z : 0.2 * z; };
            for (Int n = 0; n < nodes; ++n)
              for (Int o = 0; o < out; ++o) {
                double first = b1(o), second = b2(o);
                for (Int i = 0; i < in; ++i) {
                  first += kind == ops::Aggregator::graphsage ? x(n, i) * w1(o, i) + s(n, i) * w1(o, in + i)
                                                              : (x(n, i) + s(n, i)) * w1(o, i);
                  second += x(n, i) * s(n, i) * w2(o, i);
                }
                y(n, o) = f(first) + (kind == ops::Aggregator::bi_interaction ? f(second) : 0);
              }
          };
          OpRow row{.sizes = {},
                    .run = run,
                    .definition = definition,
                    .f64 = 1e-13,
                    .gpu = {.f32 = 2e-6, .f64 = 1e-13, .bf16 = 0, .f16 = 0},
                    .rows = !some && dropout == 0};  // the draws are keyed by the row
          if (!some) row.sizes = {{9, 5, 7}};
          row.gpu_sizes = {{70, 5, 7}, {70, 64, 32}, {70, 8, 150}};
          CHECK(faults(row) == "");
        }
  }

  TEST_CASE("a row's bits depend on no other row, and other rows are unchanged") {
    for (const ops::Aggregator kind : kKinds) {
      Layer whole(kind, DType::f32, 0.3), parts(kind, DType::f32, 0.3);
      whole.forward(ops::RowSet::range(0, Layer::kNodes));
      const std::vector<std::int32_t> some = {1, 4, 8};
      parts.forward(ops::RowSet::list(some));
      for (std::int64_t n = 0; n < Layer::kNodes; ++n) {
        const bool named = n == 1 || n == 4 || n == 8;
        const OwnedTensor none(DType::f32, {1, Layer::kOut});
        CHECK(same_bits(parts.out->slice(n, 1), named ? whole.out->slice(n, 1) : none.view()));
      }
    }
  }
}

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
    CHECK(faults({.sizes = {{3, 2, 3, 11}, {3, 2, 3, 1}, {300, 5, 7, 3}},  // more pairs than a block has threads
                  .run = run,
                  .definition = definition,
                  .f64 = 1e-12,
                  .gpu = {.f32 = 2e-6, .f64 = 1e-13, .bf16 = 0, .f16 = 0},
                  .rows = false,
                  .gpu_sizes = {{3, 2, 3, 33}, {3, 2, 3, 176}}}) == "");
  }
}

TEST_SUITE("ops.transr") {
  TEST_CASE("gradients agree with finite differences") {
    for_every_isa([] {
      const std::vector<std::int32_t> head = {0, 3, 0, 5}, tail = {1, 4, 2, 5}, other = {2, 0, 1, 6};
      // The first sample has relation 1, the others relation 0.
      const std::vector<ops::RelationChunk> chunks = {{1, 0, 1}, {0, 1, 3}};
      const OwnedTensor table = random_tensor(DType::f64, {7, 9}, "table"),
                        matrices = random_tensor(DType::f64, {2, 9, 5}, "matrices"),
                        translations = random_tensor(DType::f64, {2, 5}, "translations");
      const OwnedTensor projected(DType::f64, {12, 5}), score(DType::f64, {8}), drows(DType::f64, {12, 9}),
          drelations(DType::f64, {2, 50});
      constexpr double kL2 = 0.1;
      const auto run = [&] {
        Stream stream;
        std::array<ops::RankingSums, 2> sums;
        ops::transr(stream, {chunks, head, tail, other}, table, matrices, translations, kL2, 4,
                    {projected, score, drows, drelations}, sums);
        return (sums[0].loss + sums[1].loss + kL2 * (sums[0].half_square + sums[1].half_square)) / 4;
      };
      run();
      const OwnedTensor dtable(DType::f64, table->shape());
      const OwnedTensor dmatrices(DType::f64, matrices->shape()), dtranslations(DType::f64, translations->shape());
      const std::vector<std::int32_t>* roles[] = {&head, &tail, &other};
      for (std::size_t chunk = 0; chunk < 2; ++chunk) {
        const auto [relation, first, count] = chunks[chunk];
        for (std::int64_t role = 0; role < 3; ++role)
          for (std::int64_t b = 0; b < count; ++b)
            for (std::int64_t c = 0; c < 9; ++c)
              dtable->data<double>()[(*roles[role])[to_size(first + b)] * 9 + c] +=
                  drows->data<double>()[(3 * first + role * count + b) * 9 + c];
        const double* of_relation = drelations->data<double>() + 50 * chunk;
        std::copy_n(of_relation, 45, dmatrices->data<double>() + 45 * relation);
        std::copy_n(of_relation + 45, 5, dtranslations->data<double>() + 5 * relation);
      }
      CHECK(difference(dtable, numeric(table, run)) < 1e-8);
      CHECK(difference(dmatrices, numeric(matrices, run)) < 1e-8);
      CHECK(difference(dtranslations, numeric(translations, run)) < 1e-8);
    });
  }
}

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
