#include "lockstep/ops/aggregate.hpp"

#include "lockstep/ops/graph_attention.hpp"
#include "ops/on_both.hpp"

namespace {

/// A layer of these weights, or the destinations of its gradients. Only bi_interaction has a second weight and bias.
ops::AggregateLayer aggregate_layer(ops::Aggregator kind, const Tensor& weight1, const Tensor& bias1,
                                    const Tensor& weight2, const Tensor& bias2, double dropout, double slope = 0.2) {
  const bool two = kind == ops::Aggregator::bi_interaction;
  return {.kind = kind,
          .slope = slope,
          .weight1 = weight1,
          .bias1 = bias1,
          .weight2 = two ? weight2 : Tensor(),
          .bias2 = two ? bias2 : Tensor(),
          .dropout = dropout,
          .seed = 3,
          .step = 4,
          .site = "test"};
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

TEST_SUITE("ops.aggregate.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("half-precision products of aggregators and attention agree with f32 to the rounding of operands") {
    const std::int64_t nodes = 70, in = 24, out = 20;
    for (const auto& [half, tolerance] : {std::pair{DType::bf16, 0x1p-5}, {DType::f16, 0x1p-8}})
      for (const ops::Aggregator kind : kKinds) {
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
}
