// The operations of sequence models on a GPU against the CPU's: results and gradients of the same arrays.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/ops/causal_attention.hpp"
#include "lockstep/ops/collapsed_connections.hpp"
#include "lockstep/ops/hyper_connections.hpp"
#include "lockstep/ops/row_groups.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Tensors = std::span<const Tensor>;
using Operation = std::function<void(Stream&, Arena& host, Tensors in, Tensors out)>;

/// The largest relative difference between what an operation leaves in `out` on a GPU and on the CPU. All arrays are
/// N(0, 1) at first, those of `out` too: an operation that adds where it should store shows up.
double disagreement(DType dtype, const std::vector<Shape>& in, const std::vector<Shape>& out, const Operation& run) {
  std::vector<std::vector<OwnedTensor>> results;
  for (const Device device : {Device{}, Device{DeviceKind::cuda, 0}}) {
    Stream stream(device);
    Arena arena(device);
    std::vector<OwnedTensor> owned;
    std::vector<Tensor> views;
    const auto draw = [&](const Shape& shape, Site name) {
      const OwnedTensor values = random_tensor(dtype, shape, name);
      owned.emplace_back(dtype, shape, device);
      copy(stream, owned.back(), values);
      stream.synchronize();
      views.push_back(owned.back());
    };
    for (std::size_t i = 0; i < in.size(); ++i) draw(in[i], Site(join("in.", i)));
    for (std::size_t i = 0; i < out.size(); ++i) draw(out[i], Site(join("out.", i)));
    run(stream, arena.host(), Tensors(views).first(in.size()), Tensors(views).subspan(in.size()));
    stream.synchronize();
    std::vector<OwnedTensor>& kept = results.emplace_back();
    for (std::size_t i = in.size(); i < views.size(); ++i) {
      kept.emplace_back(dtype, views[i].shape());
      copy(stream, kept.back(), views[i]);
      stream.synchronize();
    }
  }
  double worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].size() == 0) continue;
    worst = std::max(worst, difference(results[1][i], results[0][i]).relative);
  }
  return worst;
}
double disagreement64(const std::vector<Shape>& in, const std::vector<Shape>& out, const Operation& run) {
  return disagreement(DType::f64, in, out, run);
}

/// The same numbers where kernels can read them.
template <class T>
std::span<const T> pinned(Arena& host, const std::vector<T>& values) {
  auto* memory = static_cast<T*>(host.allocate(values.size() * sizeof(T)));
  std::copy(values.begin(), values.end(), memory);
  return {memory, values.size()};
}

/// Sequences with ties, gaps and far times.
struct Sequences {
  std::vector<std::int64_t> offsets, times;
  std::vector<std::uint64_t> samples;
  std::int64_t rows() const { return offsets.back(); }
};
Sequences make_sequences(const std::vector<std::int64_t>& lengths) {
  Sequences s;
  s.offsets.push_back(0);
  const Philox draws(3, 0, "times");
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    std::int64_t time = 100;
    for (std::int64_t i = 0; i < lengths[b]; ++i) {
      const auto draw = draws.below(10, s.times.size());
      time += draw < 4 ? 0 : draw < 9 ? static_cast<std::int64_t>(draw - 3) : 1000;
      s.times.push_back(time);
    }
    s.offsets.push_back(s.offsets.back() + lengths[b]);
    s.samples.push_back(11 * b + 5);
  }
  return s;
}

struct Attention {
  std::vector<std::int64_t> lengths;
  std::int64_t columns, heads, buckets = 9;
  bool drop_probabilities = false, timed = false, drop_times = false;
  ops::TimeBuckets::Drop drop = ops::TimeBuckets::Drop::element;
  double fill = -std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> first_query = {};
  bool accumulate = false;
};
double attend_on_both(const Attention& how, DType dtype = DType::f64) {
  const Sequences s = make_sequences(how.lengths);
  const Shape rows{s.rows(), how.columns}, table{how.buckets, how.columns};
  return disagreement(
      dtype, {rows, rows, rows, table, table, rows}, {rows, {s.rows(), how.heads}, rows, rows, rows, table, table},
      [&](Stream& stream, Arena& host, Tensors in, Tensors out) {
        ops::CausalAttention a{.rows = {pinned(host, s.offsets), pinned(host, s.samples)}, .heads = how.heads};
        if (how.drop_probabilities) a.dropout = {.rate = 0.3, .seed = 3, .step = 2, .site = "attention"};
        if (!how.first_query.empty()) a.first_query = pinned(host, how.first_query);
        a.fill = how.fill;
        ops::TimeBuckets time;
        if (how.timed) time = {in[3], in[4], pinned(host, s.times), how.drop, {}};
        if (how.drop_times) time.dropout = {.rate = 0.25, .seed = 3, .step = 2, .site = "times"};
        if (!how.first_query.empty()) fill_zero(stream, out[1]);  // rows without a query have no logsum
        ops::causal_attention_forward(stream, out[0], out[1], in[0], in[1], in[2], a, time);
        const auto to = [&](std::size_t i) { return Target{out[i], how.accumulate}; };
        const Target keys = how.timed ? to(5) : Target{}, values = how.timed ? to(6) : Target{};
        ops::causal_attention_backward(stream, to(2), to(3), to(4), keys, values, in[5], out[0], in[0], in[1], in[2],
                                       out[1], a, time);
      });
}

constexpr ops::TimeBuckets::Drop kElement = ops::TimeBuckets::Drop::element, kTable = ops::TimeBuckets::Drop::table;

}  // namespace

TEST_SUITE("ops.sequences_cuda" * doctest::skip(gpu_count() == 0)) {
  TEST_CASE("causal attention on a GPU agrees with the CPU in every variant, forward and backward") {
    for (const auto& [lengths, columns, heads] :
         {std::tuple{std::vector<std::int64_t>{1, 70, 0, 17}, 12, 2}, {{60, 3}, 50, 1}, {{20, 35}, 140, 2}}) {
      CAPTURE(columns);
      Attention how{.lengths = lengths, .columns = columns, .heads = heads};
      CHECK(attend_on_both(how) < 1e-11);
      how.accumulate = true;
      how.drop_probabilities = true;
      CHECK(attend_on_both(how) < 1e-11);
      how.timed = true, how.accumulate = false;
      CHECK(attend_on_both(how) < 1e-11);
      CHECK(attend_on_both(how, DType::f32) < 1e-4);
      how.drop_times = true, how.accumulate = true;
      CHECK(attend_on_both(how) < 1e-11);
      CHECK(attend_on_both(how, DType::f32) < 1e-4);
      how.drop = kTable;
      CHECK(attend_on_both(how) < 1e-11);
    }
  }

  TEST_CASE("padding as public code has it, many keys for one draw of dropout, and draws across groups") {
    CHECK(attend_on_both({.lengths = {5, 40}, .columns = 6, .heads = 2, .drop_probabilities = true, .fill = -2}) <
          1e-11);
    CHECK(attend_on_both({.lengths = {5, 70}, .columns = 4, .heads = 1, .fill = -1000}) < 1e-11);
    CHECK(attend_on_both({.lengths = {4, 40, 3},
                          .columns = 6,
                          .heads = 2,
                          .drop_probabilities = true,
                          .timed = true,
                          .drop_times = true,
                          .drop = kElement,
                          .first_query = {1, 35, 3}}) < 1e-11);
    CHECK(attend_on_both({.lengths = {150}, .columns = 3, .heads = 1, .drop_probabilities = true}) < 1e-11);
  }

  TEST_CASE("blocks that take several sequences, and tables that shared memory has no room for") {
    for (const auto drop : {kElement, kTable}) {
      CHECK(attend_on_both({.lengths = {3, 2, 4, 1, 5},
                            .columns = 132,
                            .heads = 132,
                            .buckets = 4,
                            .timed = true,
                            .drop_times = true,
                            .drop = drop}) < 1e-11);
      CHECK(attend_on_both({.lengths = {9, 2},
                            .columns = 8,
                            .heads = 1,
                            .buckets = 2000,
                            .timed = true,
                            .drop_times = true,
                            .drop = drop}) < 1e-11);
    }
  }

  TEST_CASE("hyper-connections agree for any number of streams") {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 8})
      for (const auto& [rows, c] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {37, 33}, {70, 7}}) {
        CAPTURE(n);
        CAPTURE(rows);
        const std::int64_t width = n * c, maps = n * (2 + n);
        const Shape scalar{}, x{rows, n, c}, y{rows, c}, h{rows, maps};
        const std::vector<Shape> site = {scalar,         scalar,   scalar,   {n, width},  {n, width},
                                         {n * n, width}, Shape{n}, Shape{n}, Shape{n * n}};
        std::vector<Shape> in = site, out = site;
        in.insert(in.end(), {x, h, y, x});
        out.insert(out.end(), {h, h, Shape{rows}, y, x, x, h, x, h, y});
        const auto run = [&](Stream& stream, Arena&, Tensors i, Tensors o) {
          const ops::HyperConnection s{i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], 7};
          const auto add = [](const Tensor& t) { return Target{t, true}; };
          ops::HyperConnectionGradients g{add(o[0]), add(o[1]), add(o[2]), add(o[3]), add(o[4]),
                                          add(o[5]), add(o[6]), add(o[7]), add(o[8])};
          const Tensor& streams = i[9];
          ops::hyper_maps_forward(stream, o[9], o[10], o[11], streams, s);
          ops::hyper_read_forward(stream, o[12], streams, o[9], n);
          ops::hyper_write_forward(stream, o[13], streams, o[9], i[11], n);
          ops::hyper_read_backward(stream, {o[14], true}, {o[15], false}, i[11], streams, o[9], n);
          ops::hyper_write_backward(stream, {o[16], false}, {o[17], true}, {o[18], false}, i[12], streams, o[9], i[11],
                                    n);
          const OwnedTensor dmaps(i[10].dtype(), i[10].shape(), i[10].device());
          copy(stream, dmaps, i[10]);
          ops::hyper_maps_backward(stream, {o[14], true}, g, dmaps, o[10], o[11], streams, s);
          stream.synchronize();
        };
        CHECK(disagreement64(in, out, run) < 1e-11);
        // In f32 the sums over tokens, of terms that nearly cancel, keep fewer digits.
        if (rows > 1) CHECK(disagreement(DType::f32, in, out, run) < 1e-3);
      }
  }

  TEST_CASE("the collapsed site agrees") {
    for (const auto& [rows, c, n] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1}, {37, 33, 4}, {300, 5, 3}}) {
      const Shape x{rows, c}, w{n, n * c}, b{n};
      CHECK(disagreement64({x, x, {}, w, b, x}, {x, x, x, {}, w, b}, [&](Stream& stream, Arena&, Tensors i, Tensors o) {
              const ops::CollapsedConnection site{i[2], i[3], i[4]};
              ops::collapsed_connection_forward(stream, o[0], i[0], i[1], site);
              ops::collapsed_connection_backward(stream, {o[1], true}, {o[2], false}, {o[3], o[4], o[5]}, i[5], i[0],
                                                 i[1], site);
            }) < 1e-11);
    }
  }

  TEST_CASE("the sampled cross entropy agrees, with items that come often and tokens without one") {
    for (const std::int64_t tokens : {0, 1, 37, 700}) {
      std::vector<std::int32_t> pos, neg;
      const Philox draws(5, 0, "items");
      for (std::int64_t m = 0; m < tokens; ++m) {
        const auto draw = static_cast<std::uint64_t>(m);
        pos.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(m % 2 ? 3 : 40, 2 * draw)));
        neg.push_back(m % 5 == 3 ? 0 : static_cast<std::int32_t>(1 + draws.below(40, 2 * draw + 1)));
      }
      const Shape f{tokens, 33}, table{41, 33};
      const auto run = [&](Stream& stream, Arena& host, Tensors i, Tensors o) {
        const auto next = pinned(host, pos), drawn = pinned(host, neg);
        ops::sampled_cross_entropy_forward(stream, o[0], o[1], i[0], i[1], next, drawn);
        ops::sampled_cross_entropy_backward(stream, {o[2], false}, o[3], i[2], o[1], i[0], i[1], next, drawn);
      };
      CHECK(disagreement64({f, table, {}}, {{}, {2, tokens}, f, table}, run) < 1e-11);
    }
  }

  TEST_CASE("rows copied, summed, masked and scored") {
    const Shape few{31, 5}, many{93, 5};
    CHECK(disagreement64({few, many}, {many, few, few}, [](Stream& stream, Arena& host, Tensors i, Tensors o) {
            std::vector<std::int32_t> ids(31);
            for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int32_t>(k % 3);
            ops::copy_rows(stream, {o[0], true}, i[0], 3);
            ops::sum_rows(stream, {o[1], false}, i[1], 3);
            ops::mask_rows(stream, {o[2], true}, i[0], pinned(host, ids));
          }) < 1e-12);
    CHECK(disagreement64({{7, 33}, {12, 33}}, {{7, 5}}, [](Stream& stream, Arena& host, Tensors i, Tensors o) {
            std::vector<std::int32_t> ids(35);
            std::iota(ids.begin(), ids.end(), 0);
            for (std::int32_t& id : ids) id %= 12;
            ops::row_scores(stream, o[0], i[0], i[1], pinned(host, ids));
          }) < 1e-12);
  }

  TEST_CASE("heads that a GPU has no room for are refused") {
    CHECK_THROWS_AS(attend_on_both({.lengths = {2}, .columns = 129, .heads = 1}), Error);
  }
}
