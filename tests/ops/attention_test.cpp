#include "lockstep/ops/attention.hpp"

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/rope.hpp"
#include "lockstep/ops/rope.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/test.hpp"

namespace {
struct Sizes {
  std::int64_t batch, time, heads, width;
  Shape shape() const { return {batch, time, heads * width}; }
  Shape input() const { return {batch, time, 3 * heads * width}; }
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
void reference(const Sizes& s, const Tensor& y, const Tensor& qkv) {
  const std::int64_t columns = s.heads * s.width;
  const auto at = [&](int part, std::int64_t b, std::int64_t i, std::int64_t c) {
    return qkv.data<double>()[((b * s.time + i) * 3 + part) * columns + c];
  };
  std::vector<double> p(to_size(s.time));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.time; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < s.time; ++j) {
          double product = 0;
          for (std::int64_t c = h * s.width; c < (h + 1) * s.width; ++c) product += at(0, b, i, c) * at(1, b, j, c);
          sum += p[to_size(j)] = std::exp(s.options().scale * product);
        }
        for (std::int64_t c = h * s.width; c < (h + 1) * s.width; ++c) {
          double value = 0;
          for (std::int64_t j = 0; j < s.time; ++j) value += p[to_size(j)] / sum * at(2, b, j, c);
          y.data<double>()[(b * s.time + i) * columns + c] = value;
        }
      }
}

struct Result {
  OwnedTensor y, lse, dqkv;
};
Result run(const Sizes& s, const Tensor& qkv, const Tensor& dy) {
  const DType type = qkv.dtype();
  Result r{OwnedTensor(type, s.shape()), OwnedTensor(type, {s.batch, s.heads, s.time}), OwnedTensor(type, s.input())};
  Stream stream;
  ops::attention_forward(stream, r.y, r.lse, qkv, s.options());
  ops::attention_backward(stream, {r.dqkv, false}, dy, r.y, r.lse, qkv, s.options());
  return r;
}
}  // namespace

TEST_SUITE("ops.attention") {
  TEST_CASE("forward agrees with the definition") {
    for_every_isa([&] {
      for (const Sizes& s : kSizes)
        for (const DType type : {DType::f32, DType::f64}) {
          CAPTURE(s.time);
          CAPTURE(s.width);
          const OwnedTensor qkv = random_tensor(type, s.input(), "qkv"), y(type, s.shape()),
                            expected(DType::f64, s.shape());
          Stream stream;
          ops::attention_forward(stream, y, {}, qkv, s.options());
          reference(s, expected, converted(qkv, DType::f64));
          CHECK(difference(y, expected) < (type == DType::f32 ? 2e-6 : 1e-14));
        }
    });
  }

  TEST_CASE("gradient agrees with finite differences") {
    for_every_isa([&] {
      for (const Sizes s : {Sizes{2, 7, 3, 5}, Sizes{1, 1, 1, 1}, Sizes{1, 8, 2, 16}, Sizes{0, 2, 1, 3}}) {
        CAPTURE(s.time);
        const auto f = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], s.options()); };
        CHECK(gradcheck(f, {s.input()}) < 1e-7);
      }
    });
  }

  TEST_CASE("gradient with rotated queries and keys agrees with finite differences") {
    // Half heads that fill whole packs and that do not; a sequence of several tiles; the widest heads of a kernel.
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

  TEST_CASE("rotation inside attention gives the result of attention on rotated queries and keys" *
            doctest::test_suite("ops.attention.cuda")) {
    for (const Sizes s : {Sizes{2, 9, 2, 10}, Sizes{1, 70, 2, 64}}) {
      const OwnedTensor qkv = random_tensor(DType::f64, s.input(), "qkv"), y = OwnedTensor(DType::f64, s.shape()),
                        expected = OwnedTensor(DType::f64, s.shape());
      const OwnedTensor before = converted(qkv, DType::f64);
      const RopeTable table = make_rope_table(DType::f64, s.time, s.width, 100);
      AttentionOptions options = s.options();
      Stream stream;
      ops::rope(stream, before, table.cos, table.sin, 2 * s.heads, ops::Rotation::forward);
      ops::attention_forward(stream, expected, {}, before, options);
      const auto with = [&](const Tensor& x, const RopeTable& used, const Tensor& out) {
        options.cos = used.cos;
        options.sin = used.sin;
        Stream on(x.device());
        ops::attention_forward(on, out, {}, x, options);
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
    const auto f = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], s.options()); };
    CHECK(gradcheck(f, {s.input()}) < 1e-7);
  }

  TEST_CASE("the f32 gradient agrees with the f64 gradient") {
    for_every_isa([&] {
      for (const Sizes& s : kSizes) {
        CAPTURE(s.time);
        const OwnedTensor qkv = random_tensor(DType::f64, s.input(), "qkv"),
                          dy = random_tensor(DType::f64, s.shape(), "dy");
        const Result exact = run(s, qkv, dy), single = run(s, converted(qkv, DType::f32), converted(dy, DType::f32));
        CHECK(difference(single.lse, exact.lse) < 1e-6);
        CHECK(difference(single.dqkv, exact.dqkv) < 1e-5);
      }
    });
  }

  TEST_CASE("a sequence has the same bits alone, in a batch, and on any number of threads") {
    const Sizes s{6, 75, 4, 16}, alone{1, 75, 4, 16};
    const OwnedTensor qkv = random_tensor(DType::f32, s.input(), "qkv"),
                      dy = random_tensor(DType::f32, s.shape(), "dy");
    const auto with_threads = [&](int count) {
      const Threads limit(count);
      return run(s, qkv, dy);
    };
    const Result all = with_threads(1), threads = with_threads(3);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const Result one = run(alone, qkv->slice(b, 1), dy->slice(b, 1));
      CHECK(same_bits(one.y, all.y->slice(b, 1)));
      CHECK(same_bits(one.dqkv, all.dqkv->slice(b, 1)));
    }

    CHECK(same_bits(threads.y, all.y));
    CHECK(same_bits(threads.dqkv, all.dqkv));
  }

  TEST_CASE("scores of any size neither overflow nor vanish") {
    const Sizes s{1, 9, 1, 4};
    const OwnedTensor qkv = random_tensor(DType::f32, s.input(), "qkv"),
                      dy = random_tensor(DType::f32, s.shape(), "dy");
    for (std::int64_t row = 0; row < s.time; ++row)
      for (std::int64_t c = 0; c < 4; ++c) {
        float* at = qkv->data<float>() + 12 * row + c;
        at[0] = -1e4F - at[0];
        at[4] = 1e3F + at[4];
      }
    const Result r = run(s, qkv, dy);
    for (const OwnedTensor* t : {&r.y, &r.dqkv})
      for (const float x : t->view().span<float>()) CHECK(std::isfinite(x));
  }

  TEST_CASE("a NaN stays a NaN") {
    const Sizes s{1, 9, 1, 4};
    const OwnedTensor qkv = random_tensor(DType::f32, s.input(), "qkv");
    qkv->data<float>()[12 + 4 + 1] = std::numeric_limits<float>::quiet_NaN();  // of a key
    const Result r = run(s, qkv, random_tensor(DType::f32, s.shape(), "dy"));
    for (const float x : r.y->span<float>()) CHECK(std::isnan(x));
    CHECK(std::isnan(r.dqkv->data<float>()[0]));
  }

  TEST_CASE("shapes that do not fit are reported") {
    Stream stream;
    const OwnedTensor y(DType::f32, {2, 3, 8}), q(DType::f32, {2, 3, 24});
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, q, with_heads(3)),
                         "attention: 3 heads do not divide the 8 columns of y", Error);
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, y, with_heads(2)),
                         "attention: y is (2, 3, 8), so q, k, v side by side must be (2, 3, 24), not (2, 3, 8)", Error);
    const RopeTable table = make_rope_table(DType::f32, 3, 6, 100);
    AttentionOptions rotated = with_heads(2);
    rotated.cos = table.cos;
    rotated.sin = table.sin;
    CHECK_THROWS_WITH_AS(ops::attention_forward(stream, y, {}, q, rotated),
                         doctest::Contains("a table with half the 4 columns of a head, not (3, 3)"), Error);
  }
}
