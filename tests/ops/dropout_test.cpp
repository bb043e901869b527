#include "lockstep/ops/dropout.hpp"

#include "lockstep/nn/dropout.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

namespace {
constexpr Dropout kDropout{.rate = 0.2, .seed = 5, .step = 3, .site = "test"};

/// The draw of element i of a sample by definition: groups of 16 Philox blocks, read as 128 numbers of 16 bits.
std::uint32_t draw(const Dropout& d, std::uint64_t sample, std::uint64_t i) {
  const std::uint64_t group = i / 128, word = i % 128 / 2, lane = word % 16, block = lane / 2 + 8 * (lane % 2);
  const std::uint32_t bits = d.draws(sample).block(16 * group + block)[word / 16];
  return i % 2 ? bits >> 16 : bits & 0xffff;
}
}  // namespace

TEST_SUITE("ops.dropout") {
  TEST_CASE("every instruction set drops the elements that the definition drops, and scales up the others") {
    Stream stream;
    const std::vector<std::int64_t> offsets = {0, 3, 3, 10};
    const std::vector<std::uint64_t> samples = {7, 8, std::uint64_t{1} << 33};
    for_every_isa([&] {
      for (const DType dtype : {DType::f32, DType::f64}) {
        const OwnedTensor x = random_tensor(dtype, {10, 37}, "x"), y(dtype, {10, 37});
        ops::dropout(stream, {y}, x, kDropout, {offsets, samples});
        visit_float(dtype, [&]<class T>() {
          const T scale = static_cast<T>(65536.0 / (65536 - 13107));
          for (const std::size_t b : {0u, 2u})
            for (std::int64_t i = offsets[b] * 37; i < offsets[b + 1] * 37; ++i) {
              const bool keep = draw(kDropout, samples[b], static_cast<std::uint64_t>(i - offsets[b] * 37)) >= 13107;
              CHECK(y->data<T>()[i] == (keep ? x->data<T>()[i] * scale : T{0}));
            }
        });
      }
    });
  }

  TEST_CASE("an activation and its derivative drop the elements that dropout() drops") {
    Stream stream;
    const std::vector<std::int64_t> offsets = {0, 3, 4, 10};
    const std::vector<std::uint64_t> samples = {7, 8, 9};
    for_every_isa([&] {
      for (const DType dtype : {DType::f32, DType::f64})
        for (const std::int64_t width : {1, 3, 17, 50, 257}) {
          const OwnedTensor y = random_tensor(dtype, {10, width}, "y"), d = random_tensor(dtype, {10, width}, "d");
          const OwnedTensor y_apart(dtype, {10, width}), d_apart(dtype, {10, width});
          ops::dropout(stream, {y_apart}, y, kDropout, {offsets, samples});
          ops::dropout(stream, {d_apart}, d, kDropout, {offsets, samples});
          const OwnedTensor base = random_tensor(dtype, {10, width}, "base"), sum(dtype, {10, width});
          copy(stream, sum, base);
          ops::dropout(stream, {sum, true}, y, kDropout, {offsets, samples});
          const OwnedTensor again(dtype, {10, width});
          copy(stream, again, y);
          ops::dropout_both(stream, again, {}, base, kDropout, {offsets, samples});
          CHECK(same_bits(again, sum));
          ops::dropout_both(stream, y, d, {}, kDropout, {offsets, samples});
          CHECK(same_bits(y, y_apart));
          CHECK(same_bits(d, d_apart));
        }
    });
  }

  TEST_CASE("a sample's draws depend on neither its position nor its neighbours") {
    Stream stream;
    const OwnedTensor x = random_tensor(DType::f32, {11, 50}, "x"), all(DType::f32, {11, 50}), one(DType::f32, {7, 50});
    const std::vector<std::int64_t> offsets = {0, 4, 11}, alone = {0, 7};
    const std::vector<std::uint64_t> samples = {1, 2};
    ops::dropout(stream, {all}, x, kDropout, {offsets, samples});
    ops::dropout(stream, {one}, x->slice(4, 7), kDropout, {alone, std::span(samples).subspan(1)});
    CHECK(same_bits(one, all->slice(4, 7)));
  }

  TEST_CASE("the kept fraction is 1 - rate, and the draws differ between steps and sites") {
    Stream stream;
    constexpr std::int64_t kSize = 100000;
    const OwnedTensor x(DType::f64, {1, kSize}), y(DType::f64, {1, kSize}), z(DType::f64, {1, kSize});
    for (double& v : x->span<double>()) v = 1;
    const std::vector<std::int64_t> offsets = {0, 1};
    const std::vector<std::uint64_t> samples = {0};
    for (const double rate : {0.1, 0.5, 0.9}) {
      Dropout d = kDropout;
      d.rate = rate;
      ops::dropout(stream, {y}, x, d, {offsets, samples});
      double sum = 0;
      for (const double v : y->span<double>()) sum += v;
      CHECK(std::abs(sum / kSize - 1) < 5 * std::sqrt(rate / (1 - rate) / kSize));
      for (const int which : {0, 1}) {
        Dropout other = d;
        which == 0 ? ++other.step : ++other.site.id;
        ops::dropout(stream, {z}, x, other, {offsets, samples});
        double both = 0;
        for (std::int64_t i = 0; i < kSize; ++i) both += y->data<double>()[i] > 0 && z->data<double>()[i] > 0;
        CHECK(std::abs(both / kSize - (1 - rate) * (1 - rate)) < 0.01);
      }
    }
  }

  TEST_CASE("gradient agrees with finite differences; at rate 0 nothing is recorded") {
    static const std::vector<std::int64_t> offsets = {0, 3, 5};
    static const std::vector<std::uint64_t> samples = {4, 9};
    for_every_isa([&] {
      CHECK(gradcheck(
                [](Tape& t, const std::vector<Var>& v) {
                  return dropout(t, v[0], kDropout, on_tape(t, SampleRows{offsets, samples}));
                },
                {{5, 9}}) < 1e-7);
    });
    CHECK(gradcheck([](Tape& t, const std::vector<Var>& v) { return dropout(t, v[0], {}, {}); }, {{5, 9}}) < 1e-7);
  }

  TEST_CASE("wrong shapes and rates are reported") {
    Stream stream;
    const OwnedTensor x(DType::f32, {3, 2}), y(DType::f32, {3, 2});
    const std::vector<std::int64_t> offsets = {0, 2};
    const std::vector<std::uint64_t> samples = {4};
    CHECK_THROWS_WITH_AS(ops::dropout(stream, {y}, x, kDropout, {offsets, samples}),
                         "dropout: x is (3, 2), but its 1 samples have 2 rows", Error);
    CHECK_THROWS_WITH_AS(ops::dropout(stream, {y}, x, {.rate = 1}, {offsets, samples}),
                         "dropout: rate 1: must be in [0, 1)", Error);
  }
}
