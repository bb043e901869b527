#include "lockstep/ops/causal_attention.hpp"

#include "lockstep/nn/attention.hpp"
#include "ops/every_isa.hpp"
#include "ops/timed_sequences.hpp"
#include "support/devices.hpp"
#include "support/gradcheck.hpp"
#include "support/on_tape.hpp"
#include "support/op_row.hpp"
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

const Dropout kDrop{.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};
const Dropout kTimeDrop{.rate = 0.25, .seed = 3, .step = 2, .site = "times"};

/// One call, and what belongs to it.
struct How {
  std::vector<std::int64_t> lengths;
  std::int64_t columns, heads, buckets = 9;
  bool drop_probabilities = false, timed = false, drop_times = false;
  TimeBuckets::Drop drop = TimeBuckets::Drop::element;
  double fill = -std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> first_query = {};
  std::int64_t behind = 0;  ///< rows after the sequences
  std::int64_t gap = -1;    ///< between the times of rows, and a longer one once; negative: as in TimedSequences
  std::int64_t group = 0;   ///< rows with equal times, unless 0

  TimedSequences sequences() const {
    TimedSequences s(lengths);
    for (std::size_t i = 0; i < s.times.size() && gap >= 0; ++i)
      s.times[i] = static_cast<std::int64_t>(i) * gap + (i < 40 ? 0 : 500);
    for (std::size_t i = 0; i < s.times.size() && group > 0; ++i)
      s.times[i] = static_cast<std::int64_t>(i) % lengths[0] / group;
    return s;
  }
};

void call(Place& p, const How& how) {
  const TimedSequences s = how.sequences();
  const Int all = s.rows() + how.behind;
  const Shape rows{all, how.columns}, table{how.buckets, how.columns};
  ops::CausalAttention a;
  a.rows = {p.host(s.offsets), p.host(s.samples)};
  if (how.behind > 0) {
    a.rows.capacity = all;
    a.rows.longest = *std::max_element(how.lengths.begin(), how.lengths.end()) + 40;
  }
  a.heads = how.heads;
  if (how.drop_probabilities) a.dropout = kDrop;
  if (!how.first_query.empty()) a.first_query = p.host(how.first_query);
  a.fill = how.fill;
  TimeBuckets time;
  if (how.timed) time = {p.weight("tk", table), p.weight("tv", table), p.host(s.times), how.drop, {}};
  if (how.drop_times) time.dropout = kTimeDrop;
  const Tensor q = p.in("q", rows), kv = p.in("kv", {all, 2 * how.columns}), dy = p.in("dy", rows);
  const Tensor y = p.out("y", rows), logsum = p.real_out("logsum", {all, how.heads});
  if (!how.first_query.empty() || how.behind > 0) fill_zero(p.stream, logsum);  // rows without a query have none
  ops::causal_attention_forward(p.stream, y, logsum, q, kv, a, time);
  const auto to_table = [&](const char* name) { return how.timed ? p.to_sum(name, table) : Target{}; };
  ops::causal_attention_backward(p.stream, p.to("dq", rows), p.to("dkv", kv.shape()), to_table("dtk"), to_table("dtv"),
                                 dy, y, q, kv, logsum, a, time);
}

/// Dense, query by query.
void define(Plain& r, const How& how) {
  const TimedSequences s = how.sequences();
  const Int columns = how.columns, width = columns / how.heads;
  const auto words = static_cast<std::uint64_t>((width + 63) / 64);
  const auto q = r.in("q"), kv = r.in("kv"), tk = r.in("tk"), tv = r.in("tv"), y = r.out("y");
  for (std::size_t b = 0; b < s.samples.size(); ++b)
    for (Int head = 0; head < how.heads; ++head) {
      const Int base = s.offsets[b], length = s.offsets[b + 1] - base;
      const std::uint64_t sample = s.samples[b];
      const auto site = static_cast<std::uint32_t>(head);
      const auto table = [&](int side, Int i, Int j, Int c) {
        if (!how.timed) return 0.0;
        const Int gap = s.times[to_size(base + i)] - s.times[to_size(base + j)];
        const Int bucket = std::min(gap, how.buckets - 1);
        const double value = (side == 0 ? tk : tv)(bucket, head * width + c);
        if (!how.drop_times) return value;
        if (how.drop == TimeBuckets::Drop::table) {
          const auto threshold = static_cast<std::uint32_t>(std::lround(kTimeDrop.rate * 65536));
          const auto index = static_cast<std::uint64_t>(bucket * columns + head * width + c);
          return draw(kTimeDrop, static_cast<std::uint32_t>(side), sample, index, 16) >= threshold
                     ? value * 65536 / (65536 - threshold)
                     : 0;
        }
        const auto threshold = static_cast<std::uint32_t>(std::lround(kTimeDrop.rate * 256));
        const std::uint64_t word = (2 * static_cast<std::uint64_t>(j) + static_cast<std::uint64_t>(side)) * words;
        const std::uint64_t index =
            static_cast<std::uint64_t>(i) * kQuery * 256 + 64 * word + static_cast<std::uint64_t>(c);
        return draw(kTimeDrop, site, sample, index, 8) >= threshold ? value * 256 / (256 - threshold) : 0;
      };
      for (Int i = how.first_query.empty() ? 0 : how.first_query[b]; i < length; ++i) {
        const Int keys = std::isfinite(how.fill) ? length : i + 1;
        std::vector<double> p(to_size(keys));
        double top = -1e300, sum = 0;
        for (Int j = 0; j < keys; ++j) {
          double score = 0;
          for (Int c = 0; c < width && j <= i; ++c)
            score += q(base + i, head * width + c) * (kv(base + j, head * width + c) + table(0, i, j, c));
          p[to_size(j)] = j <= i ? score / std::sqrt(static_cast<double>(width)) : how.fill;
          top = std::max(top, p[to_size(j)]);
        }
        for (double& x : p) sum += x = std::exp(x - top);
        for (Int j = 0; j < keys; ++j) {
          double weight = p[to_size(j)] / sum;
          if (how.drop_probabilities) {
            const auto threshold = static_cast<std::uint32_t>(std::lround(kDrop.rate * 65536));
            const std::uint64_t index = static_cast<std::uint64_t>(i) * kQuery * 128 + static_cast<std::uint64_t>(j);
            weight = draw(kDrop, site, sample, index, 16) >= threshold ? weight * 65536 / (65536 - threshold) : 0;
          }
          for (Int c = 0; c < width; ++c)
            y(base + i, head * width + c) +=
                weight * (kv(base + j, columns + head * width + c) + (j <= i ? table(1, i, j, c) : 0));
        }
      }
    }
}

enum class Part : std::uint8_t { both, cpu, gpu };
void check(const How& how, Part part = Part::both) {
  OpRow row{.sizes = {},
            .run = [&](Place& p) { call(p, how); },
            .definition = [&](Plain& r) { define(r, how); },
            .f32 = 2e-5,
            .f64 = 1e-12,
            // Gradients of tables add up to 167 terms, each with a few roundings.
            .f32_rest = 5e-5,
            // The rounded y enters sums over channels, and with few distinct times their terms nearly cancel. Without
            // times, the weights are rounded before they are multiplied.
            .gpu = {.f32 = 1e-4, .f64 = 1e-11, .bf16 = how.gap < 0 ? 0.02 : 0, .f16 = how.gap < 0 ? 0.0025 : 0},
            .rows = false};
  if (part != Part::gpu) row.cpu_sizes = {{}};
  if (part != Part::cpu) row.gpu_sizes = {{}};
  CHECK(faults(row) == "");
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
constexpr TimeBuckets::Drop kElement = TimeBuckets::Drop::element, kTable = TimeBuckets::Drop::table;
}  // namespace

TEST_SUITE("ops.causal_attention") {
  TEST_CASE("definition, gradients, bits and devices in every variant") {
    for (const auto& [lengths, columns, heads] :
         {std::tuple{std::vector<std::int64_t>{1, 70, 0, 17}, 12, 2}, {{40, 3}, 50, 1}, {{9, 35}, 140, 2}})
      for (const Variant& v : kVariants) {
        CAPTURE(v.name);
        CAPTURE(columns);
        check({.lengths = lengths,
               .columns = columns,
               .heads = heads,
               .drop_probabilities = v.drop_probabilities,
               .timed = v.timed,
               .drop_times = v.drop_times,
               .drop = v.drop});
      }
  }

  TEST_CASE("finite fills, first queries, draws that span groups, rows behind the sequences (gradient included)") {
    check({.lengths = {5, 40}, .columns = 6, .heads = 2, .drop_probabilities = true, .fill = -2});
    check({.lengths = {5, 70}, .columns = 4, .heads = 1, .fill = -1000});
    check({.lengths = {75}, .columns = 4, .heads = 1, .fill = -1});
    check({.lengths = {4, 40, 3},
           .columns = 6,
           .heads = 2,
           .drop_probabilities = true,
           .timed = true,
           .drop_times = true,
           .first_query = {1, 35, 3}});
    check({.lengths = {135}, .columns = 3, .heads = 1, .drop_probabilities = true});
    check({.lengths = {140, 9}, .columns = 6, .heads = 2, .drop_probabilities = true, .first_query = {70, 2}});
    check({.lengths = {70, 5}, .columns = 4, .heads = 1, .fill = -1, .first_query = {66, 1}});
    check({.lengths = {9, 4}, .columns = 4, .heads = 1, .behind = 5}, Part::cpu);
  }

  TEST_CASE("long groups of equal times, and rows with many times") {
    // Heads of 10 and of 20 channels.
    for (const auto& [group, columns] : {std::pair<Int, Int>{1, 20}, {1, 40}, {2, 20}, {5, 20}, {40, 20}}) {
      CAPTURE(group);
      CAPTURE(columns);
      check({.lengths = {130, 37},
             .columns = columns,
             .heads = 2,
             .buckets = 60,
             .drop_probabilities = true,
             .timed = true,
             .drop_times = true,
             .drop = TimeBuckets::Drop::table,
             .group = group},
            Part::cpu);
    }
  }

  TEST_CASE("gradients of the record agree with finite differences") {
    const Case c({1, 6, 3});
    for (const auto& [columns, heads] : {std::pair{6, 2}}) {
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

TEST_SUITE("ops.causal_attention.cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("attention without times agrees in several blocks and tiles at every width of its kernels") {
    for (const std::int64_t columns : {1, 8, 50, 64, 100, 128}) {
      CAPTURE(columns);
      How how{.lengths = {33, 130, 0, 1, 31}, .columns = columns, .heads = 1, .behind = 5};
      if (columns == 50) how.lengths = {200, 130, 32};
      if (columns == 128) how.lengths = {130, 100, 32};
      how.drop_probabilities = columns != 8;
      check(how, Part::gpu);
      how.lengths = {70, 99};
      how.first_query = {40, 0};
      how.fill = columns == 64 ? -1 : how.fill;
      check(how, Part::gpu);
    }
  }

  TEST_CASE("attention agrees for blocks of several sequences, and for tables larger than shared memory") {
    for (const auto drop : {kElement, kTable}) {
      check({.lengths = {9, 2, 4},
             .columns = 132,
             .heads = 132,
             .buckets = 4,
             .timed = true,
             .drop_times = true,
             .drop = drop},
            Part::gpu);
      check({.lengths = {9, 2},
             .columns = 4,
             .heads = 1,
             .buckets = 6000,
             .timed = true,
             .drop_times = true,
             .drop = drop},
            Part::gpu);
    }
  }

  TEST_CASE("attention agrees if most times are equal, all gaps differ, all are long, or there is one bucket") {
    for (const auto drop : {kElement, kTable})
      for (const auto& [gap, buckets] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {1, 60}, {1000, 5}, {1, 1}}) {
        CAPTURE(gap);
        if (drop == kTable && buckets == 1) continue;  // the keys' table then has no gradient
        check({.lengths = {45},
               .columns = 10,
               .heads = 1,
               .buckets = buckets,
               .timed = true,
               .drop_times = true,
               .drop = drop,
               .gap = gap},
              Part::gpu);
      }
  }

  TEST_CASE("tables that are prepared once give the bits of tables that each call prepares") {
    const TimedSequences s({40, 0, 9});
    for (const auto drop : {kElement, kTable})
      for (const DType type : {DType::f32, DType::bf16}) {
        Place p(type, {DeviceKind::cuda, 0});
        const Shape rows{s.rows(), 12};
        const Tensor q = p.in("q", rows), kv = p.in("kv", {s.rows(), 24}), dy = p.in("dy", rows);
        ops::CausalAttention a;
        a.rows = {p.host(s.offsets), p.host(s.samples)};
        a.heads = 2;
        ops::TimeBuckets time{p.in("tk", {9, 12}), p.in("tv", {9, 12}), p.host(s.times), drop, {}};
        time.dropout = {.rate = 0.25, .seed = 3, .step = 2, .site = "times"};
        const auto run = [&](const std::string& name) {
          const Tensor y = p.out(name + " y", rows), logsum = p.real_out(name + " logsum", {s.rows(), 2});
          const Tensor dq = p.out(name + " dq", rows), dkv = p.out(name + " dkv", kv.shape()),
                       dkeys = p.real_out(name + " dkeys", {9, 12}), dvalues = p.real_out(name + " dvalues", {9, 12});
          ops::causal_attention_forward(p.stream, y, logsum, q, kv, a, time);
          ops::causal_attention_backward(p.stream, {dq}, {dkv}, {dkeys}, {dvalues}, dy, y, q, kv, logsum, a, time);
          return std::array{y, dq, dkv, dkeys, dvalues};
        };
        const auto apart = run("apart");
        time.prepared = p.real_in("prepared", {ops::prepared_times_size(a, time)});
        ops::prepare_times(p.stream, time.prepared, a, time);
        const auto shared = run("shared");
        p.stream.synchronize();
        for (std::size_t i = 0; i < apart.size(); ++i) CHECK(same_bits(HostView(apart[i]), HostView(shared[i])));
      }
  }

  TEST_CASE("a sequence's results depend on neither later rows nor other sequences, in any bit") {
    const TimedSequences both({90, 33});
    for (const auto& [type, timed] :
         {std::pair{DType::f32, true}, {DType::f32, false}, {DType::bf16, true}, {DType::bf16, false}}) {
      Place p(type, {DeviceKind::cuda, 0});
      const Tensor q = p.in("q", {123, 20}), kv = p.in("kv", {123, 40});
      const Tensor keys = p.in("tk", {9, 20}), values = p.in("tv", {9, 20});
      const std::span<const std::int64_t> times = p.host(both.times);
      const auto attend_to = [&, with_times = timed](const Tensor& y, std::int64_t first,
                                                     const std::vector<std::int64_t>& offsets,
                                                     const std::vector<std::uint64_t>& samples) {
        const std::int64_t count = offsets.back();
        ops::CausalAttention a;
        a.rows = {p.host(offsets), p.host(samples)};
        a.heads = 2;
        a.dropout = {.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};
        ops::TimeBuckets time;
        if (with_times)
          time = {keys,
                  values,
                  times.subspan(to_size(first), to_size(count)),
                  kElement,
                  {.rate = 0.25, .seed = 3, .step = 2, .site = "times"}};
        ops::causal_attention_forward(p.stream, y, {}, q.slice(first, count), kv.slice(first, count), a, time);
      };
      const Tensor y = p.out("y", {123, 20}), head = p.out("head", {71, 20}), tail = p.out("tail", {33, 20});
      attend_to(y, 0, both.offsets, both.samples);
      attend_to(head, 0, {0, 71}, {both.samples[0]});
      attend_to(tail, 90, {0, 33}, {both.samples[1]});
      p.stream.synchronize();
      CHECK(same_bits(HostView(head), HostView(y.slice(0, 71))));
      CHECK(same_bits(HostView(tail), HostView(y.slice(90, 33))));
    }
  }

  TEST_CASE("heads too wide for a GPU are an error") {
    Place p(DType::f32, {DeviceKind::cuda, 0});
    CHECK_THROWS_AS(call(p, {.lengths = {2}, .columns = 129, .heads = 1}), Error);
  }
}
