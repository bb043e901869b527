#include "lockstep/ops/linear.hpp"

#include "lockstep/nn/linear.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
struct Sizes {
  std::int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{7, 5, 3},   {1, 1, 1}, {62, 64, 64}, {64, 1, 64}, {33, 3, 17},
                            {5, 13, 50}, {0, 4, 3}, {3, 4, 0},    {300, 20, 9}};
constexpr Activation kActivations[] = {Activation::none, Activation::gelu, Activation::relu, Activation::tanh,
                                       Activation::silu};

/// The layer by definition: product, bias, activation, one after another, in f64.
void reference(const Tensor& y, const Tensor& d, const Tensor& x, const Tensor& w, const Tensor& b,
               Activation activation) {
  for (std::int64_t m = 0; m < x.rows(); ++m)
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      double sum = b ? b.data<double>()[n] : 0;
      for (std::int64_t k = 0; k < x.columns(); ++k)
        sum += x.data<double>()[m * x.columns() + k] * w.data<double>()[n * x.columns() + k];
      y.data<double>()[m * w.rows() + n] = sum;
    }
  Stream stream;
  ops::activation_forward(stream, y, d, y, activation);
}
}  // namespace

TEST_SUITE("ops.linear") {
  TEST_CASE("weights packed once per scope give the same bits, and the next scope sees new weights") {
    for_every_isa([&] {
      Stream stream;
      const std::int64_t m = 5, n = 50, k = 17;
      const OwnedTensor x = random_tensor(DType::f32, {m, k}, "x"), w = random_tensor(DType::f32, {n, k}, "w"),
                        dy = random_tensor(DType::f32, {m, n}, "dy");
      OwnedTensor y(DType::f32, {m, n}), dx(DType::f32, {m, k});
      const auto run = [&] {
        ops::linear_forward(stream, y, {}, x, w, {}, Activation::none);
        ops::linear_backward(stream, {dx, false}, {}, {}, dy, {}, x, w);
        const auto values = y->span<float>(), gradients = dx->span<float>();
        std::vector<float> all(values.begin(), values.end());
        all.insert(all.end(), gradients.begin(), gradients.end());
        return all;
      };
      for (int step = 0; step < 2; ++step) {
        const std::vector<float> expected = run();
        const ops::PackedWeights packed;
        CHECK(run() == expected);
        CHECK(run() == expected);  // from the packed weights
        for (float& value : w->span<float>()) value *= 2;
      }
    });
  }

  TEST_CASE("forward agrees with product, bias and activation one after another") {
    for_every_isa([&] {
      for (const Sizes s : kSizes)
        for (const Activation activation : kActivations)
          for (const DType dtype : {DType::f32, DType::f64})
            for (const bool with_bias : {true, false}) {
              CAPTURE(s.m);
              CAPTURE(s.n);
              CAPTURE(s.k);
              CAPTURE(std::string(ops::name(activation)));
              const OwnedTensor x = random_tensor(dtype, {s.m, s.k}, "x"), w = random_tensor(dtype, {s.n, s.k}, "w"),
                                b = random_tensor(dtype, {s.n}, "b");
              const OwnedTensor y(dtype, {s.m, s.n}), d(dtype, {s.m, s.n}), y64(DType::f64, {s.m, s.n}),
                  d64(DType::f64, {s.m, s.n});
              const OwnedTensor b64 = converted(b, DType::f64);
              Stream stream;
              ops::linear_forward(stream, y, d, x, w, with_bias ? b.view() : Tensor{}, activation);
              reference(y64, d64, converted(x, DType::f64), converted(w, DType::f64), with_bias ? b64.view() : Tensor{},
                        activation);
              // The sums before the activation reach 20 and more, so their rounding is visible beside values up to 1.
              CHECK(difference(y, y64) < (dtype == DType::f32 ? 6e-6 : 1e-14));
              if (activation != Activation::relu)  // at its kink rounding flips the derivative
                CHECK(difference(d, d64) < (dtype == DType::f32 ? 1e-5 : 1e-13));
            }
    });
  }

  TEST_CASE("gradient agrees with finite differences for x, weight and bias") {
    for_every_isa([&] {
      for (const Sizes s : {Sizes{7, 5, 3}, Sizes{1, 1, 1}, Sizes{9, 3, 17}, Sizes{4, 18, 5}, Sizes{0, 2, 3}})
        for (const Activation activation : {Activation::none, Activation::gelu, Activation::tanh}) {
          CAPTURE(s.n);
          ParamStore params(DType::f64);
          const Linear layer = add_linear(params, "fc", s.k, s.n, init::zeros(), init::zeros());
          params.allocate(1);
          CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return linear(t, v[0], layer, activation); },
                          {{s.m, s.k}}, &params) < 1e-7);
        }
    });
  }

  TEST_CASE("backward stores or adds as each target says, and leaves empty targets alone") {
    const Sizes s{19, 6, 11};
    const OwnedTensor x = random_tensor(DType::f64, {s.m, s.k}, "x"), w = random_tensor(DType::f64, {s.n, s.k}, "w"),
                      d = random_tensor(DType::f64, {s.m, s.n}, "d");
    Stream stream;
    const auto dy = [&] { return random_tensor(DType::f64, {s.m, s.n}, "dy"); };
    const OwnedTensor dx(DType::f64, x->shape()), dw(DType::f64, w->shape()), db(DType::f64, {s.n});
    ops::linear_backward(stream, {dx, false}, {dw, false}, {db, false}, dy(), d, x, w);
    const OwnedTensor dx2 = random_tensor(DType::f64, x->shape(), "dx"),
                      dw2 = random_tensor(DType::f64, w->shape(), "dw"), db2 = random_tensor(DType::f64, {s.n}, "db");
    ops::linear_backward(stream, {dx2, true}, {dw2, true}, {db2, true}, dy(), d, x, w);
    const auto check_sum = [&](const Tensor& total, const Tensor& part, const char* name) {
      const OwnedTensor expected = random_tensor(DType::f64, part.shape(), name);
      for (std::int64_t i = 0; i < part.size(); ++i) expected->data<double>()[i] += part.data<double>()[i];
      CHECK(difference(total, expected) < 1e-14);
    };
    check_sum(dx2, dx, "dx");
    check_sum(dw2, dw, "dw");
    check_sum(db2, db, "db");
    const OwnedTensor again = dy();
    ops::linear_backward(stream, {}, {}, {}, again, d, x, w);
    for (std::int64_t i = 0; i < again->size(); ++i)
      CHECK(again->data<double>()[i] == dy()->data<double>()[i] * d->data<double>()[i]);
  }

  TEST_CASE("a row's value, derivative and input gradient do not depend on the other rows of the call") {
    for_every_isa([&] {
      for (const std::int64_t n : {1, 3, 64, 50}) {
        const std::int64_t m = 128, k = 64;
        const OwnedTensor x = random_tensor(DType::f32, {m, k}, "x"), w = random_tensor(DType::f32, {n, k}, "w"),
                          b = random_tensor(DType::f32, {n}, "b");
        const OwnedTensor y(DType::f32, {m, n}), d(DType::f32, {m, n}), dx(DType::f32, {m, k}),
            dy = random_tensor(DType::f32, {m, n}, "dy");
        Stream stream;
        const auto run = [&](std::int64_t first, std::int64_t count, const Tensor& ty, const Tensor& td,
                             const Tensor& tdx, const Tensor& tdy) {
          ops::linear_forward(stream, ty.slice(first, count), td.slice(first, count), x->slice(first, count), w, b,
                              Activation::gelu);
          ops::linear_backward(stream, {tdx.slice(first, count), false}, {}, {}, tdy.slice(first, count),
                               td.slice(first, count), x->slice(first, count), w);
        };
        run(0, m, y, d, dx, dy);
        for (const std::int64_t piece : {1, 5, 31, 62}) {
          CAPTURE(n);
          CAPTURE(piece);
          const OwnedTensor y2(DType::f32, {m, n}), d2(DType::f32, {m, n}), dx2(DType::f32, {m, k}),
              dy2 = random_tensor(DType::f32, {m, n}, "dy");
          for (std::int64_t first = 0; first < m; first += piece)
            run(first, std::min(piece, m - first), y2, d2, dx2, dy2);
          CHECK(same_bits(y, y2));
          CHECK(same_bits(d, d2));
          CHECK(same_bits(dx, dx2));
        }
      }
    });
  }

  TEST_CASE("one big layer has the same bits on any number of threads, forward and backward") {
    const std::int64_t m = 3000, n = 60, k = 40;
    const OwnedTensor x = random_tensor(DType::f32, {m, k}, "x"), w = random_tensor(DType::f32, {n, k}, "w"),
                      b = random_tensor(DType::f32, {n}, "b");
    struct Result {
      OwnedTensor y, d, dx, dw, db;
    };
    const auto run = [&](int threads) {
      const Threads limit(threads);
      Result r = {OwnedTensor(DType::f32, {m, n}), OwnedTensor(DType::f32, {m, n}), OwnedTensor(DType::f32, {m, k}),
                  OwnedTensor(DType::f32, {n, k}), OwnedTensor(DType::f32, {n})};
      Stream stream;
      ops::linear_forward(stream, r.y, r.d, x, w, b, Activation::gelu);
      ops::linear_backward(stream, {r.dx, false}, {r.dw, true}, {r.db, true}, random_tensor(DType::f32, {m, n}, "dy"),
                           r.d, x, w);
      return r;
    };

    const Result one = run(1);
    for (const int threads : {2, 3, 5}) {
      const Result many = run(threads);
      CHECK(same_bits(one.y, many.y));
      CHECK(same_bits(one.d, many.d));
      CHECK(same_bits(one.dx, many.dx));
      CHECK(same_bits(one.dw, many.dw));
      CHECK(same_bits(one.db, many.db));
    }
  }

  TEST_CASE("shapes that do not fit are reported") {
    Stream stream;
    const OwnedTensor x(DType::f32, {2, 3}), w(DType::f32, {4, 5}), b(DType::f32, {4}), y(DType::f32, {2, 4});
    CHECK_THROWS_WITH_AS(ops::linear_forward(stream, y, {}, x, w, b, Activation::none),
                         "linear: x is (2, 3), so weight must be (N, 3), not (4, 5)", Error);
  }
}
