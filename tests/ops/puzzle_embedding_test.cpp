#include "lockstep/ops/puzzle_embedding.hpp"

#include "lockstep/ops/positions.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.puzzle_embedding") {
  TEST_CASE("the puzzle comes first, padded with zeros, then its cells; positions are added, everything is scaled") {
    const std::vector<double> table = {1, 2, 3, /**/ 4, 5, 6}, puzzles = {7, 8, 9, 10, /**/ 11, 12, 13, 14},
                              where = {0.5, 0, 0, 0, 0, 0, 0, 0, 0.25};
    const std::vector<std::int32_t> tokens = {1}, ids = {1};
    const OwnedTensor x(DType::f64, {1, 3, 3});
    Stream stream;
    ops::puzzle_embedding_forward(stream, x,
                                  {.table = Tensor::of(table.data(), {2, 3}),
                                   .puzzles = Tensor::of(puzzles.data(), {2, 4}),
                                   .where = Tensor::of(where.data(), {3, 3}),
                                   .tokens = Tensor::of(tokens.data(), {1, 1}),
                                   .ids = Tensor::of(ids.data(), {1}),
                                   .scale = 2});
    const std::vector<double> expected = {23, 24, 26, 28, 0, 0, 8, 10, 12.5};
    CHECK(same_bits(x, Tensor::of(expected.data(), {1, 3, 3})));
  }

  TEST_CASE("definition, gradients, bits and devices, with learned positions and without") {
    for (const bool learned : {false, true}) {
      const auto run = [&](Place& p, Int batch, Int cells, Int prefix, Int columns, Int width, Int vocabulary) {
        std::vector<std::int32_t> tokens, ids;
        for (Int i = 0; i < batch * cells; ++i) tokens.push_back(static_cast<std::int32_t>(i * 5 % vocabulary));
        for (Int b = 0; b < batch; ++b) ids.push_back(static_cast<std::int32_t>(b % 3));
        const Shape shape{batch, prefix + cells, columns}, where{prefix + cells, columns};
        const ops::PuzzleEmbedding e = {.table = p.weight("table", {vocabulary, columns}),
                                        .puzzles = width > 0 ? p.weight("puzzles", {3, width}) : Tensor{},
                                        .where = learned ? p.weight("where", where) : Tensor{},
                                        .tokens = p.ints("tokens", tokens, {batch, cells}),
                                        .ids = p.ints("ids", ids, {batch}),
                                        .scale = 1.7};
        ops::puzzle_embedding_forward(p.stream, p.out("x", shape), e);
        ops::puzzle_embedding_backward(p.stream, width > 0 ? p.real_out("dpuzzle", {batch, width}) : Tensor{},
                                       p.added(p.sum("dtable", {vocabulary, columns})),
                                       learned ? p.added(p.sum("dwhere", where)) : Tensor{}, p.in("dx", shape), e);
      };
      const auto definition = [&](Plain& r, Int batch, Int cells, Int prefix, Int columns, Int width, Int) {
        const auto table = r.in("table"), puzzles = r.in("puzzles"), where = r.in("where"), x = r.out("x");
        const std::vector<std::int32_t> tokens = r.list("tokens"), ids = r.list("ids");
        for (Int b = 0; b < batch; ++b)
          for (Int t = 0; t < prefix + cells; ++t)
            for (Int i = 0; i < columns; ++i) {
              const Int at = t * columns + i;
              const double e = t >= prefix  ? table(Int{tokens[to_size(b * cells + t - prefix)]}, i)
                               : at < width ? puzzles(Int{ids[to_size(b)]}, at)
                                            : 0;
              x(b, t, i) = 1.7 * (e + (learned ? where(t, i) : 0));
            }
      };
      CHECK(faults(run, definition,
                   {{3, 7, 1, 20, 20, 5},
                    {3, 5, 2, 33, 50, 39},
                    {4, 3, 0, 8, 0, 2},
                    {1, 1, 3, 130, 1, 1},
                    {40, 31, 1, 12, 5, 11},
                    {0, 0, 1, 4, 4, 3}},
                   {.gpu = {.f32 = 2e-5}}) == "");
    }
  }

  TEST_CASE("indices out of range are an error") {
    const OwnedTensor table(DType::f32, {2, 3}), x(DType::f32, {1, 1, 3});
    const std::vector<std::int32_t> tokens = {2}, ids = {0};
    Stream stream;
    const Tensor cells = Tensor::of(tokens.data(), {1, 1}), puzzle = Tensor::of(ids.data(), {1});
    CHECK_THROWS_WITH_AS(ops::puzzle_embedding_forward(stream, x, {table, {}, {}, cells, puzzle, 1}),
                         "puzzle_embedding: token 2 is not in 0..1", Error);
  }
}

TEST_SUITE("ops.positions") {
  TEST_CASE("definition, gradients, bits and devices of chosen positions, and of a row for sequences that start") {
    const auto run = [](Place& p, Int batch, Int length, Int first, Int count, Int width) {
      const Shape all{batch, length, width}, some{batch, count, width};
      std::vector<std::int32_t> starts;
      for (Int b = 0; b < batch; ++b) starts.push_back(b % 2 == 0);
      ops::take_positions(p.stream, p.out("y", some), p.in("x", all), first);
      ops::take_positions_backward(p.stream, p.to("dx", all), p.in("dy", some), first);
      ops::fill_sequences(p.stream, p.out("z", all), p.weight("row", {width}), p.ints("starts", starts, {batch}));
    };
    const auto definition = [](Plain& r, Int batch, Int length, Int first, Int count, Int width) {
      const auto x = r.in("x"), dy = r.in("dy"), row = r.in("row"), before = r.in("z");
      const auto y = r.out("y"), dx = r.out("dx"), z = r.out("z");
      for (Int b = 0; b < batch; ++b)
        for (Int t = 0; t < length; ++t)
          for (Int i = 0; i < width; ++i) {
            const bool taken = t >= first && t < first + count;
            if (taken) y(b, t - first, i) = x(b, t, i);
            dx(b, t, i) = taken ? dy(b, t - first, i) : 0;
            z(b, t, i) = b % 2 == 0 ? row(i) : before(b, t, i);
          }
    };
    CHECK(faults(run, definition,
                 {{3, 7, 1, 6, 5}, {2, 5, 0, 1, 32}, {1, 1, 0, 1, 1}, {4, 9, 2, 3, 33}, {0, 3, 1, 2, 4}},
                 {.gpu_sizes = {{2, 3, 1, 0, 4}}}) == "");
    const OwnedTensor x(DType::f64, {2, 4, 3}), y(DType::f64, {2, 2, 3});
    Stream stream;
    CHECK_THROWS_AS(ops::take_positions(stream, y, x, 3), Error);
  }
}
