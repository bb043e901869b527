#include "lockstep/ops/item_softmax.hpp"

#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/nn/params.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {

using Ids = std::vector<std::int32_t>;

/// A table of `rows` rows, the first of zeros.
struct Table {
  ParamStore store{DType::f64};
  const Param* items;
  Table(std::int64_t rows, std::int64_t columns, bool sparse) {
    Param& p = store.add("items", {rows, columns}, init::normal(1));
    p.row_sparse = sparse;
    items = &p;
    store.allocate(3);
  }
};

/// Next items of tokens 0, 1, ...: every fifth has none.
Ids next_items(std::int64_t tokens, std::int64_t items) {
  Ids pos;
  for (std::int64_t m = 0; m < tokens; ++m)
    pos.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + m * 7 % items));
  return pos;
}

OpRow row(Int parts, double size = 1) {
  const auto run = [=](Place& p, Int tokens, Int items, Int c) {
    const Tensor f = p.in("f", {tokens, c}, size), table = p.weight("table", {items + 1, c}, size);
    const Tensor state = p.sum("state", {3, tokens}), dtable = p.added(p.sum("dtable", {items + 1, c}));
    const Tensor scratch =
        p.real_weight("scratch", {ops::softmax_scratch(f.device(), is_half(p.dtype()), tokens, items, c, parts)});
    const auto next = p.list("pos", next_items(tokens, items));
    const ops::SoftmaxCandidates all{.rows = table.slice(1, items), .ids = {}, .bias = {}, .parts = parts};
    ops::item_softmax_forward(p.stream, p.sum("loss", {}), state, scratch, f, table, all, next);
    ops::item_softmax_backward(p.stream, p.to("df", {tokens, c}), {dtable.slice(1, items), true}, dtable,
                               p.real_weight("dloss", {}), state, scratch, f, table, all, next);
  };
  const auto definition = [](Plain& r, Int tokens, Int items, Int c) {
    const auto f = r.in("f"), table = r.in("table"), dloss = r.in("dloss"), before = r.in("dtable");
    const auto loss = r.out("loss"), df = r.out("df"), dtable = r.out("dtable");
    for (Int i = 0; i < (items + 1) * c; ++i) dtable(i / c, i % c) = before(i / c, i % c);
    std::vector<double> z(to_size(items) + 1);
    for (Int m = 0; m < tokens; ++m) {
      const Int next = r.list("pos")[to_size(m)];
      if (next == 0) continue;
      double most = -INFINITY, sum = 0;
      for (Int i = 1; i <= items; ++i) {
        double& score = z[to_size(i)] = 0;
        for (Int k = 0; k < c; ++k) score += f(m, k) * table(i, k);
        most = std::max(most, score);
      }
      for (Int i = 1; i <= items; ++i) sum += std::exp(z[to_size(i)] - most);
      loss() += most + std::log(sum) - z[to_size(next)];
      for (Int i = 1; i <= items; ++i) {
        const double p = dloss() * (std::exp(z[to_size(i)] - most) / sum - (i == next));
        for (Int k = 0; k < c; ++k) {
          df(m, k) += p * table(i, k);
          dtable(i, k) += p * f(m, k);
        }
      }
    }
  };
  return {.sizes = {},
          .run = run,
          .definition = definition,
          .f32 = 1e-5,
          .f64 = 1e-13,
          .gpu = {.f32 = 5e-5, .f64 = 1e-11},
          .rows = false};
}
}  // namespace

TEST_SUITE("ops.item_softmax") {
  TEST_CASE("definition, gradients, bits and devices for one or several tiles and parts") {
    OpRow one = row(1), two = row(2), four = row(4), eight = row(8);
    one.sizes = {{9, 40, 5}};
    one.cpu_sizes = {{1, 1, 3}, {530, 19, 4}, {9, 600, 7}, {520, 300, 3}};
    one.gpu_sizes = {{3, 4100, 5}, {8200, 3, 5}};
    two.cpu_sizes = {{530, 600, 3}};
    four.cpu_sizes = {{9, 700, 4}};
    eight.cpu_sizes = {{7, 3, 5}};
    for (const OpRow& all : {one, two, four, eight}) CHECK(faults(all) == "");
  }

  TEST_CASE("scores of hundreds neither overflow nor vanish, also when the largest is in the last tile") {
    OpRow large = row(1, 15);
    large.cpu_sizes = {{6, 300, 9}};
    large.f32 = 1e-4;
    large.gradient = 0;
    CHECK(faults(large) == "");
  }

  TEST_CASE("a NaN among the features makes the loss NaN") {
    const Ids pos = {2};
    std::vector<float> f = {NAN, 1}, table(8, 1), state(3), scratch(5);
    float loss = 0;
    Stream stream;
    const Tensor rows = Tensor::of(table.data(), {4, 2});
    ops::item_softmax_forward(stream, Tensor::of(&loss, {}), Tensor::of(state.data(), {3, 1}),
                              Tensor::of(scratch.data(), {5}), Tensor::of(f.data(), {1, 2}), rows,
                              {.rows = rows.slice(1, 3), .ids = {}, .bias = {}}, pos);
    CHECK(std::isnan(loss));
  }

  TEST_CASE("gradient of the record of the exact softmax agrees with finite differences") {
    for (const std::int64_t tokens : {1, 7}) {
      Table table(9, 5, false);
      const Ids pos = next_items(tokens, 8);
      const auto f = [&](Tape& t, const std::vector<Var>& v) {
        return item_softmax(t, v[0], *table.items, on_tape(t, pos));
      };
      CHECK(gradcheck(f, {{tokens, 5}}, &table.store) < 1e-7);
    }
  }

  TEST_CASE(
      "gradient of the record of the sampled softmax agrees with finite differences, with repeated and next items "
      "drawn") {
    Table table(12, 5, true);
    const Ids pos = next_items(7, 11), ids = {3, 1, 1, 8, 10, 8};
    OwnedTensor bias = random_tensor(DType::f64, {6}, "bias");
    const auto f = [&](Tape& t, const std::vector<Var>& v) {
      const OwnedTensor own = converted(bias, t.real_dtype());
      const Tensor kept = allocate(t.host_arena(), t.real_dtype(), {6});
      copy(t.stream(), kept, own);
      t.stream().synchronize();
      return sampled_softmax(t, v[0], *table.items, on_tape(t, pos), on_tape(t, ids), kept);
    };
    CHECK(gradcheck(f, {{7, 5}}, &table.store) < 1e-7);
  }

  TEST_CASE(
      "gradient of the record of the binary cross-entropy with several negatives agrees with finite differences") {
    for (const std::int32_t each : {1, 3}) {
      Table table(12, 5, true);
      const Ids pos = next_items(6, 11);
      Ids neg;
      for (const std::int32_t item : pos)
        for (std::int32_t k = 0; k < each; ++k) neg.push_back(item == 0 ? 0 : 1 + (item + 3 * k) % 11);
      const auto f = [&](Tape& t, const std::vector<Var>& v) {
        return sampled_cross_entropy(t, v[0], *table.items, on_tape(t, pos), on_tape(t, neg), 0.3);
      };
      CHECK(gradcheck(f, {{6, 5}}, &table.store) < 1e-7);
    }
  }

  TEST_CASE("all items drawn once with bias 0 is the exact softmax") {
    Table table(9, 5, false);
    const Ids pos = next_items(7, 8), ids = {8, 1, 2, 7, 3, 6, 4, 5};
    const OwnedTensor f = random_tensor(DType::f64, {7, 5}, "f"), bias(DType::f64, {8});
    OwnTape t(DType::f64);
    const Var x = t.constant(f);
    const double exact = *item_softmax(t, x, *table.items, pos).value().data<double>();
    // The candidates are in a different order, so the sums round differently, by some units in the last place.
    CHECK(*sampled_softmax(t, x, *table.items, pos, ids, bias).value().data<double>() == Approx(exact).epsilon(1e-13));
  }

  TEST_CASE("a row-sparse table is refused: each of its rows gets a gradient") {
    Table table(9, 5, true);
    const OwnedTensor f = random_tensor(DType::f64, {1, 5}, "f");
    const Ids pos = {1};
    OwnTape t(DType::f64);
    CHECK_THROWS_AS(item_softmax(t, t.constant(f), *table.items, pos), Error);
  }

  TEST_CASE("a table without items is refused: there would be no candidates") {
    Table table(1, 5, false);
    const OwnedTensor f = random_tensor(DType::f64, {1, 5}, "f");
    const Ids pos = {0};
    OwnTape t(DType::f64);
    CHECK_THROWS_WITH_AS(item_softmax(t, t.constant(f), *table.items, pos), doctest::Contains("candidates (0, 5)"),
                         Error);
  }
}
