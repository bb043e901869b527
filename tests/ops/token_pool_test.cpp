#include "lockstep/ops/token_pool.hpp"

#include "lockstep/nn/token_pool.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.token_pool") {
  TEST_CASE("the weighted mean agrees with the definition, with scores and without") {
    for_every_isa([&] {
      for (const Shape shape : {Shape{3, 8, 64}, Shape{2, 5, 7}, Shape{1, 1, 1}, Shape{0, 3, 2}})
        for (const DType type : {DType::f32, DType::f64})
          for (const bool scored : {true, false}) {
            const std::int64_t sequences = shape[0], time = shape[1], width = shape[2];
            const OwnedTensor x = random_tensor(type, shape, "x"), s = random_tensor(type, {sequences, time}, "s");
            const OwnedTensor z(type, {sequences, width}), w(type, {sequences, time});
            Stream stream;
            ops::token_pool_forward(stream, z, w, x, scored ? s.view() : Tensor{});
            const OwnedTensor x64 = converted(x, DType::f64), s64 = converted(s, DType::f64);
            const OwnedTensor expected(DType::f64, {sequences, width});
            for (std::int64_t n = 0; n < sequences; ++n) {
              double sum = 0;
              const auto weight = [&](std::int64_t t) {
                return scored ? std::exp(s64->data<double>()[n * time + t]) : 1;
              };
              for (std::int64_t t = 0; t < time; ++t) sum += weight(t);
              for (std::int64_t t = 0; t < time; ++t)
                for (std::int64_t c = 0; c < width; ++c)
                  expected->data<double>()[n * width + c] +=
                      weight(t) / sum * x64->data<double>()[(n * time + t) * width + c];
            }
            CHECK(difference(z, expected) < (type == DType::f32 ? 1e-6 : 1e-14));
          }
    });
  }

  TEST_CASE("gradient agrees with finite differences, in different output shapes") {
    for_every_isa([&] {
      for (const std::int64_t abreast : {1, 3}) {
        const auto scored = [&](Tape& t, const std::vector<Var>& v) { return token_pool(t, v[0], v[1], abreast); };
        CHECK(gradcheck(scored, {{6, 5, 19}, {6, 5, 1}}) < 1e-7);
        const auto mean = [&](Tape& t, const std::vector<Var>& v) { return token_pool(t, v[0], {}, abreast); };
        CHECK(gradcheck(mean, {{3, 4, 2}}) < 1e-7);
      }
    });
  }

  TEST_CASE("a sequence has the same bits alone and in a batch; a NaN stays a NaN") {
    const OwnedTensor x = random_tensor(DType::f32, {4, 9, 33}, "x"), s = random_tensor(DType::f32, {4, 9}, "s");
    const OwnedTensor z(DType::f32, {4, 33}), w(DType::f32, {4, 9}), z1(DType::f32, {1, 33}), w1(DType::f32, {1, 9});
    Stream stream;
    ops::token_pool_forward(stream, z, w, x, s);
    ops::token_pool_forward(stream, z1, w1, x->slice(2, 1), s->slice(2, 1));
    CHECK(same_bits(z1, z->slice(2, 1)));
    s->data<float>()[20] = std::nanf("");
    ops::token_pool_forward(stream, z, w, x, s);
    CHECK(std::isnan(z->data<float>()[2 * 33]));
    CHECK(!std::isnan(z->data<float>()[0]));
  }
}
