#include "lockstep/ops/causal_attention.hpp"

#include "lockstep/nn/causal_attention.hpp"
#include "ops/every_isa.hpp"
#include "ops/timed_sequences.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/test.hpp"

using ops::Dropout;
using ops::TimeBuckets;

namespace {

struct Case : TimedSequences {
  using TimedSequences::TimedSequences;
  std::vector<std::int64_t> first_query;
  ops::CausalAttention attention(std::int64_t heads) const {
    return {.rows = {offsets, samples}, .heads = heads, .dropout = {}, .first_query = first_query};
  }
};

ops::CausalAttention on_tape(Tape& t, ops::CausalAttention a) {
  a.rows = test::on_tape(t, a.rows);
  a.first_query = test::on_tape(t, a.first_query);
  return a;
}

std::uint32_t draw(const Dropout& d, std::uint32_t site, std::uint64_t sample, std::uint64_t i, int bits) {
  Dropout at = d;
  at.site.id += site;
  const std::uint64_t per_word = 32 / static_cast<std::uint64_t>(bits), word = i / per_word, group = word / 64;
  const std::uint64_t lane = word % 16, block = lane / 2 + 8 * (lane % 2);
  const std::uint32_t drawn = at.draws(sample).block(16 * group + block)[word % 64 / 16];
  return drawn >> (i % per_word * static_cast<std::uint64_t>(bits)) & ((1u << bits) - 1u);
}
/// Each query has its own range of element draws, 2^28 groups after the previous one.
constexpr std::uint64_t kQuery = std::uint64_t{1} << 28;

/// The definition: dense, query by query.
OwnedTensor by_definition(const Tensor& q, const Tensor& kv, const ops::CausalAttention& a, const TimeBuckets& time) {
  OwnedTensor y(DType::f64, q.shape());
  const std::int64_t columns = q.columns(), width = columns / a.heads;
  const auto words = static_cast<std::uint64_t>((width + 63) / 64);
  for (std::size_t b = 0; b < a.rows.samples.size(); ++b)
    for (std::int64_t head = 0; head < a.heads; ++head) {
      const std::int64_t base = a.rows.offsets[b], length = a.rows.offsets[b + 1] - base;
      const std::uint64_t sample = a.rows.samples[b];
      const auto site = static_cast<std::uint32_t>(head);
      const auto cell = [&](const Tensor& t, std::int64_t row, std::int64_t c) {
        return t.data<double>()[row * t.columns() + head * width + c];
      };
      const auto table = [&](int side, std::int64_t i, std::int64_t j, std::int64_t c) {
        if (!time) return 0.0;
        const std::int64_t gap = time.times[to_size(base + i)] - time.times[to_size(base + j)];
        const std::int64_t r = std::min(gap, time.keys.rows() - 1);
        const double value = cell(side == 0 ? time.keys : time.values, r, c);
        if (!time.dropout) return value;
        if (time.drop == TimeBuckets::Drop::table) {
          const auto threshold = static_cast<std::uint32_t>(time.dropout.rate * 65536 + 0.5);
          const auto index = static_cast<std::uint64_t>(r * columns + head * width + c);
          return draw(time.dropout, static_cast<std::uint32_t>(side), sample, index, 16) >= threshold
                     ? value * 65536 / (65536 - threshold)
                     : 0;
        }
        const auto threshold = static_cast<std::uint32_t>(time.dropout.rate * 256 + 0.5);
        const std::uint64_t word = (2 * static_cast<std::uint64_t>(j) + static_cast<std::uint64_t>(side)) * words;
        const std::uint64_t index =
            static_cast<std::uint64_t>(i) * kQuery * 256 + 64 * word + static_cast<std::uint64_t>(c);
        return draw(time.dropout, site, sample, index, 8) >= threshold ? value * 256 / (256 - threshold) : 0;
      };
      for (std::int64_t i = a.first_query.empty() ? 0 : a.first_query[b]; i < length; ++i) {
        const std::int64_t keys = std::isfinite(a.fill) ? length : i + 1;
        std::vector<double> p(to_size(keys));
        double top = -1e300, sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double s = 0;
          for (std::int64_t c = 0; c < width && j <= i; ++c)
            s += cell(q, base + i, c) * (cell(kv, base + j, c) + table(0, i, j, c));
          p[to_size(j)] = j <= i ? s / std::sqrt(static_cast<double>(width)) : a.fill;
          top = std::max(top, p[to_size(j)]);
        }
        for (double& x : p) sum += x = std::exp(x - top);
        for (std::int64_t j = 0; j < keys; ++j) {
          double weight = p[to_size(j)] / sum;
          if (a.dropout) {
            const auto threshold = static_cast<std::uint32_t>(a.dropout.rate * 65536 + 0.5);
            const std::uint64_t index = static_cast<std::uint64_t>(i) * kQuery * 128 + static_cast<std::uint64_t>(j);
            weight = draw(a.dropout, site, sample, index, 16) >= threshold ? weight * 65536 / (65536 - threshold) : 0;
          }
          for (std::int64_t c = 0; c < width; ++c)
            y->data<double>()[(base + i) * columns + head * width + c] +=
                weight * (cell(kv, base + j, columns + c) + (j <= i ? table(1, i, j, c) : 0));
        }
      }
    }
  return y;
}

struct Variant {
  const char* name;
  bool timed, drop_probabilities, drop_times;
  TimeBuckets::Drop drop;
};
constexpr Variant kVariants[] = {{"plain", false, false, false, TimeBuckets::Drop::element},
                                 {"plain, dropped", false, true, false, TimeBuckets::Drop::element},
                                 {"times", true, false, false, TimeBuckets::Drop::element},
                                 {"times by element", true, true, true, TimeBuckets::Drop::element},
                                 {"times by table", true, true, true, TimeBuckets::Drop::table}};
const Dropout kDrop{.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};
const Dropout kTimeDrop{.rate = 0.25, .seed = 3, .step = 2, .site = "times"};

struct Inputs {
  OwnedTensor q, kv, keys, values;
  Inputs(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t buckets)
      : q(random_tensor(dtype, {rows, columns}, "q")),
        kv(random_tensor(dtype, {rows, 2 * columns}, "kv")),
        keys(random_tensor(dtype, {buckets, columns}, "tk")),
        values(random_tensor(dtype, {buckets, columns}, "tv")) {}
  TimeBuckets time(const Variant& variant, const Case& c) const {
    if (!variant.timed) return {};
    return {keys, values, c.times, variant.drop, variant.drop_times ? kTimeDrop : Dropout{}};
  }
};
}  // namespace

TEST_SUITE("ops.causal_attention") {
  TEST_CASE("every variant agrees with the definition, in both precisions, on every instruction set") {
    Stream stream;
    for_every_isa([&] {
      for (const auto& [lengths, columns, heads] :
           {std::tuple{std::vector<std::int64_t>{1, 70, 0, 17}, 12, 2}, {{60, 3}, 50, 1}, {{20, 5}, 140, 2}}) {
        const Case c(lengths);
        for (const Variant& variant : kVariants) {
          CAPTURE(variant.name);
          CAPTURE(columns);
          ops::CausalAttention a = c.attention(heads);
          if (variant.drop_probabilities) a.dropout = kDrop;
          const Inputs x64(DType::f64, c.rows(), columns, 9), x32(DType::f32, c.rows(), columns, 9);
          const OwnedTensor y64(DType::f64, {c.rows(), columns}), y32(DType::f32, {c.rows(), columns});
          ops::causal_attention_forward(stream, y64, {}, x64.q, x64.kv, a, x64.time(variant, c));
          ops::causal_attention_forward(stream, y32, {}, x32.q, x32.kv, a, x32.time(variant, c));
          CHECK(difference(y64, by_definition(x64.q, x64.kv, a, x64.time(variant, c))) < 1e-12);
          CHECK(difference(y32, y64) < 2e-5);
        }
      }
    });
  }

  TEST_CASE("long groups of equal times, and rows with many times, agree with the definition") {
    Stream stream;
    // Heads of 10 and of 20 channels.
    for (const auto& [group, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 20}, {1, 40}, {2, 20}, {5, 20}, {40, 20}}) {
      CAPTURE(group);
      CAPTURE(columns);
      Case c({130, 37});
      for (std::size_t i = 0; i < c.times.size(); ++i) c.times[i] = static_cast<std::int64_t>(i % 130) / group;
      for_every_isa([&] {
        constexpr std::int64_t kBuckets = 60;
        const auto passes = [&](DType dtype) {
          const Inputs x(dtype, c.rows(), columns, kBuckets);
          const TimeBuckets time{x.keys, x.values, c.times, TimeBuckets::Drop::table, kTimeDrop};
          ops::CausalAttention a = c.attention(2);
          a.dropout = kDrop;
          const Shape rows{c.rows(), columns}, table{kBuckets, columns};
          std::vector<OwnedTensor> out;
          for (const Shape& shape : {rows, rows, Shape{c.rows(), 2 * columns}, table, table})
            out.emplace_back(dtype, shape);
          const OwnedTensor logsum(dtype, {c.rows(), 2}), dy = random_tensor(dtype, rows, "dy");
          ops::causal_attention_forward(stream, out[0], logsum, x.q, x.kv, a, time);
          ops::causal_attention_backward(stream, {out[1]}, {out[2]}, {out[3]}, {out[4]}, dy, out[0], x.q, x.kv, logsum,
                                         a, time);
          if (dtype == DType::f64) CHECK(difference(out[0], by_definition(x.q, x.kv, a, time)) < 1e-12);
          return out;
        };
        const std::vector<OwnedTensor> f64 = passes(DType::f64), f32 = passes(DType::f32);
        // Gradients of tables add up to 167 terms, each with a few roundings.
        for (std::size_t i = 0; i < f64.size(); ++i) CHECK(difference(f32[i], f64[i]) < 5e-5);
      });
    }
  }

  TEST_CASE("gradients agree with finite differences") {
    const Case c({1, 6, 3});
    for (const auto& [columns, heads] : {std::pair{6, 2}, {5, 1}}) {
      for (const Variant& variant : kVariants) {
        CAPTURE(variant.name);
        ops::CausalAttention a = c.attention(heads);
        if (variant.drop_probabilities) a.dropout = kDrop;
        ParamStore params(DType::f64);
        const Param &keys = params.add("keys", {4, columns}, init::normal(1)),
                    &values = params.add("values", {4, columns}, init::normal(1));
        params.allocate(1);
        TimeTables time;
        if (variant.timed) time = {&keys, &values, c.times, variant.drop, variant.drop_times ? kTimeDrop : Dropout{}};
        for_every_isa([&] {
          CHECK(gradcheck(
                    [&](Tape& t, const std::vector<Var>& x) {
                      TimeTables there = time;
                      there.times = on_tape(t, time.times);
                      return causal_attention(t, x[0], x[1], on_tape(t, a), there);
                    },
                    {{c.rows(), columns}, {c.rows(), 2 * columns}}, variant.timed ? &params : nullptr) < 1e-7);
        });
      }
    }
  }

  TEST_CASE("one array of queries, keys and values gives the bits of queries apart from keys and values") {
    const Case c({70, 0, 17});
    for (const auto& [columns, heads] : {std::pair<std::int64_t, std::int64_t>{12, 2}, {50, 1}})
      for (const Variant& variant : kVariants) {
        CAPTURE(variant.name);
        ops::CausalAttention a = c.attention(heads);
        if (variant.drop_probabilities) a.dropout = kDrop;
        const Inputs x(DType::f32, c.rows(), columns, 9);
        const TimeBuckets time = x.time(variant, c);
        const Shape shape{c.rows(), columns};
        const OwnedTensor dy = random_tensor(DType::f32, shape, "dy");
        const auto together = [&](const Tensor& q, const Tensor& kv) {
          OwnedTensor all(DType::f32, {q.rows(), q.columns() + kv.columns()});
          for (std::int64_t m = 0; m < q.rows(); ++m) {
            float* row = all->data<float>() + m * all->columns();
            row = std::copy_n(q.data<float>() + m * q.columns(), q.columns(), row);
            std::copy_n(kv.data<float>() + m * kv.columns(), kv.columns(), row);
          }
          return all;
        };
        Stream stream;
        const auto run = [&](const Tensor& q, const Tensor& kv, const Tensor& y, Target dq, Target dkv) {
          const OwnedTensor logsum(DType::f32, {c.rows(), heads}), dkeys(DType::f32, time.keys.shape()),
              dvalues(DType::f32, time.values.shape());
          ops::causal_attention_forward(stream, y, logsum, q, kv, a, time);
          ops::causal_attention_backward(stream, dq, dkv, {dkeys}, {dvalues}, dy, y, q, kv, logsum, a, time);
        };
        const OwnedTensor qkv = together(x.q, x.kv), y(DType::f32, shape), y_together(DType::f32, shape);
        const auto stored_over = [](const Tensor& like) { return random_tensor(DType::f32, like.shape(), "old"); };
        const OwnedTensor dq = stored_over(x.q), dkv = stored_over(x.kv), dqkv = stored_over(qkv);
        run(x.q, x.kv, y, {dq, false}, {dkv, false});
        run(qkv, {}, y_together, {dqkv, false}, {});
        CHECK(same_bits(y, y_together));
        CHECK(same_bits(dqkv, together(dq, dkv)));
        if (variant.timed || columns > 12) continue;
        // On a GPU too, by gradcheck().
        const auto whole = [&](Tape& t, const std::vector<Var>& v) {
          return causal_attention(t, v[0], {}, on_tape(t, a));
        };
        CHECK(gradcheck(whole, {{c.rows(), 3 * columns}}) < 1e-7);
      }
  }

  TEST_CASE("a finite fill admits later keys; rows before the first query have no result and no gradient") {
    Stream stream;
    Case c({5, 40});
    for (const double fill : {-2.0, -1000.0}) {
      ops::CausalAttention a = c.attention(2);
      a.fill = fill;
      const Inputs x(DType::f64, c.rows(), 6, 3);
      const OwnedTensor y(DType::f64, {c.rows(), 6});
      ops::causal_attention_forward(stream, y, {}, x.q, x.kv, a);
      CHECK(difference(y, by_definition(x.q, x.kv, a, {})) < 1e-12);
    }
    Case small({2, 4});
    ops::CausalAttention a = small.attention(2);
    a.fill = -1;
    const Shape shape{6, 4};
    const auto attend = [&](Tape& t, const std::vector<Var>& x) {
      return causal_attention(t, x[0], x[1], on_tape(t, a));
    };
    CHECK(gradcheck(attend, {shape, {6, 8}}) < 1e-7);
    a = small.attention(2);
    small.first_query = {1, 2};
    a.first_query = small.first_query;
    CHECK(gradcheck(attend, {shape, {6, 8}}) < 1e-7);
    const Inputs x(DType::f64, 6, 4, 3);
    const OwnedTensor y(DType::f64, shape);
    ops::causal_attention_forward(stream, y, {}, x.q, x.kv, a, {x.keys, x.values, small.times});
    CHECK(difference(y, by_definition(x.q, x.kv, a, {x.keys, x.values, small.times})) < 1e-12);
  }

  TEST_CASE("later rows never change earlier results, and other sequences never change any, bit for bit") {
    Stream stream;
    const Case c({90, 33}), alone({33}), shorter({71});
    for_every_isa([&] {
      for (const Variant& variant : kVariants) {
        CAPTURE(variant.name);
        const Inputs x(DType::f32, c.rows(), 20, 9);
        ops::CausalAttention a = c.attention(2), first = shorter.attention(2), second = alone.attention(2);
        if (variant.drop_probabilities) a.dropout = first.dropout = second.dropout = kDrop;
        const OwnedTensor y(DType::f32, {c.rows(), 20}), head(DType::f32, {71, 20}), tail(DType::f32, {33, 20});
        ops::causal_attention_forward(stream, y, {}, x.q, x.kv, a, x.time(variant, c));
        const auto part = [&](std::int64_t from, std::int64_t count, const ops::CausalAttention& b, const Tensor& out) {
          TimeBuckets time = x.time(variant, c);
          if (variant.timed) time.times = time.times.subspan(to_size(from), to_size(count));
          ops::causal_attention_forward(stream, out, {}, x.q->slice(from, count), x.kv->slice(from, count), b, time);
        };
        part(0, 71, first, head);
        CHECK(same_bits(head, y->slice(0, 71)));
        const std::vector<std::uint64_t> samples = {c.samples[1]};
        second.rows.samples = samples;
        part(90, 33, second, tail);
        CHECK(same_bits(tail, y->slice(90, 33)));
      }
    });
  }

  TEST_CASE("a NaN stays a NaN, and wrong shapes or times are reported") {
    Stream stream;
    const Case c({4});
    const Inputs x(DType::f32, 4, 6, 3);
    const OwnedTensor y(DType::f32, {4, 6});
    x.kv->data<float>()[25] = NAN;
    ops::causal_attention_forward(stream, y, {}, x.q, x.kv, c.attention(2));
    CHECK(!std::isnan(y->data<float>()[6]));
    CHECK(std::isnan(y->data<float>()[12]));
    CHECK_THROWS_WITH_AS(ops::causal_attention_forward(stream, y, {}, x.q, x.kv, c.attention(4)),
                         "causal_attention: 4 heads do not divide 6 channels", Error);
    const std::vector<std::int64_t> backwards = {1, 2, 1, 3};
    CHECK_THROWS_WITH_AS(
        ops::causal_attention_forward(stream, y, {}, x.q, x.kv, c.attention(2), {x.keys, x.values, backwards}),
        "causal_attention: the times of sequence 0 go backwards, from 2 to 1", Error);
  }
}
