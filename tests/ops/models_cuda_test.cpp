#include "lockstep/ops/attention.hpp"
#include "lockstep/ops/conv1d.hpp"
#include "lockstep/ops/cross_entropy.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/line_patches.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "lockstep/ops/token_pool.hpp"
#include "lockstep/samples/rasteriser.hpp"
#include "ops/on_both.hpp"
#include "support/test.hpp"

using ops::Activation;

TEST_SUITE("ops.models.cuda") {
  TEST_CASE("attention agrees with the CPU, with and without dropout" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t batch, time, heads, width;
    };
    for (const Sizes s : {Sizes{2, 7, 3, 5}, Sizes{1, 1, 1, 1}, Sizes{3, 8, 4, 16}, Sizes{2, 20, 2, 8},
                          Sizes{1, 31, 2, 64}, Sizes{2, 67, 1, 33}, Sizes{1, 200, 2, 12}, Sizes{1, 40, 1, 100},
                          Sizes{1, 161, 1, 50}, Sizes{1, 35, 1, 128}, Sizes{0, 4, 2, 3}})
      for (const double rate : {0.0, 0.25})
        for (const bool add : {false, true}) {
          CAPTURE(s.time);
          CAPTURE(s.width);
          CAPTURE(rate);
          CAPTURE(add);
          const std::int64_t columns = s.heads * s.width;
          std::vector<std::uint64_t> samples;
          for (std::int64_t b = 0; b < s.batch; ++b) samples.push_back(static_cast<std::uint64_t>(5 + 3 * b));
          const auto run = [&](Place& p) {
            ops::AttentionOptions options;
            options.heads = s.heads;
            options.scale = 1 / std::sqrt(static_cast<double>(s.width));
            options.dropout = {.rate = rate, .seed = 3, .step = 4, .site = "test"};
            options.samples = p.host(samples);
            const Shape one{s.batch, s.time, columns}, all{s.batch, s.time, 3 * columns};
            const Tensor qkv = p.in("qkv", all), y = p.out("y", one),
                         lse = p.real_out("lse", {s.batch, s.heads, s.time});
            ops::attention_forward(p.stream, y, lse, qkv, options);
            ops::attention_backward(p.stream, {p.out("dqkv", all), add}, p.in("dy", one), y, lse, qkv, options);
          };
          agrees_on_both(run);
          if (s.time > 1) halves_agree(run);  // with one weight the gradient is only the rounding of y
        }
  }

  TEST_CASE("embeddings of line pictures agree with the CPU" * doctest::skip(!gpu_present())) {
    struct Sizes {
      std::int64_t pictures, size, patch, width;
    };
    for (const Sizes s : {Sizes{3, 32, 8, 20}, Sizes{1, 20, 7, 70}, Sizes{2, 40, 20, 3}, Sizes{1, 16, 8, 300},
                          Sizes{2, 32, 2, 3}, Sizes{0, 16, 8, 4}})
      for (const bool turned : {false, true}) {
        CAPTURE(s.size);
        CAPTURE(s.patch);
        CAPTURE(turned);
        const std::int64_t words = line_plot::mask_words(static_cast<int>(s.size)), side = s.size / s.patch;
        std::vector<std::uint32_t> line(to_size(s.pictures * words)), outside(line.size());
        std::vector<double> colours(to_size(9 * s.pictures));
        const Philox draws(1, 0, "pictures");
        for (std::size_t i = 0; i < line.size(); ++i) {
          line[i] = draws.bits(3 * i) & draws.bits(3 * i + 1);
          outside[i] = draws.bits(3 * i + 2) & ~line[i];
        }
        for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = draws.normal(1000 + i);
        if (s.pictures > 0) colours[3] = colours[0];  // one component of the line equals that of the paper
        every_dtype_agrees([&](Place& p) {
          const ops::LinePictures pictures{.count = s.pictures,
                                           .size = s.size,
                                           .line = p.host(line).data(),
                                           .outside = turned ? p.host(outside).data() : nullptr,
                                           .colours = p.host(colours).data()};
          const Shape weight{s.width, 3, s.patch, s.patch}, y{s.pictures, side * side, s.width};
          ops::line_patches_forward(p.stream, p.out("y", y), pictures, p.in("weight", weight), p.in("bias", {s.width}));
          ops::line_patches_backward(p.stream, {p.real_out("dweight", weight), true},
                                     {p.real_out("dbias", {s.width}), true}, p.in("dy", y), pictures);
        });
      }
  }

  TEST_CASE("convolutions agree with the CPU" * doctest::skip(!gpu_present())) {
    for (const std::int64_t rows : {0, 1, 300})
      for (const std::int64_t kernel : {1, 3, 7})
        for (const Activation f : {Activation::none, Activation::gelu}) {
          CAPTURE(rows);
          CAPTURE(kernel);
          every_dtype_agrees(
              [&](Place& p) {
                const Tensor x = p.in("x", {rows, 11}), w = p.in("w", {5, 1, kernel}), y = p.out("y", {rows, 55}),
                             d = p.out("derivative", {rows, 55});
                ops::conv1d_forward(p.stream, y, d, x, w, p.in("b", {5}), f);
                ops::conv1d_backward(p.stream, {p.out("dx", {rows, 11}), true},
                                     {p.real_out("dw", {5, 1, kernel}), false}, {p.real_out("db", {5}), true},
                                     p.out("dy", {rows, 55}), d, x, w);
              },
              2e-5);
        }
  }

  TEST_CASE("losses agree with the CPU" * doctest::skip(!gpu_present())) {
    for (const std::int64_t rows : {0, 1, 9, 700})
      for (const std::int64_t classes : {3, 33}) {
        CAPTURE(rows);
        CAPTURE(classes);
        std::vector<std::int32_t> labels;
        for (std::int64_t n = 0; n < rows; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % classes));
        const std::vector<double> weights(labels.begin(), labels.end());
        const std::vector<double> mean(to_size(classes), 0.5), std(to_size(classes), 2.0);
        every_dtype_agrees([&](Place& p) {
          const Shape shape{rows, classes};
          const Tensor y = p.in("y", shape), t = p.real_in("t", shape);
          const Tensor zero_y = p.in("y", shape), zero_t = p.real_in("t", shape);
          fill_zero(p.stream, zero_y);
          fill_zero(p.stream, zero_t);
          const Tensor numbers = Tensor::of(p.host(labels).data(), {rows});
          ops::cross_entropy(p.stream, p.real_out("cross entropy", {}), p.real_out("dx", shape), y, numbers, 0.1);
          ops::cross_entropy(p.stream, p.real_out("weighted", {}), p.real_out("dx weighted", shape), y, numbers, 0.1,
                             Tensor::of(p.host(weights).data(), {rows}));
          for (const ops::Regression kind : {ops::Regression::mse, ops::Regression::mae, ops::Regression::huber})
            for (const bool right : {false, true})  // a correct prediction has no gradient
              ops::regression_loss(p.stream, p.real_out(ops::name(kind), {}), p.real_out("dy", shape),
                                   right ? zero_y : y, right ? zero_t : t, kind);
          for (const int order : {1, 2})
            ops::smoothness_loss(p.stream, p.real_out("smoothness", {}), p.real_out("ds", shape), y, p.host(mean),
                                 p.host(std), order);
        });
      }
  }

  TEST_CASE("the cross entropy agrees with the CPU for large logits and more rows than a grid has warps" *
            doctest::skip(!gpu_present())) {
    constexpr std::int64_t kRows = 4100;
    std::vector<std::int32_t> labels;
    for (std::int32_t n = 0; n < kRows; ++n) labels.push_back(n % 3);
    agrees_on_both([&](Place& p) {
      const Tensor y = p.in("y", {kRows, 3}), large = p.in("large", {kRows, 3});
      ops::scale(p.stream, {y, false}, large, 1e4);
      ops::cross_entropy(p.stream, p.real_out("cross entropy", {}), p.real_out("dx", {kRows, 3}), y,
                         Tensor::of(p.host(labels).data(), {kRows}), 0.1);
    });
  }

  TEST_CASE("pooling agrees with the CPU for large scores and many tokens" * doctest::skip(!gpu_present())) {
    agrees_on_both([](Place& p) {
      const Tensor scores = p.in("scores", {3, 200});
      ops::scale(p.stream, {scores, false}, p.in("large", {3, 200}), 1e4);
      ops::token_pool_forward(p.stream, p.out("z", {3, 1}), p.real_out("w", {3, 200}), p.in("x", {3, 200, 1}), scores);
    });
  }

  TEST_CASE("pooling of tokens agrees with the CPU" * doctest::skip(!gpu_present())) {
    for (const std::int64_t n : {0, 1, 9})
      for (const std::int64_t time : {1, 8, 200})
        for (const std::int64_t width : {1, 64, 300})
          for (const bool scored : {false, true}) {
            CAPTURE(n);
            CAPTURE(time);
            CAPTURE(width);
            CAPTURE(scored);
            every_dtype_agrees([&](Place& p) {
              const Tensor x = p.in("x", {n, time, width}), z = p.out("z", {n, width}), w = p.real_out("w", {n, time});
              ops::token_pool_forward(p.stream, z, w, x, scored ? p.in("scores", {n, time}) : Tensor{});
              ops::token_pool_backward(p.stream, {p.out("dx", {n, time, width}), true},
                                       scored ? Target{p.out("dscores", {n, time}), true} : Target{},
                                       p.in("dz", {n, width}), z, w, x);
            });
          }
  }
}
