#include "lockstep/ops/conv1d.hpp"

#include "lockstep/nn/linear.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
struct Sizes {
  std::int64_t m, c, k, t;
};
constexpr Sizes kSizes[] = {{7, 3, 5, 9}, {1, 1, 1, 1}, {4, 2, 7, 3}, {300, 3, 3, 14}, {0, 2, 3, 4}, {3, 2, 3, 1}};

/// PyTorch's Conv1d(1, C, K, padding = K/2) on a row padded with zeros, in f64.
OwnedTensor reference(const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::int64_t rows = x.rows(), length = x.columns(), channels = w.shape()[0], kernel = w.shape()[2];
  OwnedTensor y(DType::f64, {rows, channels * length});
  for (std::int64_t m = 0; m < rows; ++m) {
    std::vector<double> padded(to_size(length + 2 * (kernel / 2)), 0.0);
    for (std::int64_t i = 0; i < length; ++i) padded[to_size(i + kernel / 2)] = x.data<double>()[m * length + i];
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < length; ++i) {
        double sum = b.data<double>()[c];
        for (std::int64_t j = 0; j < kernel; ++j) sum += w.data<double>()[c * kernel + j] * padded[to_size(i + j)];
        y->data<double>()[(m * channels + c) * length + i] = sum;
      }
  }
  return y;
}
}  // namespace

TEST_SUITE("ops.conv1d") {
  TEST_CASE("forward agrees with the definition on a padded row, channel-major") {
    for_every_isa([&] {
      for (const Sizes s : kSizes)
        for (const DType dtype : {DType::f32, DType::f64}) {
          CAPTURE(s.k);
          CAPTURE(s.t);
          const OwnedTensor x = random_tensor(dtype, {s.m, s.t}, "x"), w = random_tensor(dtype, {s.c, 1, s.k}, "w"),
                            b = random_tensor(dtype, {s.c}, "b");
          const OwnedTensor y(dtype, {s.m, s.c * s.t});
          Stream stream;
          ops::conv1d_forward(stream, y, {}, x, w, b, Activation::none);
          const OwnedTensor expected =
              reference(converted(x, DType::f64), converted(w, DType::f64), converted(b, DType::f64));
          CHECK(difference(y, expected) < (dtype == DType::f32 ? 1e-6 : 1e-14));
        }
    });
  }

  TEST_CASE("gradient agrees with finite differences for x, weight and bias") {
    for_every_isa([&] {
      for (const Sizes s : {Sizes{7, 3, 5, 9}, Sizes{1, 1, 1, 1}, Sizes{4, 2, 7, 3}, Sizes{0, 2, 3, 4}}) {
        CAPTURE(s.k);
        ParamStore params(DType::f64);
        const Conv1d layer = add_conv1d(params, "conv1d", s.c, s.k, init::zeros(), init::zeros());
        params.allocate(1);
        for (const Activation activation : {Activation::none, Activation::gelu})
          CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return conv1d(t, v[0], layer, activation); },
                          {{s.m, s.t}}, &params) < 1e-7);
      }
    });
  }

  TEST_CASE("a row's bits do not depend on the other rows, and targets are stored or added") {
    for_every_isa([&] {
      const std::int64_t m = 40, c = 4, k = 3, t = 14;
      const OwnedTensor x = random_tensor(DType::f32, {m, t}, "x"), w = random_tensor(DType::f32, {c, 1, k}, "w"),
                        b = random_tensor(DType::f32, {c}, "b");
      const OwnedTensor y(DType::f32, {m, c * t}), d(DType::f32, {m, c * t}), y1(DType::f32, {m, c * t}),
          d1(DType::f32, {m, c * t});
      Stream stream;
      ops::conv1d_forward(stream, y, d, x, w, b, Activation::gelu);
      for (std::int64_t i = 0; i < m; ++i)
        ops::conv1d_forward(stream, y1->slice(i, 1), d1->slice(i, 1), x->slice(i, 1), w, b, Activation::gelu);
      CHECK(same_bits(y, y1));
      CHECK(same_bits(d, d1));
      const OwnedTensor stored(DType::f32, w->shape()), twice(DType::f32, w->shape());
      const auto dy = [&] { return random_tensor(DType::f32, {m, c * t}, "dy"); };
      ops::conv1d_backward(stream, {}, {stored, false}, {}, dy(), d, x, w);
      ops::conv1d_backward(stream, {}, {twice, false}, {}, dy(), d, x, w);
      ops::conv1d_backward(stream, {}, {twice, true}, {}, dy(), d, x, w);
      for (std::int64_t i = 0; i < stored->size(); ++i) CHECK(twice->data<float>()[i] == 2 * stored->data<float>()[i]);
    });
  }

  TEST_CASE("an even kernel is an error") {
    Stream stream;
    const OwnedTensor x(DType::f32, {2, 3}), w(DType::f32, {1, 1, 4}), b(DType::f32, {1}), y(DType::f32, {2, 3});
    CHECK_THROWS_WITH_AS(ops::conv1d_forward(stream, y, {}, x, w, b, Activation::none),
                         "conv1d: weight must be (C, 1, K) with an odd K, not (1, 1, 4)", Error);
  }
}
