#include "lockstep/ops/embedding.hpp"

#include "lockstep/nn/embedding.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/ops/dropout.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.embedding") {
  TEST_CASE("definition, gradients, bits and devices, also where rows are used often") {
    const auto run = [](Place& p, Int uses, Int rows, Int c) {
      std::vector<std::int32_t> ids;
      for (Int i = 0; i < uses; ++i)  // neighbours, which one warp may own
        ids.push_back(static_cast<std::int32_t>((i / 2 * (i / 2) * 14 + i % 2) % rows));
      const auto list = p.list("ids", ids);
      const Tensor dy = p.in("dy", {uses, c});
      ops::embedding_forward(p.stream, p.out("y", {uses, c}), p.weight("table", {rows, c}), list, 1.5);
      ops::embedding_backward(p.stream, p.added(p.sum("dtable", {rows, c})), dy, list, 1.5, -1);
      ops::embedding_backward(p.stream, p.added(p.sum("padded", {rows, c})), dy, list, 1, 0);
    };
    const auto definition = [](Plain& r, Int uses, Int rows, Int c) {
      const auto table = r.in("table"), dy = r.in("dy"), before = r.in("padded"), y = r.out("y"), d = r.out("padded");
      const std::vector<std::int32_t> ids = r.list("ids");
      for (Int i = 0; i < rows * c; ++i) d(i / c, i % c) = before(i / c, i % c);
      for (Int m = 0; m < uses; ++m)
        for (Int i = 0; i < c; ++i) {
          const Int id = ids[to_size(m)];
          y(m, i) = 1.5 * table(id, i);
          if (id != 0) d(id, i) += dy(m, i);
        }
    };
    CHECK(faults(run, definition,
                 {{5, 9, 7}, {0, 1, 50}, {1, 9, 1}, {101, 9, 131}, {101, 1, 1}, {33, 1, 50}, {301, 300, 37}},
                 {.f64 = 1e-13, .gpu_sizes = {{301, 9001, 5}}}) == "");
  }

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

  TEST_CASE("gradient of the record agrees with finite differences") {
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

TEST_SUITE("ops.embedding.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("gradients of embeddings are added in the order of the ids") {
    struct Case {
      std::int64_t rows, c;
      std::size_t uses;
    };
    const Philox draws(5, 0, "ids");
    for (const auto& [rows, c, uses] : {Case{1, 2, 9001}, {12, 50, 20000}, {300, 5, 9000}, {70000, 67, 700}}) {
      CAPTURE(rows);
      std::vector<std::int32_t> ids(uses);
      for (std::size_t i = 0; i < uses; ++i) {  // half of them in few rows; the others also beyond 128 * 32 rows
        const std::uint64_t most = i % 2 != 0 ? std::min<std::int64_t>(rows, 3) : rows;
        ids[i] = static_cast<std::int32_t>(draws.below(most, i));
      }
      const auto m = static_cast<std::int64_t>(uses);
      const auto add = [&, rows = rows, c = c](Place& p, std::span<const std::int32_t> list) {
        const Tensor d = p.real_out("d", {rows, c});
        ops::embedding_backward(p.stream, d, p.in("dy", {m, c}), list, 1, 2);
        p.stream.synchronize();
        return d;
      };
      for (const DType type : {DType::f32, DType::f64}) {
        Place here(type, {}), there(type, {DeviceKind::cuda, 0});
        const Tensor expected = add(here, ids);
        CHECK(same_bits(HostView(add(there, there.host(ids))), expected));
        std::vector<std::int32_t> later = ids;
        later.insert(later.begin(), 7);
        const Tensor unaligned = there.put(Tensor::of(later.data(), {m + 1}));
        const LastFirst order;
        CHECK(same_bits(HostView(add(there, {unaligned.data<std::int32_t>() + 1, uses})), expected));
      }
    }
  }

  TEST_CASE("gradients of a pair of tables leave out rows after the samples") {
    const std::vector<std::int64_t> offsets = {0, 2, 5};
    const std::vector<std::uint64_t> samples = {4, 9};
    const std::vector<std::int32_t> ids = {1, 3, 1, 0, 3, 0, 0, 1};
    const auto run = [&](Place& p, Int capacity) {
      const Int m = capacity > 0 ? capacity : 5;
      ops::embedding_pair_backward(p.stream, p.real_out("dtables", {2, 4, 9}), p.in("dy", {m, 18}),
                                   p.host(ids).first(to_size(m)), {p.host(offsets), p.host(samples), capacity});
    };
    CHECK(faults(run, {}, {}, {.gpu_sizes = {{0}, {8}}}) == "");
  }
}
