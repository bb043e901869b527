#include "lockstep/ops/embedding.hpp"

#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/ops/dropout.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.embedding") {
  TEST_CASE("rows are scaled copies; repeated ids add up in order, padding is skipped, touched rows are recorded") {
    ParamStore params(DType::f32);
    Param& table = params.add("table", {6, 3}, init::normal(1));
    table.row_sparse = true;
    params.allocate(3);
    Gradients gradients(params);
    OwnTape t(DType::f32, Tape::Mode::train, &gradients);
    const std::vector<std::int32_t> ids = {4, 0, 2, 4};
    const Var y = embedding(t, table, ids, 2, 0);
    for (std::size_t m = 0; m < ids.size(); ++m)
      for (std::size_t c = 0; c < 3; ++c)
        CHECK(y.value().data<float>()[3 * m + c] == 2 * table.value.data<float>()[3 * ids[m] + c]);
    const OwnedTensor dy = random_tensor(DType::f32, {4, 3}, "dy");
    t.backward(y, dy);
    const float *d = gradients.of(table).data<float>(), *g = dy->data<float>();
    for (std::size_t c = 0; c < 3; ++c) {  // packed: rows 4 and 2
      CHECK(d[c] == 2 * g[c] + 2 * g[9 + c]);
      CHECK(d[3 + c] == 2 * g[6 + c]);
      CHECK(d[6 + c] == 0);
    }
    const auto rows = gradients.touched(table)->rows();
    CHECK(std::vector<std::int64_t>(rows.begin(), rows.end()) == std::vector<std::int64_t>{4, 2});
  }

  TEST_CASE("gradient agrees with finite differences") {
    static const std::vector<std::int32_t> ids = {1, 3, 1, 0, 3}, none;
    for (const auto* list : {&ids, &none}) {
      ParamStore params(DType::f64);
      const Param& table = params.add("table", {5, 7}, init::normal(1));
      params.allocate(3);
      CHECK(gradcheck([&](Tape& t, const std::vector<Var>&) { return embedding(t, table, on_tape(t, *list), 1.5); }, {},
                      &params) < 1e-7);
    }
  }

  TEST_CASE("a pair of tables gives both rows side by side under one dropout mask, and both gradients") {
    static const std::vector<std::int32_t> ids = {1, 3, 1, 0, 3};
    static const std::vector<std::int64_t> offsets = {0, 2, 5};
    static const std::vector<std::uint64_t> samples = {4, 9};
    for (const double rate : {0.0, 0.4}) {
      CAPTURE(rate);
      ParamStore params(DType::f64);
      const Param &a = params.add("a", {5, 7}, init::normal(1)),
                  &b = params.add_adjoining("b", {5, 7}, init::normal(1));
      params.allocate(3);
      const ops::Dropout drop{.rate = rate, .seed = 3, .step = 9, .site = "here"};
      CHECK(gradcheck(
                [&](Tape& t, const std::vector<Var>&) {
                  return embedding_pair(t, a, b, on_tape(t, ids), drop, on_tape(t, ops::SampleRows{offsets, samples}));
                },
                {}, &params) < 1e-7);
      Stream stream;
      Arena arena;
      Tape t(stream, arena, DType::f64, Tape::Mode::forward);
      const Var y = embedding_pair(t, a, b, ids, drop, {offsets, samples});
      const OwnedTensor expected(DType::f64, {5, 14});
      for (std::size_t m = 0; m < 5; ++m)
        for (std::size_t c = 0; c < 14; ++c)
          expected->data<double>()[14 * m + c] = (c < 7 ? a : b).value.data<double>()[7 * to_size(ids[m]) + c % 7];
      if (drop) ops::dropout(stream, {expected}, expected, drop, {offsets, samples});
      CHECK(same_bits(y.value(), expected));
    }
    ParamStore apart(DType::f64);
    const Param &a = apart.add("a", {5, 7}, init::normal(1)), &b = apart.add("b", {5, 7}, init::normal(1));
    apart.allocate(3);
    OwnTape t(DType::f64);
    CHECK_THROWS_WITH_AS(embedding_pair(t, a, b, ids, {}, {offsets, samples}),
                         "embedding of a beside b: must be dense tables of one shape without a gap", Error);
  }

  TEST_CASE("an id outside the table is reported") {
    Stream stream;
    const OwnedTensor table(DType::f32, {5, 2}), y(DType::f32, {1, 2});
    for (const std::int32_t id : {5, -1})
      CHECK_THROWS_WITH_AS(ops::embedding_forward(stream, y, table, std::vector<std::int32_t>{id}, 1),
                           join("embedding: row ", id, " of a table of 5 rows").c_str(), Error);
  }
}
