// Attention of halves on tensor cores against the CPU in f64, at the lengths where its blocks, steps and tiles change.

#include "lockstep/nn/attention.hpp"
#include "lockstep/ops/attention.hpp"
#include "lockstep/ops/causal_attention.hpp"
#include "ops/on_both.hpp"
#include "ops/timed_sequences.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kLengths[] = {1, 15, 16, 17, 48, 49, 64, 65, 81, 82, 96, 97, 128, 200};
constexpr std::int64_t kWidths[] = {64, 8, 50, 32, 128, 5, 20};
const ops::Dropout kDrop{.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};

/// All options occur with each width as the lengths go by.
struct Options {
  std::int64_t time, width;
  bool dropped, rotated, added;
  explicit Options(std::size_t i)
      : time(kLengths[i % std::size(kLengths)]),
        width(kWidths[(i + i / std::size(kLengths)) % std::size(kWidths)]),
        dropped(i % 2 == 1),
        rotated(i % 3 == 0 && width % 2 == 0 && time > 1),
        added(!rotated && (i % 4 == 1 || time == 1)) {}  // with one weight a gradient is only the rounding of y
};
constexpr std::size_t kCases = 2 * std::size(kLengths);

/// Gradients of sequences together, in bf16 on the GPU: y, dq and dkv.
std::vector<OwnedTensor> causal(const std::vector<std::int64_t>& lengths, const Tensor& q, const Tensor& kv,
                                const Tensor& dy) {
  const TimedSequences s(lengths);
  Place p(DType::bf16, {DeviceKind::cuda, 0});
  const Shape rows{s.rows(), q.columns()};
  std::vector<std::uint64_t> samples;
  for (const std::int64_t length : lengths) samples.push_back(static_cast<std::uint64_t>(length));
  ops::CausalAttention a;
  a.rows = {p.host(s.offsets), p.host(samples)};
  a.heads = 2;
  a.dropout = kDrop;
  const Tensor on_q = p.put(q), on_kv = p.put(kv), y = p.out("y", rows), logsum = p.real_out("logsum", {s.rows(), 2}),
               dq = p.out("dq", rows), dkv = p.out("dkv", {s.rows(), 2 * q.columns()});
  ops::causal_attention_forward(p.stream, y, logsum, on_q, on_kv, a);
  ops::causal_attention_backward(p.stream, {dq, false}, {dkv, false}, {}, {}, p.put(dy), y, on_q, on_kv, logsum, a);
  p.stream.synchronize();
  std::vector<OwnedTensor> results;
  for (const Tensor& x : {y, dq, dkv}) results.push_back(on_cpu(x));
  return results;
}

}  // namespace

TEST_SUITE("ops.half_attention.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("attention of halves agrees with f64 at every division of its work") {
    for (std::size_t i = 0; i < kCases; ++i) {
      const Options o(i);
      CAPTURE(o.time);
      CAPTURE(o.width);
      CAPTURE(o.dropped);
      CAPTURE(o.rotated);
      const std::vector<std::uint64_t> samples = {5, 8};
      std::deque<RopeTable> tables;
      halves_agree([&](Place& p) {
        ops::AttentionOptions options{.heads = 2, .scale = 1 / std::sqrt(static_cast<double>(o.width))};
        if (o.dropped) options.dropout = kDrop;
        options.samples = p.host(samples);
        if (o.rotated) {
          tables.push_back(make_rope_table(p.real(), o.time, o.width, 100, p.stream.device()));
          options.cos = tables.back().cos;
          options.sin = tables.back().sin;
        }
        const Shape one{2, o.time, 2 * o.width}, all{2, o.time, 6 * o.width};
        const Tensor qkv = p.in("qkv", all), y = p.out("y", one), lse = p.real_out("lse", {2, 2, o.time});
        ops::attention_forward(p.stream, y, lse, qkv, options);
        ops::attention_backward(p.stream, {p.out("dqkv", all), o.added}, p.in("dy", one), y, lse, qkv, options);
      });
    }
  }

  TEST_CASE("causal attention of halves agrees with f64 at every division of its work") {
    for (std::size_t i = 0; i < kCases; ++i) {
      const Options o(i);
      CAPTURE(o.time);
      CAPTURE(o.width);
      CAPTURE(o.dropped);
      const TimedSequences s({o.time, std::min<std::int64_t>(o.time, 19)});
      const Shape rows{s.rows(), 2 * o.width};
      const std::vector<std::int64_t> first_query = {o.time / 3, 0};
      halves_agree(
          [&](Place& p) {
            ops::CausalAttention a;
            a.rows = {p.host(s.offsets), p.host(s.samples)};
            a.heads = 2;
            if (o.dropped) a.dropout = kDrop;
            if (i % 5 == 2) a.fill = -1;
            if (i % 5 == 3) a.first_query = p.host(first_query);
            const Tensor q = p.in("q", rows), kv = p.in("kv", {s.rows(), 4 * o.width}), y = p.out("y", rows),
                         logsum = p.real_out("logsum", {s.rows(), 2});
            fill_zero(p.stream, logsum);  // rows without a query have none
            ops::causal_attention_forward(p.stream, y, logsum, q, kv, a);
            ops::causal_attention_backward(p.stream, {p.out("dq", rows), o.added}, {p.out("dkv", kv.shape()), o.added},
                                           {}, {}, p.in("dy", rows), y, q, kv, logsum, a);
          },
          0.02, 0.0025);
    }
  }

  TEST_CASE("a sequence of halves has the same bits beside sequences of any length") {
    const std::int64_t columns = 40;
    const auto array = [&](std::int64_t width, const char* name) {
      return random_tensor(DType::bf16, {33 + 90 + 130, width}, name);
    };
    const OwnedTensor q = array(columns, "q"), kv = array(2 * columns, "kv"), dy = array(columns, "dy");
    const auto with = [&](const std::vector<std::int64_t>& lengths, std::int64_t rows) {
      return causal(lengths, q->slice(0, rows), kv->slice(0, rows), dy->slice(0, rows));
    };
    // Alone, with one block for each head, and with several.
    const auto alone = with({33}, 33), one_block = with({33, 90}, 123), several = with({33, 90, 130}, 253);
    for (std::size_t k = 0; k < alone.size(); ++k) {
      CHECK(same_bits(alone[k], one_block[k]->slice(0, 33)));
      CHECK(same_bits(one_block[k], several[k]->slice(0, 123)));
    }
  }
}
