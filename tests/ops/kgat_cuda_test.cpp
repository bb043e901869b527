// The ops of knowledge-graph networks on a GPU against the CPU, at sizes that are not multiples of a block.

#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/edge_values.hpp"
#include "lockstep/ops/graph_attention.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "lockstep/ops/transr.hpp"
#include "ops/aggregate_layer.hpp"
#include "ops/on_both.hpp"
#include "support/test.hpp"

namespace {

/// Compares what f writes on a GPU with the CPU's results, in both precisions.
void agree(const std::function<void(Place&)>& f) { agrees_on_both(f, 2e-6, 1e-13); }

ops::RankingSums* sums_in(Place& p, std::size_t count) {
  return static_cast<ops::RankingSums*>(p.arena.host().allocate(count * sizeof(ops::RankingSums)));
}
void note_sums(Place& p, const ops::RankingSums* sums, std::size_t count) {
  p.stream.synchronize();
  std::vector<double> values;
  for (const ops::RankingSums& s : std::span(sums, count)) values.insert(values.end(), {s.loss, s.half_square});
  p.out_values("sums", values, 1e-13);
}

struct Matrix {
  static constexpr std::int64_t kColumns = 90;
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> column;
  template <class Count>
  Matrix(std::int64_t rows, const Count& count_of) {
    const Philox draw(5, 0, "matrix");
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t e = 0; e < count_of(r); ++e)
        column.push_back(static_cast<std::int32_t>(draw.below(kColumns, static_cast<std::uint64_t>(column.size()))));
      indptr.push_back(static_cast<std::int64_t>(column.size()));
    }
  }
  std::int64_t entries() const { return static_cast<std::int64_t>(column.size()); }
};
/// Empty rows, one with 700 entries, one with 257, the others with up to 40.
struct SmallMatrix : Matrix {
  static constexpr std::int64_t kRows = 75;
  SmallMatrix()
      : Matrix(kRows, [](std::int64_t r) {
          return r == 11 ? 700 : r == 12 ? 257 : r % 7 == 0 ? 0 : r % 41;
        }) {}
};

}  // namespace

TEST_SUITE("ops.kgat.cuda" * doctest::skip(!gpu_present())) {
  TEST_CASE("a row of spmm has the same bits however many rows a block computes") {
    constexpr std::int64_t kRows = 9001, kPart = 1300, kWidth = 20;
    const Matrix m(kRows, [](std::int64_t r) { return r % 1500 == 7 ? 600 : r % 5 == 3 ? 40 : r % 3; });
    std::vector<std::uint64_t> bits = {0x123456789abcdef, 0x5555555};
    agree([&](Place& p) {
      const Tensor x = p.in("x", {Matrix::kColumns, kWidth}), values = p.in("values", {m.entries()});
      const ops::CsrPattern pattern = {p.host(m.indptr), p.host(m.column)};
      for (const ops::RowBits columns : {ops::RowBits(), ops::RowBits(p.host(bits))}) {
        const Tensor all = p.out("all", {kRows, kWidth}), parts = p.out("parts", all.shape());
        ops::spmm(p.stream, {all}, pattern, values, x, ops::RowSet::range(0, kRows), columns);
        for (std::int64_t first = 0; first < kRows; first += kPart)
          ops::spmm(p.stream, {parts}, pattern, values, x, ops::RowSet::range(first, std::min(kPart, kRows - first)),
                    columns);
        CHECK(same_bits(HostView(all), HostView(parts)));
      }
    });
  }

  TEST_CASE("spmm reads bf16 as the CPU does, after the same rounding") {
    const SmallMatrix m;
    std::vector<std::int32_t> all = [] {
      std::vector<std::int32_t> rows(Matrix::kColumns);
      std::iota(rows.begin(), rows.end(), 0);
      return rows;
    }();
    std::swap(all.front(), all[to_size(m.column.front())]);  // a row of x that the matrix reads
    for (const std::int64_t width : {7, 64}) {
      const auto run = [&](Place& p) {
        const Tensor x = p.in("x", {Matrix::kColumns, width}), half = p.put(OwnedTensor(DType::bf16, x.shape()));
        ops::round_node_rows(p.stream, half, x, ops::RowSet::list(p.host(all)));
        ops::spmm(p.stream, {p.out("y", {SmallMatrix::kRows, width})}, {p.host(m.indptr), p.host(m.column)},
                  p.in("values", {m.entries()}), half, ops::RowSet::range(0, SmallMatrix::kRows));
      };
      CHECK(device_faults(run, {2e-6, 0, 0, 0}) == "");
    }
  }

  TEST_CASE("dropped and transposed edge values agree with the CPU") {
    for (const std::int64_t count : {0, 1, 33, 1023}) {
      std::vector<std::int64_t> opposite(to_size(count));
      std::iota(opposite.rbegin(), opposite.rend(), 0);
      agree([&](Place& p) {
        const Tensor dropped = p.out("dropped", {count});
        ops::drop_edges(p.stream, dropped, p.in("x", {count}),
                        {.rate = 0.3, .seed = 7, .step = 8, .site = Site("edges")});
        ops::transpose_edges(p.stream, p.out("transposed", {count}), dropped, p.host(opposite));
      });
    }
  }

  TEST_CASE("gathered, scattered, cleared and summed rows agree with the CPU, normalised or not") {
    const std::vector<std::int32_t> rows = {8, 2, 0, 31};
    const std::vector<std::int64_t> ptr = {0, 3, 3, 4}, place = {3, 0, 2, 1};
    for (const std::int64_t width : {1, 5, 64, 100}) {
      agree([&](Place& p) {
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
      });
    }
  }

  TEST_CASE("half-precision products of aggregators and attention agree with f32 to the rounding of operands") {
    const std::int64_t nodes = 70, in = 24, out = 20;
    for (const auto& [half, tolerance] : {std::pair{DType::bf16, 0x1p-5}, {DType::f16, 0x1p-8}})
      for (const ops::Aggregator kind :
           {ops::Aggregator::bi_interaction, ops::Aggregator::gcn, ops::Aggregator::graphsage}) {
        CAPTURE(name(half));
        const std::int64_t mixed = kind == ops::Aggregator::graphsage ? 2 * in : in;
        const bool two = kind == ops::Aggregator::bi_interaction;
        const auto results = [&](DType type) {
          Place p(DType::f32, {DeviceKind::cuda, 0});
          // Weights that both types represent exactly; gradients as small as those of a mean over a batch, which f16
          // must not lose.
          const auto weight = [&](const Shape& shape, const char* name) {
            return p.put(converted(random_tensor(half, shape, name), type));
          };
          OwnedTensor tiny = random_tensor(DType::f32, {nodes, out}, "dout");
          for (float& x : tiny->span<float>()) x *= 1e-6f;
          const ops::AggregateRows rows = {.x = p.in("x", {nodes, in}),
                                           .s = p.in("s", {nodes, in}),
                                           .out = p.out("y", {nodes, out}),
                                           .marks = p.put(OwnedTensor(DType::u8, {nodes, out}))};
          const Tensor dw1 = p.out("dw1", {out, mixed}), db1 = p.out("db1", {out}), dw2 = p.out("dw2", {out, in}),
                       db2 = p.out("db2", {out});
          for (const Tensor& sum : {dw1, db1, dw2, db2}) fill_zero(p.stream, sum);
          // a mark that rounding flips changes nothing at slope 1
          const ops::AggregateLayer layer = aggregate_layer(kind, weight({out, mixed}, "w1"), p.in("b1", {out}),
                                                            weight({out, in}, "w2"), p.in("b2", {out}), 0.3, 1),
                                    gradient = aggregate_layer(kind, dw1, db1, dw2, db2, 0.3, 1);
          const ops::RowSet all = ops::RowSet::range(0, nodes);
          ops::aggregate_forward(p.stream, p.arena, layer, rows, all);
          ops::aggregate_backward(p.stream, p.arena, layer, rows, all, p.put(tiny), p.out("ds", {nodes, in}),
                                  p.out("dx", {nodes, in}), gradient);

          const std::vector<std::int32_t> few = {1, 4, 6}, slot = {0, 1, 2, 0};
          const std::vector<std::int64_t> place = {2, 0, 3, 1};
          const ops::RelationTriples of = {.heads = p.host(few),
                                           .tails = p.host(few),
                                           .head_slot = p.host(slot),
                                           .tail_slot = p.host(slot),
                                           .place = p.host(place)};
          ops::attention_logits(p.stream, p.arena, of, weight({9, in}, "table"), weight({in, out}, "matrix"),
                                weight({out}, "translation"), p.out("logits", {4}));
          p.stream.synchronize();
          std::map<std::string, OwnedTensor> found;
          for (const Place::Array& output : p.arrays())
            if (output.written()) found.emplace(output.name, on_cpu(output.tensor));
          return found;
        };
        const auto exact = results(DType::f32), rounded = results(half);
        for (const auto& [output, values] : exact) {
          CAPTURE(output);
          if (!two && (output == "dw2" || output == "db2")) continue;
          CHECK(difference(rounded.at(output), values) < tolerance);
        }
      }
  }

  TEST_CASE("transr agrees with the CPU for long chunks, several relations and matrices of any shape") {
    // 37 samples of relation 2, one of relation 0.
    std::vector<std::int32_t> head, tail, other;
    for (std::int32_t i = 0; i < 38; ++i) {
      head.push_back(i % 20);
      tail.push_back((i + 5) % 23);
      other.push_back((7 * i) % 23);
    }
    const std::vector<ops::RelationChunk> chunks = {{2, 0, 37}, {0, 37, 1}};
    for (const auto& [d, k] : {std::pair{9, 5}, std::pair{64, 64}, std::pair{3, 40}, std::pair{130, 100}}) {
      CAPTURE(d);
      agree([&, d = d, k = k](Place& p) {
        ops::RankingSums* sums = sums_in(p, 2);
        ops::transr(p.stream, {p.host(chunks), p.host(head), p.host(tail), p.host(other)}, p.in("table", {23, d}),
                    p.in("matrices", {3, d, k}), p.in("translations", {3, k}), 0.1, 38,
                    {p.out("projected", {3 * 38, k}), p.out("score", {2 * 38}), p.out("drows", {3 * 38, d}),
                     p.out("drelations", {2, d * k + k})},
                    {sums, 2});
        note_sums(p, sums, 2);
      });
    }
  }

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
      agree([&, d = d, k = k](Place& p) {
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
      });
    }
  }
}
