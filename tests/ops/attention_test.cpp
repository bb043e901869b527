#include "lockstep/ops/attention.hpp"

#include "lockstep/nn/attention.hpp"
#include "lockstep/nn/linear.hpp"
#include "lockstep/ops/rope.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

namespace {
struct Heads {
  std::int64_t batch, time, heads, width;
  Shape shape() const { return {batch, time, heads * width}; }
  Shape input() const { return {batch, time, 3 * heads * width}; }
  AttentionOptions options() const {
    AttentionOptions o{.heads = heads, .scale = 1 / std::sqrt(static_cast<double>(width))};
    return o;
  }
};
AttentionOptions with_heads(std::int64_t heads) {
  AttentionOptions o{.heads = heads};
  return o;
}
struct Result {
  OwnedTensor y, lse, dqkv;
};
Result run(const Heads& s, const Tensor& qkv, const Tensor& dy) {
  const DType type = qkv.dtype();
  Result r{OwnedTensor(type, s.shape()), OwnedTensor(type, {s.batch, s.heads, s.time}), OwnedTensor(type, s.input())};
  Stream stream;
  ops::attention_forward(stream, r.y, r.lse, qkv, s.options());
  ops::attention_backward(stream, {r.dqkv, false}, dy, r.y, r.lse, qkv, s.options());
  return r;
}
}  // namespace

TEST_SUITE("ops.attention") {
  TEST_CASE("definition, gradients, bits and devices, with and without dropout") {
    for (const double rate : {0.0, 0.25}) {
      CAPTURE(rate);
      const auto run = [&](Place& p, Int batch, Int time, Int heads, Int width) {
        std::vector<std::uint64_t> samples;
        for (Int b = 0; b < batch; ++b) samples.push_back(static_cast<std::uint64_t>(5 + 3 * b));
        AttentionOptions options = Heads{batch, time, heads, width}.options();
        options.dropout = {.rate = rate, .seed = 3, .step = 4, .site = "test"};
        options.samples = p.host(samples);
        const Shape one{batch, time, heads * width}, all{batch, time, 3 * heads * width};
        const Tensor qkv = p.in("qkv", all), y = p.out("y", one), lse = p.real_out("lse", {batch, heads, time});
        ops::attention_forward(p.stream, y, lse, qkv, options);
        ops::attention_forward(p.stream, p.out("y again", one), {}, qkv, options);
        ops::attention_backward(p.stream, p.to("dqkv", all), p.in("dy", one), y, lse, qkv, options);
      };
      const auto definition = [&](Plain& r, Int batch, Int time, Int heads, Int width) {
        const auto qkv = r.in("qkv"), lse = r.out("lse");
        const auto y = rate == 0 ? r.out("y") : Plain::Array{};
        for (Int b = 0; b < batch; ++b)
          for (Int h = 0; h < heads; ++h)
            for (Int i = 0; i < time; ++i) {
              const auto at = [&](Int part, Int t, Int c) { return qkv(b, t, (part * heads + h) * width + c); };
              std::vector<double> p(to_size(time));
              double sum = 0;
              for (Int j = 0; j < time; ++j) {
                double product = 0;
                for (Int c = 0; c < width; ++c) product += at(0, i, c) * at(1, j, c);
                sum += p[to_size(j)] = std::exp(product / std::sqrt(static_cast<double>(width)));
              }
              lse(b, h, i) = std::log(sum);
              for (Int j = 0; j < time && y; ++j)
                for (Int c = 0; c < width; ++c) y(b, i, h * width + c) += p[to_size(j)] / sum * at(2, j, c);
            }
      };
      CHECK(faults(run, definition, {{2, 7, 3, 5}, {3, 8, 4, 16}, {1, 31, 2, 64}, {2, 67, 1, 33}, {0, 4, 2, 3}},
                   {.f32 = 2e-6,
                    .f64 = 1e-14,
                    .rows = rate == 0,  // draws are keyed by samples
                    // The last one's gradient is computed block by block.
                    .cpu_sizes = {{1, 1, 1, 1}, {6, 75, 4, 16}, {1, 200, 1, 12}, {1, 131, 1, 2}},
                    .gpu_sizes = {{1, 200, 2, 12}, {1, 40, 1, 100}, {1, 161, 1, 50}, {1, 35, 1, 128}}}) == "");
    }
  }

  TEST_CASE("gradient of the record agrees with finite differences; one position agrees with the CPU") {
    for_every_isa([&] {
      const Heads s{2, 7, 3, 5};
      const auto f = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], s.options()); };
      CHECK(gradcheck(f, {s.input()}) < 1e-7);
    });
    for (const Heads s : {Heads{1, 1, 1, 1}, Heads{0, 2, 1, 3}}) {
      const auto f = [&](Tape& t, const std::vector<Var>& v) { return attention(t, v[0], s.options()); };
      CHECK(gradcheck(f, {s.input()}) < 1e-7);
    }
  }

  TEST_CASE("gradient with rotated queries and keys agrees with finite differences") {
    // Half heads that fill whole packs and that do not; a sequence of several tiles; the widest heads of a kernel.
    for (const Heads s :
         {Heads{2, 4, 2, 6}, Heads{1, 5, 2, 16}, Heads{1, 67, 1, 4}, Heads{1, 3, 1, 32}, Heads{1, 2, 1, 64}}) {
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
    for (const Heads s : {Heads{2, 9, 2, 10}, Heads{1, 70, 2, 64}}) {
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

  TEST_CASE("scores of any size neither overflow nor vanish") {
    const Heads s{1, 9, 1, 4};
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
    const Heads s{1, 9, 1, 4};
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
