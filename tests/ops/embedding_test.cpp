#include "lockstep/ops/embedding.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "lockstep/nn/embedding.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_SUITE("ops.embedding") {
  TEST_CASE("rows are scaled copies; repeated ids add up in order, padding is skipped, touched rows are recorded") {
    ParamStore params(DType::f32);
    Param& table = params.add("table", {6, 3}, init::normal(1));
    table.row_sparse = true;
    params.allocate(3);
    Gradients gradients(params);
    Stream stream;
    Arena arena;
    Tape t(stream, arena, DType::f32, Tape::Mode::train, &gradients);
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

  TEST_CASE("an id outside the table is reported") {
    Stream stream;
    const OwnedTensor table(DType::f32, {5, 2}), y(DType::f32, {1, 2});
    for (const std::int32_t id : {5, -1})
      CHECK_THROWS_WITH_AS(ops::embedding_forward(stream, y, table, std::vector<std::int32_t>{id}, 1),
                           join("embedding: row ", id, " of a table of 5 rows").c_str(), Error);
  }
}
