// The ops of knowledge-graph networks: aggregators, both ranking losses, attention.

#include "every_isa.hpp"
#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/graph_attention.hpp"
#include "lockstep/ops/transr.hpp"
#include "ops/aggregate_layer.hpp"
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

double dot(const Tensor& a, const Tensor& b) {
  return std::inner_product(a.data<double>(), a.data<double>() + a.size(), b.data<double>(), 0.0);
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
  TEST_CASE("gradients agree with finite differences, with dropout and without") {
    for_every_isa([] {
      for (const ops::Aggregator kind : kKinds) {
        for (const double dropout : {0.0, 0.3}) {
          Layer l(kind, DType::f64, dropout);
          const OwnedTensor c = random_tensor(DType::f64, l.out->shape(), "c");
          const ops::RowSet all = ops::RowSet::range(0, Layer::kNodes);
          const auto loss = [&] {
            l.forward(all);
            return dot(l.out, c);
          };
          loss();
          OwnedTensor dw1(DType::f64, l.w1->shape()), db1(DType::f64, l.b1->shape()), dw2(DType::f64, l.w2->shape()),
              db2(DType::f64, l.b2->shape()), dx(DType::f64, l.x->shape()), ds(DType::f64, l.s->shape());
          const ops::AggregateLayer gradient = aggregate_layer(kind, dw1, db1, dw2, db2, dropout);
          Arena arena;
          Stream stream;
          ops::aggregate_backward(stream, arena, l.layer, l.rows, all, c, ds, dx, gradient);
          CHECK(difference(dx, numeric(l.x, loss)) < 1e-8);
          CHECK(difference(ds, numeric(l.s, loss)) < 1e-8);
          CHECK(difference(dw1, numeric(l.w1, loss)) < 1e-8);
          CHECK(difference(db1, numeric(l.b1, loss)) < 1e-8);
          if (kind != ops::Aggregator::bi_interaction) continue;
          CHECK(difference(dw2, numeric(l.w2, loss)) < 1e-8);
          CHECK(difference(db2, numeric(l.b2, loss)) < 1e-8);
        }
      }
    });
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
  TEST_CASE("loss and gradient follow the formula, including rows used more than once") {
    // Rows 0, 1 are users; 2, 3, 4 are items. Row 3 is both liked and not liked.
    const std::vector<std::int32_t> user = {0, 1, 0}, liked = {2, 3, 4}, other = {3, 2, 3};
    const std::vector<std::int64_t> ptr = {0, 2, 3, 5, 8, 9};
    const std::vector<std::int32_t> use = {0, 6, 3, 1, 5, 2, 4, 8, 7};
    const ops::RankedPairs pairs = {user, liked, other, ptr, use};
    const OwnedTensor rows = random_tensor(DType::f64, {5, 11}, "rows"), drows(DType::f64, {5, 11}),
                      slope(DType::f64, {3});
    constexpr double kL2 = 0.1;
    Stream stream;
    Arena arena;
    ops::RankingSums sums;
    const auto loss = [&] {
      ops::bpr(stream, arena, pairs, rows, kL2, slope, {}, sums);
      return (sums.loss + kL2 * sums.half_square) / 3;
    };
    double expected = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      const auto product = [&](std::int32_t i, std::int32_t j) { return dot(rows->slice(i, 1), rows->slice(j, 1)); };
      expected += std::log1p(std::exp(product(user[b], other[b]) - product(user[b], liked[b])));
      for (const std::int32_t r : {user[b], liked[b], other[b]}) expected += kL2 * product(r, r) / 2;
    }
    CHECK(loss() == Approx(expected / 3).epsilon(1e-12));
    ops::bpr(stream, arena, pairs, rows, kL2, slope, drows, sums);
    CHECK(difference(drows, numeric(rows, loss)) < 1e-8);
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
