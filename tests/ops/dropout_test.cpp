#include "lockstep/ops/dropout.hpp"

#include "lockstep/nn/embedding.hpp"
#include "lockstep/ops/linear.hpp"
#include "ops/every_isa.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

using ops::Activation;

namespace {
constexpr Dropout kDropout{.rate = 0.2, .seed = 12, .step = 3, .site = "test"};  // a draw equals the threshold

/// The draw of element i of a sample by definition: groups of 16 Philox blocks, read as 128 numbers of 16 bits.
std::uint32_t draw(const Dropout& d, std::uint64_t sample, std::uint64_t i) {
  const std::uint64_t group = i / 128, word = i % 128 / 2, lane = word % 16, block = lane / 2 + 8 * (lane % 2);
  const std::uint32_t bits = d.draws(sample).block(16 * group + block)[word / 16];
  return i % 2 ? bits >> 16 : bits & 0xffff;
}
}  // namespace

TEST_SUITE("ops.dropout") {
  TEST_CASE("definition, gradients, bits and devices, alone and in a layer, with and without rows after the samples") {
    const std::vector<std::int64_t> offsets = {0, 3, 3, 50, 51};
    const std::vector<std::uint64_t> samples = {7, 9, std::uint64_t{1} << 33, 2};
    for (const std::int64_t capacity : {0, 57}) {
      const Int n = capacity > 0 ? capacity : 51;
      const auto run = [&](Place& p, Int width) {
        const Shape shape{n, width};
        const ops::SampleRows rows{p.host(offsets), p.host(samples), capacity, 50};
        const Tensor d = p.out("layer's derivative", shape), over = p.over("y in place", p.in("x", shape));
        ops::dropout(p.stream, p.to("y", shape), p.in("x", shape), kDropout, rows);
        ops::dropout(p.stream, {over}, over, kDropout, rows);
        ops::dropout(p.stream, p.to("dx", shape), p.in("dy", shape), kDropout, rows);
        ops::linear_forward(p.stream, p.out("layer", shape), d, p.in("z", {n, 4}), p.weight("w", {width, 4}),
                            p.weight("b", {width}), Activation::gelu, kDropout, rows,
                            width % 2 == 1 ? p.in("residual", shape) : Tensor{});
      };
      const auto definition = [&](Plain& r, Int width) {
        const auto x = r.in("x"), y = r.out("y"), over = r.out("y in place");
        for (std::size_t b = 0; b < samples.size(); ++b)
          for (Int m = offsets[b]; m < offsets[b + 1]; ++m)
            for (Int i = 0; i < width; ++i) {
              const auto index = static_cast<std::uint64_t>((m - offsets[b]) * width + i);
              over(m, i) = y(m, i) = draw(kDropout, samples[b], index) >= 13107 ? x(m, i) * 65536 / (65536 - 13107) : 0;
            }
      };
      CHECK(faults(run, definition, {{1}, {3}, {8}, {33}, {130}}, {.f32 = 2e-7, .f64 = 1e-15, .rows = false}) == "");
    }
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

  TEST_CASE("gradient of the record agrees with finite differences; at rate 0 nothing is recorded") {
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
