// The ops of sequence models on a GPU against the CPU: results and gradients for the same arrays.

#include <algorithm>

#include "lockstep/ops/causal_attention.hpp"
#include "lockstep/ops/collapsed_connections.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/hyper_connections.hpp"
#include "lockstep/ops/item_softmax.hpp"
#include "lockstep/ops/row_groups.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "ops/on_both.hpp"
#include "ops/timed_sequences.hpp"
#include "support/test.hpp"

namespace {

struct Attention {
  std::vector<std::int64_t> lengths;
  std::int64_t columns, heads, buckets = 9;
  bool drop_probabilities = false, timed = false, drop_times = false;
  ops::TimeBuckets::Drop drop = ops::TimeBuckets::Drop::element;
  double fill = -std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> first_query = {};
  bool accumulate = false;
  std::int64_t behind = 0;  ///< rows after the sequences
  std::int64_t gap = -1;    ///< between the times of rows, and a longer one once; negative: as in TimedSequences
};
void attend(const Attention& how) {
  TimedSequences s(how.lengths);
  for (std::size_t i = 0; i < s.times.size() && how.gap >= 0; ++i)
    s.times[i] = static_cast<std::int64_t>(i) * how.gap + (i < 40 ? 0 : 500);
  const std::int64_t all = s.rows() + how.behind;
  const Shape rows{all, how.columns}, table{how.buckets, how.columns};
  const auto run = [&](Place& p) {
    ops::CausalAttention a;
    a.rows = {p.host(s.offsets), p.host(s.samples)};
    if (how.behind > 0) {
      a.rows.capacity = all;
      a.rows.longest = *std::max_element(how.lengths.begin(), how.lengths.end()) + 40;
    }
    a.heads = how.heads;
    if (how.drop_probabilities) a.dropout = {.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};
    if (!how.first_query.empty()) a.first_query = p.host(how.first_query);
    a.fill = how.fill;
    ops::TimeBuckets time;
    if (how.timed) time = {p.in("tk", table), p.in("tv", table), p.host(s.times), how.drop, {}};
    if (how.drop_times) time.dropout = {.rate = 0.25, .seed = 3, .step = 2, .site = "times"};
    const Tensor q = p.in("q", rows), kv = p.in("kv", {all, 2 * how.columns}), dy = p.in("dy", rows);
    const Tensor y = p.out("y", rows), logsum = p.real_out("logsum", {all, how.heads});
    if (!how.first_query.empty() || how.behind > 0) fill_zero(p.stream, logsum);  // rows without a query have none
    ops::causal_attention_forward(p.stream, y, logsum, q, kv, a, time);
    const auto to = [&](const char* name, const Tensor& x) { return Target{p.out(name, x.shape()), how.accumulate}; };
    const auto to_table = [&](const char* name) {
      return how.timed ? Target{p.real_out(name, table), how.accumulate} : Target{};
    };
    ops::causal_attention_backward(p.stream, to("dq", q), to("dkv", kv), to_table("dkeys"), to_table("dvalues"), dy, y,
                                   q, kv, logsum, a, time);
  };
  agrees_on_both(run, 1e-4, 1e-11);
  // The rounded y enters sums over channels, and with few distinct times their terms nearly cancel. Without times, the
  // weights are rounded before they are multiplied.
  if (how.gap < 0) halves_agree(run, 0.02, 0.0025);
}

constexpr ops::TimeBuckets::Drop kElement = ops::TimeBuckets::Drop::element, kTable = ops::TimeBuckets::Drop::table;

}  // namespace

TEST_SUITE("ops.sequences.cuda" * doctest::skip(!gpu_present())) {
  TEST_CASE("causal attention on a GPU agrees with the CPU in every variant, forward and backward") {
    for (const auto& [lengths, columns, heads] :
         {std::tuple{std::vector<std::int64_t>{1, 70, 0, 17}, 12, 2}, {{60, 3}, 50, 1}, {{20, 35}, 140, 2}}) {
      CAPTURE(columns);
      Attention how{.lengths = lengths, .columns = columns, .heads = heads};
      attend(how);
      how.accumulate = true;
      how.drop_probabilities = true;
      attend(how);
      how.timed = true;
      how.accumulate = false;
      attend(how);
      how.drop_times = true;
      how.accumulate = true;
      attend(how);
      how.drop = kTable;
      attend(how);
    }
  }

  TEST_CASE("attention agrees for finite fills, first queries, and dropout draws that span groups") {
    attend({.lengths = {5, 40}, .columns = 6, .heads = 2, .drop_probabilities = true, .fill = -2});
    attend({.lengths = {5, 70}, .columns = 4, .heads = 1, .fill = -1000});
    attend({.lengths = {100}, .columns = 4, .heads = 1, .fill = -1});
    attend({.lengths = {4, 40, 3},
            .columns = 6,
            .heads = 2,
            .drop_probabilities = true,
            .timed = true,
            .drop_times = true,
            .drop = kElement,
            .first_query = {1, 35, 3}});
    attend({.lengths = {150}, .columns = 3, .heads = 1, .drop_probabilities = true});
    attend({.lengths = {140, 9}, .columns = 6, .heads = 2, .drop_probabilities = true, .first_query = {70, 2}});
    attend({.lengths = {70, 5}, .columns = 4, .heads = 1, .fill = -1, .first_query = {66, 1}});
  }

  TEST_CASE("attention without times agrees in several blocks and tiles at every width of its kernels") {
    for (const std::int64_t columns : {1, 8, 50, 64, 100, 128}) {
      CAPTURE(columns);
      Attention how{.lengths = {33, 200, 0, 1, 31}, .columns = columns, .heads = 1, .behind = 5};
      if (columns == 50 || columns == 128) how.lengths = {260, 161, 32};
      how.drop_probabilities = columns != 8;
      attend(how);
      how.lengths = {70, 129};
      how.accumulate = true;
      how.first_query = {40, 0};
      how.fill = columns == 64 ? -1 : how.fill;
      attend(how);
    }
  }

  TEST_CASE("attention agrees for blocks of several sequences, and for tables larger than shared memory") {
    for (const auto drop : {kElement, kTable}) {
      attend({.lengths = {35, 2, 4},
              .columns = 132,
              .heads = 132,
              .buckets = 4,
              .timed = true,
              .drop_times = true,
              .drop = drop});
      attend({.lengths = {9, 2},
              .columns = 4,
              .heads = 1,
              .buckets = 6000,
              .timed = true,
              .drop_times = true,
              .drop = drop});
    }
  }

  TEST_CASE("attention agrees if most times are equal, all gaps differ, all are long, or there is one bucket") {
    for (const auto drop : {kElement, kTable})
      for (const auto& [gap, buckets] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {1, 60}, {1000, 5}, {1, 1}}) {
        CAPTURE(gap);
        if (drop == kTable && buckets == 1) continue;  // the keys' table then has no gradient
        attend({.lengths = {45},
                .columns = 10,
                .heads = 1,
                .buckets = buckets,
                .timed = true,
                .drop_times = true,
                .drop = drop,
                .gap = gap});
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

  TEST_CASE("hyper-connections agree with the CPU for any number of streams") {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 8})
      for (const auto& [rows, c] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {37, 33}, {200, 7}, {5, 16}}) {
        CAPTURE(n);
        CAPTURE(rows);
        const std::int64_t width = n * c;
        const Shape x{rows, n, c}, y{rows, c}, h{rows, n * (2 + n)};
        const Shape site[] = {{}, {}, {}, {n, width}, {n, width}, {n * n, width}, {n}, {n}, {n * n}};
        const auto run = [&](Place& p) {
          Tensor w[9];
          Target dw[9];
          for (std::size_t k = 0; k < 9; ++k) {
            w[k] = p.in(join("w", k), site[k]);
            dw[k] = {p.real_out(join("dw", k), site[k]), true};
          }
          const ops::HyperConnection s{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], 7};
          const ops::HyperConnectionGradients g{dw[0], dw[1], dw[2], dw[3], dw[4], dw[5], dw[6], dw[7], dw[8]};
          const Tensor streams = p.in("x", x), value = p.in("y", y), dout = p.in("dout", x);
          const Tensor maps = p.real_out("maps", h), raw = p.real_out("raw", h), scale = p.real_out("scale", {rows});
          ops::hyper_maps_forward(p.stream, maps, raw, scale, streams, s);
          ops::hyper_read_forward(p.stream, p.out("u", y), streams, maps, n);
          ops::hyper_write_forward(p.stream, p.out("out", x), streams, maps, value, n);
          const Tensor dx = p.out("dx", x);
          ops::hyper_read_backward(p.stream, {dx, true}, {p.real_out("dread", h), false}, value, streams, maps, n);
          ops::hyper_write_backward(p.stream, {p.out("dwrite", x), false}, {p.real_out("dmaps", h), true},
                                    {p.out("dy", y), false}, dout, streams, maps, value, n);
          ops::hyper_maps_backward(p.stream, {dx, true}, g, p.real_out("dproducts", h), raw, scale, streams, s);
        };
        // In f32 the sums over tokens nearly cancel and keep few digits.
        agrees_on_both(run, 2e-3, 1e-11);
        halves_agree(run, 0.016, 0.003);
      }
  }

  TEST_CASE("the collapsed hyper-connection agrees with the CPU") {
    for (const auto& [rows, c, n] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1}, {37, 33, 4}, {300, 5, 3}}) {
      const Shape x{rows, c}, w{n, n * c}, b{n};
      double size = 1;
      const auto run = [&](Place& p) {
        const ops::CollapsedConnection site{p.in("alpha", {}), p.in("w", w), p.in("b", b)};
        const Tensor from = p.in("scaled x", x), f = p.in("f", x);
        ops::scale(p.stream, {from, false}, p.in("x", x), size);
        ops::collapsed_connection_forward(p.stream, p.out("y", x), from, f, site);
        ops::collapsed_connection_backward(p.stream, {p.out("dx", x), true}, {p.out("df", x), false},
                                           {p.real_out("dalpha", {}), p.real_out("dw", w), p.real_out("db", b)},
                                           p.in("dy", x), from, f, site);
      };
      agrees_on_both(run, 2e-3, 1e-11);
      halves_agree(run);
      size = 1e-12;  // as large as the epsilon of the norm
      agrees_on_both(run, 2e-3, 1e-11);
    }
  }

  TEST_CASE("the sampled cross entropy agrees with the CPU for frequent items and tokens without an item") {
    for (const std::int64_t tokens : {1, 37, 700, 8193}) {
      std::vector<std::int32_t> pos, neg;
      const Philox draws(5, 0, "items");
      for (std::int64_t m = 0; m < tokens; ++m) {
        const auto draw = static_cast<std::uint64_t>(m);
        pos.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(m % 2 ? 3 : 40, 2 * draw)));
        neg.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(40, 2 * draw + 1)));
      }
      every_dtype_agrees(
          [&](Place& p) {
            const Tensor f = p.in("f", {tokens, 33}), table = p.in("table", {41, 33});
            const auto next = p.host(pos), drawn = p.host(neg);
            const Tensor slopes = p.real_out("slopes", {2, tokens});
            ops::sampled_cross_entropy_forward(p.stream, p.real_out("loss", {}), slopes, f, table, next, drawn);
            ops::sampled_cross_entropy_backward(p.stream, {p.out("df", {tokens, 33}), tokens == 37},
                                                p.real_out("dtable", {41, 33}), p.real_in("dloss", {}), slopes, f,
                                                table, next, drawn);
          },
          2e-5, 1e-11);
    }
  }

  TEST_CASE("the binary cross entropy with several negatives agrees with the CPU") {
    const std::vector<std::int32_t> pos = {3, 0, 9, 3}, neg = {1, 2, 2, 0, 0, 0, 4, 3, 2, 9, 9, 9};
    every_dtype_agrees(
        [&](Place& p) {
          const Tensor f = p.in("f", {4, 33}), table = p.in("table", {12, 33}), slopes = p.real_out("slopes", {4, 4});
          const auto next = p.host(pos), drawn = p.host(neg);
          ops::sampled_cross_entropy_forward(p.stream, p.real_out("loss", {}), slopes, f, table, next, drawn, 0.4);
          ops::sampled_cross_entropy_backward(p.stream, {p.out("df", {4, 33}), true}, p.real_out("dtable", {12, 33}),
                                              p.real_in("dloss", {}), slopes, f, table, next, drawn);
        },
        2e-5, 1e-11);
  }

  TEST_CASE("the softmax over items agrees with the CPU in one tile and in several tiles of tokens or items") {
    for (const auto& [tokens, items] : {std::pair<std::int64_t, std::int64_t>{9, 40}, {3, 4100}, {8200, 3}}) {
      std::vector<std::int32_t> pos;
      for (std::int64_t m = 0; m < tokens; ++m)
        pos.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + m * 7 % items));
      every_dtype_agrees(
          [&](Place& p) {
            const Tensor f = p.in("f", {tokens, 5}), table = p.in("table", {items + 1, 5});
            const Tensor state = p.real_out("state", {3, tokens}), dtable = p.real_out("dtable", {items + 1, 5});
            const Tensor scratch =
                p.real_in("scratch", {ops::softmax_scratch(f.device(), is_half(p.dtype()), tokens, items, 5)});
            const auto next = p.host(pos);
            const ops::SoftmaxCandidates all{.rows = table.slice(1, items), .ids = {}, .bias = {}};
            ops::item_softmax_forward(p.stream, p.real_out("loss", {}), state, scratch, f, table, all, next);
            ops::item_softmax_backward(p.stream, {p.out("df", {tokens, 5}), tokens == 9},
                                       {dtable.slice(1, items), true}, dtable, p.real_in("dloss", {}), state, scratch,
                                       f, table, all, next);
          },
          5e-5, 1e-11);
    }
  }

  TEST_CASE("copied, summed, masked and scored rows agree with the CPU") {
    std::vector<std::int32_t> some(31), ids(35);
    for (std::size_t k = 0; k < some.size(); ++k) some[k] = static_cast<std::int32_t>(k % 3);
    for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int32_t>(k % 12);
    for (const std::int64_t c : {5, 16})
      every_dtype_agrees([&](Place& p) {
        const Tensor few = p.in("few", {31, c}), many = p.in("many", {93, c});
        ops::copy_rows(p.stream, {p.out("copies", {93, c}), true}, few, 3);
        ops::sum_rows(p.stream, {p.out("sums", {31, c}), false}, many, 3);
        ops::mask_rows(p.stream, {p.out("masked", {31, c}), true}, few, p.host(some));
        ops::row_scores(p.stream, p.real_out("scores", {7, 5}), p.in("f", {7, 33}), p.in("table", {12, 33}),
                        p.host(ids));
      });
  }

  TEST_CASE("heads too wide for a GPU are an error") {
    CHECK_THROWS_AS(attend({.lengths = {2}, .columns = 129, .heads = 1}), Error);
  }
}
