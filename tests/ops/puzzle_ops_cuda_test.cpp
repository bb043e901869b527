#include "lockstep/ops/positions.hpp"
#include "lockstep/ops/puzzle_embedding.hpp"
#include "lockstep/ops/rmsnorm.hpp"
#include "lockstep/ops/rope.hpp"
#include "lockstep/ops/sequence_loss.hpp"
#include "lockstep/ops/swiglu.hpp"
#include "lockstep/ops/token_mixing.hpp"
#include "ops/on_both.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.puzzle.cuda") {
  TEST_CASE("a norm and its sums agree with the CPU, forward and backward" * doctest::skip(!gpu_present())) {
    // Rows in registers, with wide loads or not, and rows too long for registers. (With one column the gradient is only
    // rounding.)
    for (const Shape& shape : {Shape{7, 20}, Shape{1, 2}, Shape{2, 3, 33}, Shape{5, 512}, Shape{9, 100}, Shape{3, 1024},
                               Shape{2, 1023}, Shape{2, 1200}, Shape{0, 4}})
      for (const bool add : {false, true}) {
        CAPTURE(shape.columns());
        CAPTURE(add);
        const auto both_ways = [&](Place& p) {
          const Tensor x = p.in("x", shape), a = p.in("a", shape), b = p.in("b", shape), y = p.out("y", shape);
          const Tensor rstd = p.real_out("rstd", {shape.rows()}), dy = p.in("dy", shape);
          ops::rmsnorm_forward(p.stream, y, rstd, x, 1e-5);
          ops::rmsnorm_forward(p.stream, p.out("y alone", shape), {}, x, 1e-5,
                               {p.out("sum", shape), a, add ? b : Tensor{}});
          ops::rmsnorm_backward(p.stream, {p.out("dx", shape), add}, dy, y, rstd);
          const Tensor over = p.out("dx over dy", shape);
          ops::rmsnorm_backward(p.stream, {over, false}, over, y, rstd);
          ops::rmsnorm_forward(p.stream, x, {}, x, 1e-5);
        };
        agrees_on_both(both_ways);
        if (shape.columns() > 2) halves_agree(both_ways);  // with two columns the gradient is half rounding
      }
  }

  TEST_CASE("rotary positions agree with the CPU, both ways" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, length, heads, half;
    };
    for (const Sizes s :
         {Sizes{2, 5, 3, 5}, Sizes{1, 1, 1, 1}, Sizes{3, 7, 4, 32}, Sizes{2, 3, 2, 33}, Sizes{0, 3, 2, 4}})
      for (const ops::Rotation way : {ops::Rotation::forward, ops::Rotation::inverse}) {
        CAPTURE(s.half);
        every_dtype_agrees([&](Place& p) {
          const Tensor cos = p.real_in("cos", {s.length, s.half}), sin = p.real_in("sin", {s.length, s.half});
          ops::rope_table(cos, sin, 10000);
          ops::rope(p.stream, p.out("qkv", {s.batch, s.length, 3 * s.heads * 2 * s.half}), cos, sin, 2 * s.heads, way);
        });
      }
  }

  TEST_CASE("gated layers agree with the CPU, whether gate and up are kept or not" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t m, width, k;
    };
    for (const Sizes s :
         {Sizes{7, 5, 9}, Sizes{1, 1, 1}, Sizes{33, 64, 17}, Sizes{31, 600, 4}, Sizes{2, 20000, 3}, Sizes{0, 3, 2}})
      for (const bool add : {false, true}) {
        CAPTURE(s.m);
        CAPTURE(s.width);
        every_dtype_agrees([&](Place& p) {
          const Tensor x = p.in("x", {s.m, s.k}), w = p.in("w", {2 * s.width, s.k});
          const Tensor both = p.out("gate_up", {s.m, 2 * s.width}), dy = p.in("dy", {s.m, s.width});
          ops::swiglu_forward(p.stream, p.out("y", {s.m, s.width}), both, x, w);
          ops::swiglu_forward(p.stream, p.out("y alone", {s.m, s.width}), {}, x, w);
          ops::swiglu_backward(p.stream, {p.out("dx", {s.m, s.k}), add}, {p.real_out("dw", {2 * s.width, s.k}), true},
                               dy, both, x, w);
        });
      }
  }

  TEST_CASE("gated layers with a norm agree with the CPU" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t m, width, k;
    };
    // Whole packs or not; more columns than a block has threads; a row for more than one block.
    for (const Sizes s :
         {Sizes{7, 5, 9}, Sizes{1, 1, 3}, Sizes{33, 64, 24}, Sizes{5, 24, 600}, Sizes{3, 20000, 8}, Sizes{0, 3, 2}})
      for (const bool add : {false, true}) {
        CAPTURE(s.m);
        CAPTURE(s.width);
        const Shape in{s.m, s.k}, weight{2 * s.width, s.k};
        every_dtype_agrees([&](Place& p) {
          const Tensor x = p.in("x", in), w = p.in("w", weight), rstd = p.real_out("rstd", {s.m});
          const Tensor both = p.in("gate_up", {s.m, 2 * s.width}), dy = p.in("dy", {s.m, s.width});
          const Tensor z = p.out("z", in), dz = p.in("dz", in);
          ops::normed_swiglu_forward(p.stream, p.out("y alone", {s.m, s.width}), p.out("z alone", in), {}, {}, x, w,
                                     1e-5);
          ops::normed_swiglu_forward(p.stream, p.out("y", {s.m, s.width}), z, rstd, both, x, w, 1e-5);
          ops::normed_swiglu_backward(p.stream, {p.out("dx", in), add}, {p.real_out("dw", weight), true}, dy, dz, both,
                                      z, rstd, x, w);
        });
        every_dtype_agrees([&](Place& p) {  // x without gradient
          const Tensor x = p.in("x", in), w = p.in("w", weight), rstd = p.real_in("rstd", {s.m});
          const Tensor both = p.in("gate_up", {s.m, 2 * s.width}), z = p.in("z", in);
          ops::normed_swiglu_forward(p.stream, p.out("y", {s.m, s.width}), z, rstd, both, x, w, 1e-5);
          ops::normed_swiglu_backward(p.stream, {}, {p.real_out("dw", weight), true}, p.in("dy", {s.m, s.width}),
                                      p.in("dz", in), both, z, rstd, x, w);
        });
      }
  }

  TEST_CASE("more rows of a gated layer than fit in the cache are computed block by block" *
            doctest::skip(!gpu_present())) {
    agrees_on_both([&](Place& p) {
      const std::int64_t m = 13, width = 1 << 18;
      const Tensor x = p.in("x", {m, 2}), w = p.in("w", {2 * width, 2});
      ops::swiglu_forward(p.stream, p.out("y", {m, width}), {}, x, w);
      ops::normed_swiglu_forward(p.stream, p.out("y of z", {m, width}), p.out("z", {m, 2}), {}, {}, x, w, 1e-5);
    });
  }

  TEST_CASE("mixed positions agree with the CPU, forward and backward" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, positions, channels, width;
    };
    // Whole packs and not; a pair of sequences that fills the cache, so that the third is computed apart.
    for (const Sizes s :
         {Sizes{3, 7, 5, 9}, Sizes{2, 2, 1, 1}, Sizes{2, 9, 64, 31}, Sizes{3, 2, 32, 1 << 15}, Sizes{0, 3, 2, 4}})
      for (const bool add : {false, true}) {
        CAPTURE(s.width);
        CAPTURE(add);
        const auto both_ways = [&](Place& p) {
          const Shape shape{s.batch, s.positions, s.channels}, up{2 * s.width, s.positions}, low{s.positions, s.width};
          const Tensor x = p.in("x", shape), y = p.out("y", shape), dy = p.in("dy", shape);
          const Tensor gate_up = p.in("gate_up", up), down = p.in("down", low);
          const Tensor kept = p.in("kept", {s.batch, 2 * s.width, s.channels}),
                       rstd = p.real_out("rstd", {s.batch, s.channels});
          ops::token_mixing_forward(p.stream, p.out("y alone", shape), {}, {}, x, gate_up, down, 1e-5);
          ops::token_mixing_forward(p.stream, y, kept, rstd, x, gate_up, down, 1e-5);
          ops::token_mixing_backward(p.stream, {p.out("dx", shape), add}, {p.real_out("dgate_up", up), add},
                                     {p.real_out("ddown", low), add}, dy, y, kept, rstd, x, gate_up, down);
        };
        agrees_on_both(both_ways, s.width > 1000 ? 1e-4 : 1e-5);  // sums of 32768 terms, in another order
        if (s.positions > 2) halves_agree(both_ways);             // with two positions the gradient is half rounding
      }
  }

  TEST_CASE("losses of sequences agree with the CPU, scores included" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, positions, classes;
    };
    for (const Sizes s : {Sizes{3, 7, 5}, Sizes{1, 1, 1}, Sizes{4, 300, 12}, Sizes{2, 129, 33}, Sizes{0, 3, 2}})
      for (const ops::TokenLoss loss : {ops::TokenLoss::stablemax, ops::TokenLoss::softmax}) {
        CAPTURE(s.classes);
        CAPTURE(std::string(ops::name(loss)));
        std::vector<std::int32_t> labels(to_size(s.batch * s.positions));
        for (std::size_t i = 0; i < labels.size(); ++i)  // the first sequence has no labels
          labels[i] = static_cast<std::int64_t>(i) < s.positions && s.batch > 1
                          ? -100
                          : static_cast<std::int32_t>(i * 7 % to_size(s.classes + 1)) - 1;
        std::vector<std::vector<ops::SequenceScore>> seen;
        every_dtype_agrees([&](Place& p) {
          const auto scores = p.host(std::vector<ops::SequenceScore>(to_size(s.batch)));
          const Shape shape{s.batch, s.positions, s.classes};
          ops::sequence_loss(p.stream, p.real_out("dlogits", shape),
                             {const_cast<ops::SequenceScore*>(scores.data()), scores.size()}, p.in("logits", shape),
                             p.ints(labels, {s.batch, s.positions}), loss);
          p.stream.synchronize();
          seen.emplace_back(scores.begin(), scores.end());
        });
        for (std::size_t i = 0; i < seen.size(); ++i)
          for (std::size_t b = 0; b < seen[i].size(); ++b) {
            const ops::SequenceScore &found = seen[i][b], &expected = seen[i / 3 * 3][b];
            CHECK(found.labelled == expected.labelled);
            CHECK(found.correct == expected.correct);
            CHECK(found.loss == Approx(expected.loss).epsilon(1e-12));
          }
      }
  }

  TEST_CASE("positions of sequences agree with the CPU" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, length, first, count, width;
    };
    for (const Sizes s : {Sizes{3, 7, 1, 6, 5}, Sizes{2, 5, 0, 1, 32}, Sizes{1, 1, 0, 1, 1}, Sizes{4, 9, 2, 3, 33},
                          Sizes{2, 3, 1, 0, 4}, Sizes{0, 3, 1, 2, 4}})
      for (const bool add : {false, true}) {
        CAPTURE(s.width);
        CAPTURE(s.count);
        every_dtype_agrees([&](Place& p) {
          const Shape all{s.batch, s.length, s.width}, some{s.batch, s.count, s.width};
          ops::take_positions(p.stream, p.out("y", some), p.in("x", all), s.first);
          ops::take_positions_backward(p.stream, {p.out("dx", all), add}, p.in("dy", some), s.first);
          std::vector<std::int32_t> starts;
          for (std::int64_t b = 0; b < s.batch; ++b) starts.push_back(b % 2 == 0);
          ops::fill_sequences(p.stream, p.out("z", all), p.in("row", {s.width}), p.ints(starts, {s.batch}));
        });
      }
  }

  TEST_CASE("puzzles' embeddings agree with the CPU" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, cells, prefix, columns, width, vocabulary;
    };
    for (const Sizes s : {Sizes{3, 7, 1, 20, 20, 5}, Sizes{2, 5, 2, 33, 50, 40}, Sizes{4, 3, 0, 8, 0, 2},
                          Sizes{1, 1, 3, 130, 7, 1}, Sizes{40, 31, 1, 12, 5, 11}, Sizes{0, 0, 1, 4, 4, 3}})
      for (const bool learned : {false, true}) {
        CAPTURE(s.columns);
        CAPTURE(learned);
        std::vector<std::int32_t> tokens, ids;
        for (std::int64_t i = 0; i < s.batch * s.cells; ++i)
          tokens.push_back(static_cast<std::int32_t>(i * 5 % s.vocabulary));
        for (std::int64_t b = 0; b < s.batch; ++b) ids.push_back(static_cast<std::int32_t>(b % 3));
        every_dtype_agrees(
            [&](Place& p) {
              const Shape shape{s.batch, s.prefix + s.cells, s.columns}, where{s.prefix + s.cells, s.columns};
              const ops::PuzzleEmbedding e = {.table = p.in("table", {s.vocabulary, s.columns}),
                                              .puzzles = s.width > 0 ? p.in("puzzles", {3, s.width}) : Tensor{},
                                              .where = learned ? p.in("where", where) : Tensor{},
                                              .tokens = p.ints(tokens, {s.batch, s.cells}),
                                              .ids = p.ints(ids, {s.batch}),
                                              .scale = 1.7};
              ops::puzzle_embedding_forward(p.stream, p.out("x", shape), e);
              ops::puzzle_embedding_backward(p.stream,
                                             s.width > 0 ? p.real_out("dpuzzle", {s.batch, s.width}) : Tensor{},
                                             p.real_out("dtable", {s.vocabulary, s.columns}),
                                             learned ? p.real_out("dwhere", where) : Tensor{}, p.in("dx", shape), e);
            },
            2e-5);
      }
  }
}
