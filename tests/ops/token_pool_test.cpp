#include "lockstep/ops/token_pool.hpp"

#include "lockstep/nn/attention.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.token_pool") {
  TEST_CASE("definition, gradients, bits and devices, with scores and without") {
    for (const bool scored : {true, false}) {
      const auto run = [&](Place& p, Int n, Int time, Int width) {
        const Tensor x = p.in("x", {n, time, width}), s = scored ? p.in("s", {n, time}) : Tensor{};
        const Tensor z = p.out("z", {n, width}), w = p.real_out("w", {n, time});
        ops::token_pool_forward(p.stream, z, w, x, s);
        ops::token_pool_backward(p.stream, p.to("dx", {n, time, width}), scored ? p.to("ds", {n, time}) : Target{},
                                 p.in("dz", {n, width}), z, w, x);
      };
      const auto definition = [&](Plain& r, Int n, Int time, Int width) {
        const auto x = r.in("x"), s = r.in("s"), z = r.out("z"), w = r.out("w");
        for (Int b = 0; b < n; ++b) {
          double sum = 0;
          for (Int t = 0; t < time; ++t) sum += w(b, t) = scored ? std::exp(s(b, t)) : 1;
          for (Int t = 0; t < time; ++t) {
            w(b, t) /= sum;
            for (Int c = 0; c < width; ++c) z(b, c) += w(b, t) * x(b, t, c);
          }
        }
      };
      CHECK(faults(run, definition, {{3, 8, 64}, {2, 5, 7}, {4, 9, 33}, {1, 1, 1}, {0, 3, 2}},
                   {.gpu_sizes = {{1, 200, 64}, {2, 8, 300}, {9, 1, 1}}}) == "");
    }
  }

  EVERY_ISA_TEST_CASE("gradient of the record agrees with finite differences, in different output shapes") {
    for (const std::int64_t abreast : {1, 3}) {
      const auto scored = [&](Tape& t, const std::vector<Var>& v) { return token_pool(t, v[0], v[1], abreast); };
      CHECK(gradcheck(scored, {{6, 5, 19}, {6, 5, 1}}) < 1e-7);
      const auto mean = [&](Tape& t, const std::vector<Var>& v) { return token_pool(t, v[0], {}, abreast); };
      CHECK(gradcheck(mean, {{3, 4, 2}}) < 1e-7);
    }
  }

  TEST_CASE("large scores and many tokens agree with the CPU" * doctest::test_suite("ops.token_pool.cuda") *
            doctest::skip(gpu_count() == 0)) {
    const auto run = [](Place& p, Int n) {
      ops::token_pool_forward(p.stream, p.out("z", {n, 1}), p.real_out("w", {n, 200}), p.in("x", {n, 200, 1}),
                              p.in("scores", {n, 200}, 1e4));
    };
    CHECK(faults(run, {}, {}, {.gpu = {.bf16 = 0, .f16 = 0}, .gpu_sizes = {{3}}}) == "");
  }
}
