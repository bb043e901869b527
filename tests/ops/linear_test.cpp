#include "lockstep/ops/linear.hpp"

#include "lockstep/nn/linear.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/activations.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.linear") {
  TEST_CASE("definition, gradients, bits and devices: y = f(x w' + b)") {
    for (const Activation f :
         {Activation::none, Activation::gelu, Activation::relu, Activation::tanh, Activation::silu})
      for (const bool whole : {true, false}) {
        if (!whole && f != Activation::none && f != Activation::gelu) continue;
        CAPTURE(std::string(name(f)));
        CAPTURE(whole);
        const auto run = [&](Place& p, Int m, Int n, Int k) {
          const Tensor x = p.in("x", {m, k}), w = p.weight("w", {n, k}), b = whole ? p.weight("b", {n}) : Tensor{};
          const Tensor y = p.out("y", {m, n}), d = p.out("derivative", {m, n}), da = p.over("da", p.in("dy", {m, n}));
          ops::linear_forward(p.stream, y, d, x, w, b, f);
          ops::linear_forward(p.stream, p.out("y again", {m, n}), {}, x, w, b, f);
          ops::linear_backward(p.stream, p.to("dx", {m, k}), p.to_sum("dw", {n, k}),
                               whole ? p.to_sum("db", {n}) : Target{}, da, d, x, w);
          ops::linear_backward(p.stream, {}, {}, {}, p.over("da again", p.in("dy", {m, n})), d, x, w);
        };
        const auto definition = [&](Plain& r, Int m, Int n, Int k) {
          const auto x = r.in("x"), w = r.in("w"), b = r.in("b"), dy = r.in("dy");
          const auto y = r.out("y"), d = r.out("derivative"), da = r.out("da");
          for (Int i = 0; i < m; ++i)
            for (Int j = 0; j < n; ++j) {
              double sum = whole ? b(j) : 0;
              for (Int q = 0; q < k; ++q) sum += x(i, q) * w(j, q);
              std::tie(y(i, j), d(i, j)) = exact(f, sum);
              da(i, j) = dy(i, j) * d(i, j);
            }
        };
        const bool common = f == Activation::none || f == Activation::gelu;
        const std::vector<Sizes> every = {{7, 5, 3}, {1, 1, 1}, {31, 64, 33}, {64, 1, 16},
                                          {0, 4, 3}, {3, 4, 0}, {33, 3, 17}};
        // The sums before the activation reach 20 and more, so their rounding is visible beside values up to 1.
        CHECK(
            faults(run, definition, common ? every : std::vector<Sizes>{{33, 3, 17}},
                   {.f32 = 1e-5,
                    .f64 = 1e-13,
                    .gradient = f == Activation::relu ? 0 : 1e-7,
                    .refused = {{{2, 4, 3}, "w", {4, 5}, "linear: x is (2, 3), so weight must be (N, 3), not (4, 5)"}},
                    .cpu_sizes = {{5, 13, 50}, {300, 20, 9}, {128, 50, 64}},
                    .gpu_sizes = {{300, 20, 9}}}) == "");
      }
  }

  TEST_CASE("sums over many rows agree with the CPU" * doctest::test_suite("ops.linear.cuda") *
            doctest::skip(gpu_count() == 0)) {
    const auto run = [](Place& p, Int m, Int n, Int k) {
      const Tensor x = p.in("x", {m, k}), w = p.weight("w", {n, k}), d = p.in("d", {m, n});
      ops::linear_backward(p.stream, p.to("dx", {m, k}), p.to_sum("dw", {n, k}), p.to_sum("db", {n}),
                           p.over("da", p.in("dy", {m, n})), d, x, w);
      ops::linear_backward(p.stream, {}, p.to_sum("dw alone", {n, k}), {}, p.in("dy", {m, n}), {}, x, w);
      ops::linear_backward(p.stream, {}, {}, p.to_sum("db alone", {n}), p.in("dy", {m, n}), {}, x, w);
    };
    // Packs of 1, 2 and 4 elements; one and three tiles of outputs, the last one not full; too many inputs or outputs.
    // Tolerance: sums of many terms, in another order.
    CHECK(
        faults(
            {.sizes = {},
             .run = run,
             .gpu = {.f32 = 2e-5},
             .gpu_sizes = {
                 {4001, 5, 3}, {1024, 150, 50}, {17000, 4, 2}, {1100, 64, 64}, {1100, 9, 65}, {1100, 257, 8}}}) == "");
  }

  EVERY_ISA_TEST_CASE("weights packed once per scope give the same bits, and the next scope sees new weights") {
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
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences for x, weight and bias") {
    ParamStore params(DType::f64);
    const Linear layer = add_linear(params, "fc", 3, 5, init::zeros(), init::zeros());
    params.allocate(1);
    for (const Activation activation : {Activation::none, Activation::gelu, Activation::tanh})
      for (const Shape& shape : {Shape{7, 3}, Shape{0, 3}})
        CHECK(gradcheck([&](Tape& t, const std::vector<Var>& v) { return linear(t, v[0], layer, activation); }, {shape},
                        &params) < 1e-7);
  }

  TEST_CASE("one big layer has the same bits on any number of threads, forward and backward") {
    const auto run = [](Place& p, Int m, Int n, Int k) {
      const Tensor x = p.in("x", {m, k}), w = p.weight("w", {n, k}), b = p.weight("b", {n}), d = p.out("d", {m, n});
      ops::linear_forward(p.stream, p.out("y", {m, n}), d, x, w, b, Activation::gelu);
      ops::linear_backward(p.stream, p.to("dx", {m, k}), p.to_sum("dw", {n, k}), p.to_sum("db", {n}),
                           p.in("dy", {m, n}), d, x, w);
    };
    CHECK(faults(run, {}, {}, {.gradient = 0, .rows = false, .cpu_sizes = {{3000, 60, 40}}}) == "");
  }
}
