#include "lockstep/ops/item_softmax.hpp"

#include "every_isa.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/nn/params.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
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

/// Loss and gradients, widened to f64. Features and table are drawn from N(0, size^2).
struct Result {
  double loss = 0;
  std::vector<double> df, dtable;
};
struct Case {
  std::int64_t tokens, items, columns;
  double size = 1;
  std::int64_t parts = 1;
};
OwnedTensor scaled(DType type, Shape shape, const char* what, double size) {
  OwnedTensor x = converted(random_tensor(DType::f64, shape, what), DType::f64);
  for (double& v : x->span<double>()) v *= size;
  return converted(x, type);
}
Result run(DType type, const Case& c, const Ids& pos) {
  const OwnedTensor f = scaled(type, {c.tokens, c.columns}, "f", c.size),
                    table = scaled(type, {c.items + 1, c.columns}, "table", c.size), loss(type, {}),
                    state(type, {3, c.tokens}), df(type, {c.tokens, c.columns}), dtable(type, {c.items + 1, c.columns}),
                    dloss(type, {}),
                    scratch(type, {ops::softmax_scratch({}, false, c.tokens, c.items, c.columns, c.parts)});
  visit_float(type, [&]<class T>() { *dloss->data<T>() = T(0.5); });
  Stream stream;
  const ops::SoftmaxCandidates all{.rows = table->slice(1, c.items), .ids = {}, .bias = {}, .parts = c.parts};
  ops::item_softmax_forward(stream, loss, state, scratch, f, table, all, pos);
  ops::item_softmax_backward(stream, {df.view()}, {dtable->slice(1, c.items), true}, dtable, dloss, state, scratch, f,
                             table, all, pos);
  const auto values = [](const Tensor& t) {
    const OwnedTensor wide = converted(t, DType::f64);
    return std::vector<double>(wide->data<double>(), wide->data<double>() + t.size());
  };
  return {values(loss)[0], values(df), values(dtable)};
}
/// The same from the definition, half the gradient of the loss.
Result expected(DType type, const Case& c, const Ids& pos) {
  const OwnedTensor f = converted(scaled(type, {c.tokens, c.columns}, "f", c.size), DType::f64),
                    table = converted(scaled(type, {c.items + 1, c.columns}, "table", c.size), DType::f64);
  Result r{0, std::vector<double>(to_size(f->size())), std::vector<double>(to_size(table->size()))};
  std::vector<double> z(to_size(c.items) + 1);
  for (std::int64_t m = 0; m < c.tokens; ++m) {
    const std::int64_t next = pos[to_size(m)];
    if (next == 0) continue;
    const double* x = f->data<double>() + m * c.columns;
    double most = -INFINITY, sum = 0;
    for (std::int64_t i = 1; i <= c.items; ++i) {
      double& score = z[to_size(i)] = 0;
      for (std::int64_t k = 0; k < c.columns; ++k) score += x[k] * table->data<double>()[i * c.columns + k];
      most = std::max(most, score);
    }
    for (std::int64_t i = 1; i <= c.items; ++i) sum += std::exp(z[to_size(i)] - most);
    r.loss += most + std::log(sum) - z[to_size(next)];
    for (std::int64_t i = 1; i <= c.items; ++i) {
      const double p = 0.5 * (std::exp(z[to_size(i)] - most) / sum - (i == next));
      for (std::int64_t k = 0; k < c.columns; ++k) {
        r.df[to_size(m * c.columns + k)] += p * table->data<double>()[i * c.columns + k];
        r.dtable[to_size(i * c.columns + k)] += p * x[k];
      }
    }
  }
  return r;
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 1e-300, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(b[i]));
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  return worst / most;
}

}  // namespace

TEST_SUITE("ops.item_softmax") {
  TEST_CASE("loss and gradients agree with the definition for one or several tiles and parts") {
    for (const Case& c : {Case{1, 1, 3}, Case{7, 40, 5}, Case{530, 19, 4}, Case{9, 600, 7}, Case{520, 300, 3},
                          Case{530, 600, 3, 1, 2}, Case{7, 3, 5, 1, 8}, Case{9, 700, 4, 1, 4}})
      for (const DType type : {DType::f32, DType::f64})
        for_every_isa([&] {
          CAPTURE(c.tokens);
          CAPTURE(c.items);
          const Ids pos = next_items(c.tokens, c.items);
          const Result r = run(type, c, pos), e = expected(type, c, pos);
          const double bound = type == DType::f32 ? 1e-5 : 1e-13;
          CHECK(std::abs(r.loss - e.loss) <= bound * std::max(1.0, e.loss));
          CHECK(difference(r.df, e.df) < bound);
          CHECK(difference(r.dtable, e.dtable) < bound);
        });
  }

  TEST_CASE("scores of hundreds neither overflow nor vanish, also when the largest is in the last tile") {
    const Case c{6, 300, 9, 15};
    const Ids pos = next_items(c.tokens, c.items);
    const Result r = run(DType::f32, c, pos), e = expected(DType::f32, c, pos);
    CHECK(e.loss > 500);
    CHECK(std::abs(r.loss - e.loss) < 1e-5 * e.loss);
    CHECK(difference(r.df, e.df) < 1e-4);
    CHECK(difference(r.dtable, e.dtable) < 1e-4);
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

  TEST_CASE("gradient of the exact softmax agrees with finite differences") {
    for (const std::int64_t tokens : {1, 7}) {
      Table table(9, 5, false);
      const Ids pos = next_items(tokens, 8);
      const auto f = [&](Tape& t, const std::vector<Var>& v) {
        return item_softmax(t, v[0], *table.items, on_tape(t, pos));
      };
      CHECK(gradcheck(f, {{tokens, 5}}, &table.store) < 1e-7);
    }
  }

  TEST_CASE("gradient of the sampled softmax agrees with finite differences, with repeated and next items drawn") {
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

  TEST_CASE("gradient of the binary cross-entropy with several negatives agrees with finite differences") {
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
    // The candidates come in another order, so the sums round differently: some units in the last place.
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
