#include "lockstep/ops/attention.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/rope.hpp"
#include "lockstep/ops/rope.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {
struct Sizes {
  std::int64_t batch, time, heads, width;
  Shape shape() const { return {batch, time, heads * width}; }
  AttentionOptions options() const {
    AttentionOptions o;
    o.heads = heads;
    o.scale = 1 / std::sqrt(static_cast<double>(width));
    return o;
  }
};
AttentionOptions with_heads(std::int64_t heads) {
  AttentionOptions o;
  o.heads = heads;
  return o;
}
constexpr Sizes kSizes[] = {{2, 7, 3, 5},   {1, 1, 1, 1},    {3, 8, 4, 16}, {1, 31, 2, 64},
                            {2, 67, 1, 33}, {1, 200, 1, 12}, {0, 4, 2, 3}};

/// The definition, in f64.
void reference(const Sizes& s, const Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t columns = s.heads * s.width;
  const auto at = [&](const Tensor& t, std::int64_t b, std::int64_t i, std::int64_t c) -> double& {
    return t.data<double>()[(b * s.time + i) * columns + c];
  };
  std::vector<double> p(static_cast<std::size_t>(s.time));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.time; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < s.time; ++j) {
          double product = 0;
          for (std::int64_t c = h * s.width; c < (h + 1) * s.width; ++c) product += at(q, b, i, c) * at(k, b, j, c);
          sum += p[static_cast<std::size_t>(j)] = std::exp(s.options().scale * product);
        }
        for (std::int64_t c = h * s.width; c < (h + 1) * s.width; ++c) {
          double value = 0;
          for (std::int64_t j = 0; j < s.time; ++j) value += p[static_cast<std::size_t>(j)] / sum * at(v, b, j, c);
          at(y, b, i, c) = value;
        }
      }
}

/// Packs queries, keys and values side by side.
OwnedTensor packed(const Sizes& s, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t columns = s.heads * s.width;
  OwnedTensor all(q.dtype(), {s.batch, s.time, 3 * columns});
  visit_float(q.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < s.batch * s.time; ++row)
      for (std::int64_t part = 0; part < 3; ++part)
        std::copy_n((part == 0   ? q
                     : part == 1 ? k
                                 : v)
                            .data<T>() +
                        row * columns,
                    columns, all->data<T>() + (3 * row + part) * columns);
  });
  return all;
}

struct Result {
  OwnedTensor y, lse, dq, dk, dv;
};
Result run(const Sizes& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy) {
  const DType type = q.dtype();
  Result r{OwnedTensor(type, s.shape()), OwnedTensor(type, {s.batch, s.heads, s.time}), OwnedTensor(type, s.shape()),
           OwnedTensor(type, s.shape()), OwnedTensor(type, s.shape())};
  Stream stream;
  ops::attention_forward(stream, r.y, r.lse, {q, k, v}, s.options());
  ops::attention_backward(stream, {{r.dq, false}, {r.dk, false}, {r.dv, false}}, dy, r.y, r.lse, {q, k, v},
                          s.options());
  return r;
}
}  // namespace

TEST_SUITE("ops.attention") {
  TEST_CASE("forward agrees with the definition, from three arrays and from one") {
    for_every_isa([&] {
      for (const Sizes& s : kSizes)
        for (const DType type : {DType::f32, DType::f64}) {
          CAPTURE(s.time);
          CAPTURE(s.width);
          const OwnedTensor q = random_tensor(type, s.shape(), "q"), k = random_tensor(type, s.shape(), "k"),
                            v = random_tensor(type, s.shape(), "v");
          const OwnedTensor y(type, s.shape()), y2(type, s.shape()), expected(DType::f64, s.shape());
          Stream stream;
          ops::attention_forward(stream, y, {}, {q, k, v}, s.options());
          reference(s, expected, converted(q, DType::f64), converted(k, DType::f64), converted(v, DType::f64));
          CHECK(difference(y, expected) < (type == DType::f32 ? 2e-6 : 1e-14));
          ops::attention_forward(stream, y2, {}, {packed(s, q, k, v), {}, {}}, s.options());
          CHECK(same_bits(y, y2));
        }
    });
  }

  TEST_CASE("gradient agrees with finite differences") {
    for_every_isa([&] {
      for (const Sizes s : {Sizes{2, 7, 3, 5}, Sizes{1, 1, 1, 1}, Sizes{1, 8, 2, 16}, Sizes{0, 2, 1, 3}}) {
        CAPTURE(s.time);
        const auto apart = [&](Tape& t, const std::vector<Var>& v) {
          return attention(t, v[0], v[1], v[2], s.options());
        };
        CHECK(gradcheck(apart, {s.shape(), s.shape(), s.shape()}) < 1e-7);
        const auto together = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], s.options()); };
        CHECK(gradcheck(together, {{s.batch, s.time, 3 * s.heads * s.width}}) < 1e-7);
      }
    });
  }

  TEST_CASE("gradient with rotated queries and keys agrees with finite differences") {
    // Halves of heads that are no multiple of a pack, and some that are; a sequence of several tiles; the widest heads of
    // a kernel.
    for (const Sizes s :
         {Sizes{2, 4, 2, 6}, Sizes{1, 5, 2, 16}, Sizes{1, 67, 1, 4}, Sizes{1, 3, 1, 32}, Sizes{1, 2, 1, 64}}) {
      CAPTURE(s.width);
      ParamStore params(DType::f64);
      const Param& w = params.add("w", {3 * s.heads * s.width, 2}, init::zeros());
      params.allocate(1);
      const auto table = [&](DType dtype, Device device) {
        return make_rope_table(dtype, s.time, s.width, 100, device);
      };
      const RopeTable here = table(DType::f64, {});
      std::optional<RopeTable> there, there_for_halves;
      if (gpu_count() > 0) {
        there = table(DType::f64, {DeviceKind::cuda, 0});
        there_for_halves = table(DType::f32, {DeviceKind::cuda, 0});
      }
      const auto rotated = [&](Tape& t, const std::vector<Var>& v) {
        const bool on_gpu = t.stream().device().is_cuda();
        const RopeTable& used = !on_gpu ? here : t.real_dtype() == DType::f64 ? *there : *there_for_halves;
        AttentionOptions options = s.options();
        options.cos = used.cos;
        options.sin = used.sin;
        return attention(t, linear(t, v[0], {&w}), options);
      };
      for_every_isa([&] { CHECK(gradcheck(rotated, {{s.batch, s.time, 2}}, &params) < 1e-7); });
    }
  }

  TEST_CASE("rotated queries and keys give the result of queries and keys that were rotated before" *
            doctest::test_suite("ops.attention.cuda")) {
    for (const Sizes s : {Sizes{2, 9, 2, 10}, Sizes{1, 70, 2, 64}}) {
      const std::int64_t columns = 3 * s.heads * s.width;
      const OwnedTensor qkv = random_tensor(DType::f64, {s.batch, s.time, columns}, "qkv"),
                        y = OwnedTensor(DType::f64, s.shape()), expected = OwnedTensor(DType::f64, s.shape());
      const OwnedTensor before = converted(qkv, DType::f64);
      const RopeTable table = make_rope_table(DType::f64, s.time, s.width, 100);
      AttentionOptions options = s.options();
      Stream stream;
      ops::rope(stream, before, table.cos, table.sin, 2 * s.heads, ops::Rotation::forward);
      ops::attention_forward(stream, expected, {}, {before, {}, {}}, options);
      const auto with = [&](const Tensor& x, const RopeTable& used, const Tensor& out) {
        options.cos = used.cos;
        options.sin = used.sin;
        Stream on(x.device());
        ops::attention_forward(on, out, {}, {x, {}, {}}, options);
      };
      if (gpu_count() > 0) {
        const Device gpu{DeviceKind::cuda, 0};
        const OwnedTensor there = on_device(qkv, gpu), result(DType::f64, s.shape(), gpu);
        with(there, make_rope_table(DType::f64, s.time, s.width, 100, gpu), result);
        CHECK(difference(on_cpu(result), expected) < 1e-14);
      }
      with(qkv, table, y);
      CHECK(same_bits(y, expected));
    }
  }

  TEST_CASE("the gradient of a long sequence, computed block by block, agrees with finite differences") {
    const Sizes s{1, 131, 1, 2};
    const auto f = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], v[1], v[2], s.options()); };
    CHECK(gradcheck(f, {s.shape(), s.shape(), s.shape()}) < 1e-7);
  }

  TEST_CASE("the f32 gradient agrees with the f64 gradient") {
    for_every_isa([&] {
      for (const Sizes& s : kSizes) {
        CAPTURE(s.time);
        const OwnedTensor q = random_tensor(DType::f64, s.shape(), "q"), k = random_tensor(DType::f64, s.shape(), "k"),
                          v = random_tensor(DType::f64, s.shape(), "v"),
                          dy = random_tensor(DType::f64, s.shape(), "dy");
        const Result exact = run(s, q, k, v, dy);
        const Result single = run(s, converted(q, DType::f32), converted(k, DType::f32), converted(v, DType::f32),
                                  converted(dy, DType::f32));
        CHECK(difference(single.lse, exact.lse) < 1e-6);
        if (s.time == 1) continue;  // dq and dk are then zero up to rounding
        CHECK(difference(single.dq, exact.dq) < 1e-5);
        CHECK(difference(single.dk, exact.dk) < 1e-5);
        CHECK(difference(single.dv, exact.dv) < 1e-5);
      }
    });
  }

  TEST_CASE("a sequence has the same bits alone, in a batch, and on any number of threads") {
    const Sizes s{6, 75, 4, 16}, alone{1, 75, 4, 16};
    const OwnedTensor q = random_tensor(DType::f32, s.shape(), "q"), k = random_tensor(DType::f32, s.shape(), "k"),
                      v = random_tensor(DType::f32, s.shape(), "v"), dy = random_tensor(DType::f32, s.shape(), "dy");
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const Result all = run(s, q, k, v, dy);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto part = [&](const Tensor& t) { return t.slice(b, 1); };
      const Result one = run(alone, part(q), part(k), part(v), part(dy));
      CHECK(same_bits(one.y, part(all.y)));
      CHECK(same_bits(one.dq, part(all.dq)));
      CHECK(same_bits(one.dk, part(all.dk)));
      CHECK(same_bits(one.dv, part(all.dv)));
    }
    omp_set_num_threads(3);
    const Result threads = run(s, q, k, v, dy);
    omp_set_num_threads(before);
    CHECK(same_bits(threads.y, all.y));
    CHECK(same_bits(threads.dq, all.dq));
    CHECK(same_bits(threads.dk, all.dk));
    CHECK(same_bits(threads.dv, all.dv));
  }

  TEST_CASE("scores of any size neither overflow nor vanish") {
    const Sizes s{1, 9, 1, 4};
    const OwnedTensor q = random_tensor(DType::f32, s.shape(), "q"), k = random_tensor(DType::f32, s.shape(), "k"),
                      v = random_tensor(DType::f32, s.shape(), "v"), dy = random_tensor(DType::f32, s.shape(), "dy");
    for (float& x : q->span<float>()) x = -1e4F - x;
    for (float& x : k->span<float>()) x = 1e3F + x;
    const Result r = run(s, q, k, v, dy);
    for (const OwnedTensor* t : {&r.y, &r.dq, &r.dk, &r.dv})
      for (const float x : t->view().span<float>()) CHECK(std::isfinite(x));
  }

  TEST_CASE("a NaN stays a NaN") {
    const Sizes s{1, 9, 1, 4};
    const OwnedTensor q = random_tensor(DType::f32, s.shape(), "q"), k = random_tensor(DType::f32, s.shape(), "k"),
                      v = random_tensor(DType::f32, s.shape(), "v");
    k->data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    const Result r = run(s, q, k, v, random_tensor(DType::f32, s.shape(), "dy"));
    for (const float x : r.y->span<float>()) CHECK(std::isnan(x));
    CHECK(std::isnan(r.dq->data<float>()[0]));
  }

  TEST_CASE("shapes that do not fit are reported") {
    Stream stream;
    const OwnedTensor y(DType::f32, {2, 3, 8}), q(DType::f32, {2, 3, 24}), k(DType::f32, {2, 3, 7});
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, {q, {}, {}}, with_heads(3)),
                         "attention: 3 heads do not divide the 8 columns of y", Error);
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, {y, k, y}, with_heads(2)),
                         "attention: y is (2, 3, 8), so q, k and v must be too, not (2, 3, 7)", Error);
    const RopeTable table = make_rope_table(DType::f32, 3, 6, 100);
    AttentionOptions rotated = with_heads(2);
    rotated.cos = table.cos;
    rotated.sin = table.sin;
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, {q, {}, {}}, rotated),
                         doctest::Contains("a table with half the 4 columns of a head, not (3, 3)"), Error);
  }
}
