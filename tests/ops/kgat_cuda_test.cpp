// The ops of knowledge-graph networks on a GPU against the CPU, at sizes that are not multiples of a block.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/edge_values.hpp"
#include "lockstep/ops/graph_attention.hpp"
#include "lockstep/ops/node_rows.hpp"
#include "lockstep/ops/transr.hpp"
#include "ops/aggregate_layer.hpp"
#include "support/devices.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64};
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 2e-6; }

/// A device with everything that an op needs there.
struct Place {
  explicit Place(Device where) : device(where), stream(where), arena(where) {}
  Device device;
  Stream stream;
  Arena arena;
  OwnedTensor take(const Tensor& t) const { return on_device(t, device); }
  OwnedTensor make(DType dtype, const Shape& shape) const { return OwnedTensor(dtype, shape, device); }
  template <class T>
  std::span<const T> list(const std::vector<T>& values) {
    return std::get<0>(for_kernels(stream, arena, std::span<const T>(values)));
  }
};

/// Compares the results of f on all devices, on a GPU also in the opposite order of threads. f32 and f64 results must
/// be close to the CPU's.
template <class F>
void agree(const F& f) {
  for (const DType dtype : kTypes) {
    CAPTURE(name(dtype));
    std::vector<std::vector<OwnedTensor>> results;
    const auto run_on = [&](Device device) {
      Place place(device);
      std::vector<OwnedTensor> there = f(place, dtype);
      place.stream.synchronize();
      auto& here = results.emplace_back();
      for (const OwnedTensor& t : there) here.push_back(on_cpu(t));
    };
    for (const Device device : devices()) run_on(device);
    {
      const LastFirst order;
      run_on(devices().back());
    }
    for (std::size_t i = 1; i < results.size(); ++i) {
      REQUIRE(results[i].size() == results[0].size());
      for (std::size_t t = 0; t < results[i].size(); ++t) {
        CAPTURE(t);
        if (results[0][t]->dtype() == DType::f32 || results[0][t]->dtype() == DType::f64)
          CHECK(difference(results[i][t], results[0][t]) < tolerance(results[0][t]->dtype()));
        else
          CHECK(same_bits(results[i][t], results[0][t]));
      }
    }
  }
}

template <class... T>
std::vector<OwnedTensor> all_of(T&&... tensors) {
  std::vector<OwnedTensor> all;
  (all.push_back(std::move(tensors)), ...);
  return all;
}

/// A matrix of 75 rows: empty ones, one with 700 entries, one with 257, the others with up to 40.
struct Matrix {
  static constexpr std::int64_t kRows = 75, kColumns = 90;
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> column;
  Matrix() {
    const Philox draw(5, 0, "matrix");
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int64_t count = r == 11 ? 700 : r == 12 ? 257 : r % 7 == 0 ? 0 : r % 41;
      for (std::int64_t e = 0; e < count; ++e)
        column.push_back(static_cast<std::int32_t>(draw.below(kColumns, static_cast<std::uint64_t>(column.size()))));
      indptr.push_back(static_cast<std::int64_t>(column.size()));
    }
  }
  std::int64_t entries() const { return static_cast<std::int64_t>(column.size()); }
};

}  // namespace

TEST_SUITE("ops.kgat.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("spmm: widths of any kind, long rows, some rows, some columns, stored and added") {
    const Matrix m;
    const std::vector<std::int32_t> some = {0, 3, 11, 12, 40, 74};
    std::vector<std::uint64_t> bits(2, 0);
    for (std::int64_t c = 0; c < Matrix::kColumns; c += 3)
      bits[static_cast<std::size_t>(c / 64)] |= std::uint64_t{1} << (c % 64);
    for (const std::int64_t width : {1, 4, 10, 33, 64, 132}) {
      CAPTURE(width);
      agree([&](Place& p, DType dtype) {
        const OwnedTensor x = p.take(random_tensor(dtype, {Matrix::kColumns, width}, "x")),
                          values = p.take(random_tensor(dtype, {m.entries()}, "values"));
        const ops::CsrPattern pattern = {p.list(m.indptr), p.list(m.column)};
        OwnedTensor y = p.make(dtype, {Matrix::kRows, width}),
                    z = p.take(random_tensor(dtype, {Matrix::kRows, width}, "z"));
        ops::spmm(p.stream, {y}, pattern, values, x, ops::RowSet::range(0, Matrix::kRows));
        ops::spmm(p.stream, {z, true}, pattern, values, x, ops::RowSet::list(p.list(some)), p.list(bits));
        return all_of(y, z);
      });
    }
  }

  TEST_CASE("spmm reads bf16 as the CPU does, after the same rounding") {
    const Matrix m;
    std::vector<std::int32_t> all = [] {
      std::vector<std::int32_t> rows(Matrix::kColumns);
      std::iota(rows.begin(), rows.end(), 0);
      return rows;
    }();
    std::swap(all.front(), all[static_cast<std::size_t>(m.column.front())]);  // a row of x that the matrix reads
    for (const std::int64_t width : {7, 64}) {
      agree([&](Place& p, DType) {
        const OwnedTensor x = p.take(random_tensor(DType::f32, {Matrix::kColumns, width}, "x")),
                          values = p.take(random_tensor(DType::f32, {m.entries()}, "values"));
        OwnedTensor half = p.make(DType::bf16, x->shape()), y = p.make(DType::f32, {Matrix::kRows, width});
        ops::round_node_rows(p.stream, half, x, ops::RowSet::list(p.list(all)));
        ops::spmm(p.stream, {y}, {p.list(m.indptr), p.list(m.column)}, values, half,
                  ops::RowSet::range(0, Matrix::kRows));
        return std::vector<OwnedTensor>(all_of(y));
      });
    }
  }

  TEST_CASE("edge values: dropped and transposed") {
    for (const std::int64_t count : {0, 1, 33, 1023}) {
      std::vector<std::int64_t> opposite(static_cast<std::size_t>(count));
      std::iota(opposite.rbegin(), opposite.rend(), 0);
      agree([&](Place& p, DType dtype) {
        const OwnedTensor x = p.take(random_tensor(dtype, {count}, "x"));
        OwnedTensor dropped = p.make(dtype, {count}), transposed = p.make(dtype, {count});
        ops::drop_edges(p.stream, dropped, x, {.rate = 0.3, .seed = 7, .step = 8, .site = Site("edges")});
        ops::transpose_edges(p.stream, transposed, dropped, p.list(opposite));
        return all_of(dropped, transposed);
      });
    }
  }

  TEST_CASE("rows: gathered, scattered, cleared and summed, normalised or not") {
    const std::vector<std::int32_t> rows = {8, 2, 0, 31};
    const std::vector<std::int64_t> ptr = {0, 3, 3, 4}, place = {3, 0, 2, 1};
    for (const std::int64_t width : {1, 5, 64, 100}) {
      agree([&](Place& p, DType dtype) {
        const OwnedTensor x = p.take(random_tensor(dtype, {32, width}, "x")),
                          dy = p.take(random_tensor(dtype, {4, width + 3}, "dy"));
        OwnedTensor plain = p.make(dtype, {4, width + 3}), unit = p.make(dtype, {4, width + 3}),
                    dx = p.take(random_tensor(dtype, {32, width}, "dx")),
                    cleared = p.take(random_tensor(dtype, {32, width}, "cleared")), sums = p.make(dtype, {3, width}),
                    in_order = p.make(dtype, {3, width});
        const auto list = p.list(rows);
        ops::gather_node_rows(p.stream, plain, 2, x, list, ops::RowScale::none);
        ops::gather_node_rows(p.stream, unit, 0, x, list, ops::RowScale::norm);
        ops::scatter_node_rows(p.stream, dx, dy, 3, x, list, ops::RowScale::norm);
        ops::scatter_node_rows(p.stream, dx, dy, 0, x, list, ops::RowScale::none);
        ops::clear_node_rows(p.stream, cleared, ops::RowSet::list(list));
        ops::clear_node_rows(p.stream, cleared, ops::RowSet::range(20, 3));
        ops::sum_node_rows(p.stream, sums, dy, 1, p.list(ptr), p.list(place));
        ops::sum_node_rows(p.stream, in_order, dy, 0, p.list(ptr), {});
        return all_of(plain, unit, dx, cleared, sums, in_order);
      });
    }
  }

  TEST_CASE("aggregate: every kind, with dropout and without, all rows or some") {
    const std::vector<std::int32_t> some = {1, 4, 33, 69};
    for (const ops::Aggregator kind :
         {ops::Aggregator::bi_interaction, ops::Aggregator::gcn, ops::Aggregator::graphsage})
      for (const auto& [in, out] : {std::pair{5, 7}, std::pair{64, 32}, std::pair{8, 150}})
        for (const double dropout : {0.0, 0.3}) {
          CAPTURE(out);
          agree([&, in = in, out = out](Place& p, DType dtype) {
            const std::int64_t nodes = 70, mixed = kind == ops::Aggregator::graphsage ? 2 * in : in;
            const auto random = [&](const Shape& shape, const char* name) {
              return p.take(random_tensor(dtype, shape, name));
            };
            const OwnedTensor w1 = random({out, mixed}, "w1"), b1 = random({out}, "b1"), w2 = random({out, in}, "w2"),
                              b2 = random({out}, "b2"), x = random({nodes, in}, "x"), s = random({nodes, in}, "s"),
                              dout = random({nodes, out}, "dout");
            OwnedTensor y = p.make(dtype, {nodes, out}), marks = p.make(DType::u8, {nodes, out}),
                        dw1 = random({out, mixed}, "dw1"), db1 = random({out}, "db1"), dw2 = random({out, in}, "dw2"),
                        db2 = random({out}, "db2"), dx = p.make(dtype, {nodes, in}), ds = p.make(dtype, {nodes, in});
            const ops::AggregateLayer layer = aggregate_layer(kind, w1, b1, w2, b2, dropout),
                                      gradient = aggregate_layer(kind, dw1, db1, dw2, db2, dropout);
            const ops::AggregateRows rows = {.x = x, .s = s, .out = y, .marks = marks};
            ops::aggregate_forward(p.stream, p.arena, layer, rows, ops::RowSet::range(0, nodes));
            ops::aggregate_backward(p.stream, p.arena, layer, rows, ops::RowSet::list(p.list(some)), dout, ds, dx,
                                    gradient);
            ops::aggregate_backward(p.stream, p.arena, layer, rows, ops::RowSet::range(40, 20), dout, ds, dx, gradient);
            return all_of(y, marks, dw1, db1, dw2, db2, dx, ds);
          });
        }
  }

  TEST_CASE("aggregate and attention: products of halves agree with f32 within the rounding of their operands") {
    const std::int64_t nodes = 70, in = 24, out = 20;
    for (const auto& [half, tolerance] : {std::pair{DType::bf16, 0x1p-5}, {DType::f16, 0x1p-8}})
      for (const ops::Aggregator kind :
           {ops::Aggregator::bi_interaction, ops::Aggregator::gcn, ops::Aggregator::graphsage}) {
        CAPTURE(name(half));
        const std::int64_t mixed = kind == ops::Aggregator::graphsage ? 2 * in : in;
        const bool two = kind == ops::Aggregator::bi_interaction;
        const auto results = [&](DType type) {
          Place p({DeviceKind::cuda, 0});
          const auto random = [&](const Shape& shape, const char* name) {
            return p.take(random_tensor(DType::f32, shape, name));
          };
          // Weights that both types represent exactly; gradients as small as those of a mean over a batch, which f16
          // must not lose.
          const auto weight = [&](const Shape& shape, const char* name) {
            return p.take(converted(random_tensor(half, shape, name), type));
          };
          OwnedTensor tiny = random_tensor(DType::f32, {nodes, out}, "dout");
          for (float& x : tiny->span<float>()) x *= 1e-6f;
          const OwnedTensor w1 = weight({out, mixed}, "w1"), b1 = random({out}, "b1"), w2 = weight({out, in}, "w2"),
                            b2 = random({out}, "b2"), x = random({nodes, in}, "x"), s = random({nodes, in}, "s"),
                            dout = p.take(tiny);
          OwnedTensor y = p.make(DType::f32, {nodes, out}), marks = p.make(DType::u8, {nodes, out}),
                      dw1 = p.make(DType::f32, {out, mixed}), db1 = p.make(DType::f32, {out}),
                      dw2 = p.make(DType::f32, {out, in}), db2 = p.make(DType::f32, {out}),
                      dx = p.make(DType::f32, {nodes, in}), ds = p.make(DType::f32, {nodes, in});
          for (const OwnedTensor* sum : {&dw1, &db1, &dw2, &db2}) fill_zero(p.stream, *sum);
          // a mark that rounding flips changes nothing at slope 1
          const ops::AggregateLayer layer = aggregate_layer(kind, w1, b1, w2, b2, 0.3, 1),
                                    gradient = aggregate_layer(kind, dw1, db1, dw2, db2, 0.3, 1);
          const ops::AggregateRows rows = {.x = x, .s = s, .out = y, .marks = marks};
          const ops::RowSet all = ops::RowSet::range(0, nodes);
          ops::aggregate_forward(p.stream, p.arena, layer, rows, all);
          ops::aggregate_backward(p.stream, p.arena, layer, rows, all, dout, ds, dx, gradient);

          const std::vector<std::int32_t> few = {1, 4, 6}, slot = {0, 1, 2, 0};
          const std::vector<std::int64_t> place = {2, 0, 3, 1};
          const ops::RelationTriples of = {.heads = p.list(few),
                                           .tails = p.list(few),
                                           .head_slot = p.list(slot),
                                           .tail_slot = p.list(slot),
                                           .place = p.list(place)};
          const OwnedTensor table = weight({9, in}, "table"), matrix = weight({in, out}, "matrix"),
                            translation = weight({out}, "translation");
          OwnedTensor logits = p.make(DType::f32, {4});
          ops::attention_logits(p.stream, p.arena, of, table, matrix, translation, logits);
          p.stream.synchronize();
          std::vector<OwnedTensor> found;
          for (const OwnedTensor* t : {&y, &dw1, &db1, &dw2, &db2, &dx, &ds, &logits}) found.push_back(on_cpu(*t));
          return found;
        };
        const std::vector<OwnedTensor> exact = results(DType::f32), rounded = results(half);
        for (std::size_t t = 0; t < exact.size(); ++t) {
          CAPTURE(t);
          if (!two && (t == 3 || t == 4)) continue;
          CHECK(difference(rounded[t], exact[t]) < tolerance);
        }
      }
  }

  TEST_CASE("bpr: sums, slopes and gradients") {
    // Rows 0, 1 are users; 2, 3, 4 are items. Row 3 is both liked and not liked.
    const std::vector<std::int32_t> user = {0, 1, 0}, liked = {2, 3, 4}, other = {3, 2, 3};
    const std::vector<std::int64_t> ptr = {0, 2, 3, 5, 8, 9};
    const std::vector<std::int32_t> use = {0, 6, 3, 1, 5, 2, 4, 8, 7};
    for (const std::int64_t width : {1, 33, 176}) {
      agree([&](Place& p, DType dtype) {
        const OwnedTensor rows = p.take(random_tensor(dtype, {5, width}, "rows"));
        OwnedTensor slope = p.make(dtype, {3}), drows = p.make(dtype, {5, width}), totals(DType::f64, {2});
        auto& sums = *static_cast<ops::RankingSums*>(p.arena.host().allocate(sizeof(ops::RankingSums)));
        ops::bpr(p.stream, p.arena, {p.list(user), p.list(liked), p.list(other), p.list(ptr), p.list(use)}, rows, 0.1,
                 slope, drows, sums);
        p.stream.synchronize();
        totals->data<double>()[0] = sums.loss;
        totals->data<double>()[1] = sums.half_square;
        return all_of(slope, drows, totals);
      });
    }
  }

  TEST_CASE("bpr: more pairs than a block has threads") {
    std::vector<std::int32_t> rows[3], use;  // users 0 .. 4, items 5 .. 11, liked or not
    std::vector<std::int64_t> ptr = {0};
    for (std::int32_t n = 0; n < 300; ++n) {
      const std::int32_t pair[] = {n % 5, 5 + n % 7, 5 + (n + 3) % 7};
      for (int k = 0; k < 3; ++k) rows[k].push_back(pair[k]);
    }
    for (std::int32_t row = 0; row < 12; ++row) {
      for (std::int32_t n = 0; n < 300; ++n)
        for (std::int32_t k = 0; k < 3; ++k)
          if (rows[k][static_cast<std::size_t>(n)] == row) use.push_back(3 * n + k);
      ptr.push_back(static_cast<std::int64_t>(use.size()));
    }
    agree([&](Place& p, DType dtype) {
      const OwnedTensor table = p.take(random_tensor(dtype, {12, 3}, "rows"));
      OwnedTensor slope = p.make(dtype, {300}), drows = p.make(dtype, {12, 3}), totals(DType::f64, {2});
      auto& sums = *static_cast<ops::RankingSums*>(p.arena.host().allocate(sizeof(ops::RankingSums)));
      ops::bpr(p.stream, p.arena, {p.list(rows[0]), p.list(rows[1]), p.list(rows[2]), p.list(ptr), p.list(use)}, table,
               0.1, slope, drows, sums);
      p.stream.synchronize();
      totals->data<double>()[0] = sums.loss;
      totals->data<double>()[1] = sums.half_square;
      return all_of(slope, drows, totals);
    });
  }

  TEST_CASE("transr: chunks longer than a tile, several relations, matrices of any shape") {
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
      agree([&, d = d, k = k](Place& p, DType dtype) {
        const OwnedTensor table = p.take(random_tensor(dtype, {23, d}, "table")),
                          matrices = p.take(random_tensor(dtype, {3, d, k}, "matrices")),
                          translations = p.take(random_tensor(dtype, {3, k}, "translations"));
        OwnedTensor projected = p.make(dtype, {3 * 38, k}), score = p.make(dtype, {2 * 38}),
                    drows = p.make(dtype, {3 * 38, d}), drelations = p.make(dtype, {2, d * k + k}),
                    totals(DType::f64, {4});
        const std::span sums(static_cast<ops::RankingSums*>(p.arena.host().allocate(2 * sizeof(ops::RankingSums))), 2);
        ops::transr(p.stream, {p.list(chunks), p.list(head), p.list(tail), p.list(other)}, table, matrices,
                    translations, 0.1, 38, {projected, score, drows, drelations}, sums);
        p.stream.synchronize();
        for (std::size_t c = 0; c < 2; ++c) {
          totals->data<double>()[2 * c] = sums[c].loss;
          totals->data<double>()[2 * c + 1] = sums[c].half_square;
        }
        return all_of(projected, score, drows, drelations, totals);
      });
    }
  }

  TEST_CASE("attention: logits of triples, and shares by either policy") {
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
      agree([&, d = d, k = k](Place& p, DType dtype) {
        const OwnedTensor table = p.take(random_tensor(dtype, {9, d}, "table")),
                          matrix = p.take(random_tensor(dtype, {d, k}, "matrix")),
                          translation = p.take(random_tensor(dtype, {k}, "translation"));
        OwnedTensor logits = p.make(dtype, {triples}), each = p.make(dtype, {44}), added = p.make(dtype, {44});
        const ops::RelationTriples of = {.heads = p.list(heads),
                                         .tails = p.list(tails),
                                         .head_slot = p.list(head_slot),
                                         .tail_slot = p.list(tail_slot),
                                         .place = p.list(place)};
        ops::attention_logits(p.stream, p.arena, of, table, matrix, translation, logits);
        const auto row_ptr = p.list(rows), edge_ptr = p.list(edges);
        // Relative to the logits: exponentials of large numbers would magnify their rounding.
        const OwnedTensor small = p.take(random_tensor(dtype, {triples}, "small"));
        ops::attention_softmax(p.stream, ops::ParallelEdges::per_triple, row_ptr, edge_ptr, 0, 4, small, each);
        ops::attention_softmax(p.stream, ops::ParallelEdges::sum_logits, row_ptr, edge_ptr, 1, 4, small, added);
        // Integers have no rounding to magnify. The first row has two triples; whichever comes first is the larger.
        OwnedTensor whole(dtype, {triples}), rising = p.make(dtype, {44}), falling = p.make(dtype, {44}),
                                             large = p.make(dtype, {44});
        const auto softmax = [&](ops::ParallelEdges edges_are, const Tensor& shares) {
          const OwnedTensor there = p.take(whole);
          ops::attention_softmax(p.stream, edges_are, row_ptr, edge_ptr, 0, 4, there, shares);
          p.stream.synchronize();
        };
        visit_float(dtype, [&]<class T>() {
          T* const values = whole->data<T>();
          for (std::int64_t i = 0; i < triples; ++i) values[i] = static_cast<T>(1000 * (i * 5 % 7) + i % 3);
          values[2] = -1;
          softmax(ops::ParallelEdges::per_triple, rising);
          softmax(ops::ParallelEdges::sum_logits, large);
          std::swap(values[0], values[1]);
          softmax(ops::ParallelEdges::per_triple, falling);
        });
        return all_of(logits, each, added, rising, falling, large);
      });
    }
  }
}
