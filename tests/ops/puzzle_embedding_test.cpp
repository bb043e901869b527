#include "lockstep/ops/puzzle_embedding.hpp"

#include "lockstep/ops/positions.hpp"
#include "support/test.hpp"

namespace {
double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}
}  // namespace

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

  TEST_CASE("the gradient is the adjoint of the forward in each table") {
    const std::int64_t batch = 3, cells = 4, prefix = 2, d = 5, width = 7, vocabulary = 6, puzzles = 2;
    const std::vector<std::int32_t> tokens = {0, 5, 5, 2, 1, 0, 0, 3, 4, 4, 4, 4}, ids = {1, 0, 1};
    const Shape shape{batch, prefix + cells, d};
    const OwnedTensor x(DType::f64, shape), dx = random_tensor(DType::f64, shape, "dx");
    const OwnedTensor table = random_tensor(DType::f64, {vocabulary, d}, "table"),
                      rows = random_tensor(DType::f64, {puzzles, width}, "rows"),
                      where = random_tensor(DType::f64, {prefix + cells, d}, "where");
    const OwnedTensor dtable(DType::f64, table->shape()), dwhere(DType::f64, where->shape()),
        dpuzzle(DType::f64, {batch, width});
    const ops::PuzzleEmbedding e = {
        table, rows, where, Tensor::of(tokens.data(), {batch, cells}), Tensor::of(ids.data(), {batch}), 1.3};
    Stream stream;
    ops::puzzle_embedding_forward(stream, x, e);
    ops::puzzle_embedding_backward(stream, dpuzzle, dtable, dwhere, dx, e);
    double puzzle = 0;
    for (std::int64_t b = 0; b < batch; ++b) puzzle += dot(dpuzzle->slice(b, 1), rows->slice(ids[to_size(b)], 1));
    CHECK(dot(x, dx) == Approx(dot(table, dtable) + dot(where, dwhere) + puzzle).epsilon(1e-12));
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
  TEST_CASE("chosen positions are copied, and their gradient returns to them") {
    const OwnedTensor x = random_tensor(DType::f64, {2, 4, 3}, "x"), y(DType::f64, {2, 2, 3}),
                      back(DType::f64, {2, 4, 3});
    Stream stream;
    ops::take_positions(stream, y, x, 1);
    for (std::int64_t b = 0; b < 2; ++b) CHECK(same_bits(y->slice(b, 1), x->slice(b, 1).reshaped({4, 3}).slice(1, 2)));
    ops::take_positions_backward(stream, {back, false}, y, 1);
    CHECK(dot(back, x) == Approx(dot(y, y)));
    ops::take_positions_backward(stream, {back, true}, y, 1);
    CHECK(dot(back, x) == Approx(2 * dot(y, y)));
    CHECK_THROWS_AS(ops::take_positions(stream, y, x, 3), Error);
  }

  TEST_CASE("only sequences that start receive the row") {
    const OwnedTensor x(DType::f32, {3, 2, 2}), row = random_tensor(DType::f32, {2}, "row");
    const std::vector<std::int32_t> starts = {0, 1, 0};
    Stream stream;
    ops::fill_sequences(stream, x, row, Tensor::of(starts.data(), {3}));
    for (const std::int64_t t : {2, 3}) CHECK(same_bits(x->reshaped({6, 2}).slice(t, 1), row));
    for (const std::int64_t t : {0, 1, 4, 5}) CHECK(x->data<float>()[2 * t] == 0);
  }
}
