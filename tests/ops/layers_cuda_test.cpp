#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/dropout.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/embedding.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/layernorm.hpp"
#include "lockstep/ops/linear.hpp"
#include "lockstep/ops/row_groups.hpp"
#include "ops/activations.hpp"
#include "ops/on_both.hpp"
#include "support/test.hpp"

using ops::Activation;

namespace {
struct Sizes {
  std::int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{7, 5, 3}, {1, 1, 1}, {31, 64, 33}, {64, 1, 16}, {0, 4, 3}, {3, 4, 0}, {300, 20, 9}};
}  // namespace

TEST_SUITE("ops.layers.cuda") {
  TEST_CASE("products agree with the CPU, stored and added" * doctest::skip(!gpu_present())) {
    for (const Sizes s : kSizes)
      for (const bool add : {false, true}) {
        CAPTURE(s.m);
        CAPTURE(s.n);
        CAPTURE(s.k);
        every_dtype_agrees([&](Place& p) {
          ops::gemm_nt(p.stream, {p.out("nt", {s.m, s.n}), add}, p.in("a", {s.m, s.k}), p.in("b", {s.n, s.k}));
          ops::gemm_nn(p.stream, {p.out("nn", {s.m, s.n}), add}, p.in("a", {s.m, s.k}), p.in("b", {s.k, s.n}));
          ops::gemm_tn(p.stream, {p.out("tn", {s.m, s.n}), add}, p.in("a", {s.k, s.m}), p.in("b", {s.k, s.n}));
          ops::gemm_tn(p.stream, {p.real_out("real", {s.m, s.n}), add}, p.in("a", {s.k, s.m}), p.in("b", {s.k, s.n}));
        });
      }
  }

  TEST_CASE("connected layers agree with the CPU" * doctest::skip(!gpu_present())) {
    for (const Sizes s : kSizes)
      for (const Activation f : {Activation::none, Activation::gelu})
        for (const bool whole : {true, false}) {
          CAPTURE(s.m);
          CAPTURE(s.n);
          CAPTURE(s.k);
          CAPTURE(std::string(ops::name(f)));
          CAPTURE(whole);
          every_dtype_agrees([&](Place& p) {
            const Tensor x = p.in("x", {s.m, s.k}), w = p.in("w", {s.n, s.k}), b = p.in("b", {s.n});
            const Tensor y = p.out("y", {s.m, s.n}), d = p.out("derivative", {s.m, s.n}), dy = p.out("dy", {s.m, s.n});
            ops::linear_forward(p.stream, y, whole ? d : Tensor{}, x, w, whole ? b : Tensor{}, f);
            ops::linear_backward(p.stream, {p.out("dx", {s.m, s.k}), whole}, {p.real_out("dw", {s.n, s.k}), whole},
                                 {p.real_out("db", {s.n}), whole}, dy, whole ? d : Tensor{}, x, w);
          });
        }
  }

  TEST_CASE("sums over many rows agree with the CPU" * doctest::skip(!gpu_present())) {
    // Packs of 1, 2 and 4 elements; one and three tiles of outputs, the last one not full; too many inputs or outputs.
    for (const Sizes s :
         {Sizes{4001, 5, 3}, {1024, 150, 50}, {17000, 4, 2}, {1100, 64, 64}, {1100, 9, 65}, {1100, 257, 8}}) {
      CAPTURE(s.m);
      CAPTURE(s.n);
      every_dtype_agrees(
          [&](Place& p) {
            const Tensor x = p.in("x", {s.m, s.k}), w = p.in("w", {s.n, s.k}), d = p.in("d", {s.m, s.n});
            ops::linear_backward(p.stream, {p.out("dx", {s.m, s.k}), false}, {p.real_out("dw", {s.n, s.k}), true},
                                 {p.real_out("db", {s.n}), false}, p.out("dy", {s.m, s.n}), d, x, w);
            ops::linear_backward(p.stream, {}, {p.real_out("dw alone", {s.n, s.k}), false}, {}, p.in("dy", {s.m, s.n}),
                                 {}, x, w);
            ops::linear_backward(p.stream, {}, {}, {p.real_out("db alone", {s.n}), true}, p.in("dy", {s.m, s.n}), {}, x,
                                 w);
          },
          2e-5);  // sums of many terms, in another order
    }
  }

  TEST_CASE("activations agree with the CPU" * doctest::skip(!gpu_present())) {
    for (const Activation f : kActivations)
      for (const std::int64_t n : {0, 1, 31, 33, 1023}) {
        CAPTURE(std::string(ops::name(f)));
        CAPTURE(n);
        every_dtype_agrees([&](Place& p) {
          const Tensor d = p.out("derivative", {n});
          ops::activation_forward(p.stream, p.out("y", {n}), d, p.in("x", {n}), f);
          ops::activation_forward(p.stream, p.out("y alone", {n}), {}, p.in("x", {n}), f);
          ops::activation_backward(p.stream, {p.out("dx", {n}), true}, p.in("dy", {n}), d);
          ops::activation_backward(p.stream, {p.out("dx stored", {n}), false}, p.in("dy", {n}), d);
          const Tensor zero = p.in("zero", {n});
          fill_zero(p.stream, zero);
          ops::activation_forward(p.stream, p.out("y of zero", {n}), p.out("derivative at zero", {n}), zero, f);
        });
      }
  }

  TEST_CASE("sums and multiples agree with the CPU, at addresses of any alignment" * doctest::skip(!gpu_present())) {
    for (const std::int64_t n : {0, 1, 31, 33, 1023})
      for (const std::int64_t skip : {0, 1}) {
        CAPTURE(n);
        CAPTURE(skip);
        every_dtype_agrees([&](Place& p) {
          const auto part = [&](const Tensor& t) { return t.slice(skip, n); };
          ops::scale(p.stream, {part(p.out("added", {n + 1})), true}, part(p.in("x", {n + 1})), 0.7);
          ops::scale(p.stream, {part(p.out("stored", {n + 1})), false}, part(p.in("x", {n + 1})), -1.5);
          ops::scale_by(p.stream, {part(p.out("by", {n + 1})), true}, part(p.real_in("x", {n + 1})),
                        p.real_in("times", {}), 3);
          const Tensor a = part(p.in("a", {n + 1})), b = part(p.in("b", {n + 1})), c = part(p.in("c", {n + 1}));
          ops::add(p.stream, part(p.out("sum", {n + 1})), a, b);
          ops::add(p.stream, part(p.out("sum of three", {n + 1})), a, b, c);
        });
      }
  }

  TEST_CASE("layer norm agrees with the CPU" * doctest::skip(!gpu_present())) {
    for (const std::int64_t rows : {0, 1, 37})
      for (const std::int64_t c : {1, 5, 31, 33, 50, 96, 200, 400, 777, 1022, 1023, 1500}) {
        CAPTURE(rows);
        CAPTURE(c);
        every_dtype_agrees(
            [&](Place& p) {
              const Tensor x = p.in("x", {rows, c}), gamma = p.in("gamma", {c}), beta = p.in("beta", {c}),
                           dy = p.in("dy", {rows, c});
              const Tensor mean = p.real_out("mean", {rows}), rstd = p.real_out("rstd", {rows});
              ops::layernorm_forward(p.stream, p.out("y", {rows, c}), mean, rstd, x, gamma, beta, 1e-3);
              ops::layernorm_forward(p.stream, p.out("y alone", {rows, c}), {}, {}, x, gamma, beta, 1e-3);
              ops::layernorm_backward(p.stream, {p.out("dx", {rows, c}), true}, {p.real_out("dgamma", {c}), true},
                                      {p.real_out("dbeta", {c}), true}, dy, x, mean, rstd, gamma);
              if (c > 1)  // else dx is 0 but for rounding
                ops::layernorm_backward(p.stream, {p.out("dx alone", {rows, c}), false}, {}, {}, dy, x, mean, rstd,
                                        gamma);
              ops::layernorm_backward(p.stream, {p.out("dx and more", {rows, c}), true},
                                      {p.real_out("dgamma and more", {c}), true},
                                      {p.real_out("dbeta and more", {c}), true}, dy, x, mean, rstd, gamma,
                                      p.out("derivative", {rows, c}), {p.real_out("sums", {c}), true});
              if (c > 1)
                ops::layernorm_backward(p.stream, {p.out("dx, sums", {rows, c}), false}, {}, {}, dy, x, mean, rstd,
                                        gamma, {}, {p.real_out("sums alone", {c}), false});
            },
            1e-4, 1e-11);
      }
  }

  TEST_CASE("dropout has the CPU's draws" * doctest::skip(!gpu_present())) {
    const std::vector<std::int64_t> offsets = {0, 3, 3, 50, 51};
    const std::vector<std::uint64_t> samples = {7, 9, std::uint64_t{1} << 33, 2};
    const ops::Dropout dropout{.rate = 0.3, .seed = 5, .step = 11, .site = "test"};
    for (const std::int64_t width : {1, 3, 8, 33, 130})
      for (const std::int64_t capacity : {0, 57})
        for (const bool whole : {false, true}) {
          CAPTURE(width);
          CAPTURE(capacity);
          CAPTURE(whole);
          const std::int64_t n = capacity > 0 ? capacity : 51;
          const auto rows = [&](Place& p) { return ops::SampleRows{p.host(offsets), p.host(samples), capacity, 50}; };
          every_dtype_agrees(
              [&](Place& p) {
                ops::dropout(p.stream, {p.out("y", {n, width}), whole}, p.in("x", {n, width}), dropout, rows(p));
              },
              1e-6, 1e-14);
          every_dtype_agrees([&](Place& p) {
            const Tensor x = p.in("x", {n, 4}), w = p.in("w", {width, 4}), b = p.in("b", {width});
            ops::linear_forward(p.stream, p.out("y", {n, width}), p.out("derivative", {n, width}), x, w, b,
                                Activation::gelu, dropout, rows(p), whole ? p.in("residual", {n, width}) : Tensor{});
          });
        }
  }

  TEST_CASE("embeddings agree with the CPU, also where rows are used often" * doctest::skip(!gpu_present())) {
    for (const auto& [rows, c] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 50}, {9, 1}, {9, 131}, {9001, 37}})
      for (const std::size_t uses : {std::size_t{0}, std::size_t{1}, std::size_t{301}}) {
        CAPTURE(rows);
        CAPTURE(c);
        CAPTURE(uses);
        std::vector<std::int32_t> ids(uses);
        for (std::size_t i = 0; i < uses; ++i)  // neighbours, which one warp may own
          ids[i] = static_cast<std::int32_t>((i / 2 * (i / 2) * 14 + i % 2) % to_size(rows));
        const auto m = static_cast<std::int64_t>(uses);
        every_dtype_agrees([&, rows = rows, c = c](Place& p) {
          const auto numbers = p.host(ids);
          ops::embedding_forward(p.stream, p.out("y", {m, c}), p.in("table", {rows, c}), numbers, 1.5);
          ops::embedding_backward(p.stream, p.real_out("dtable", {rows, c}), p.in("dy", {m, c}), numbers, 1.5, 0);
          ops::embedding_backward(p.stream, p.real_out("dtable, no padding", {rows, c}), p.in("dy", {m, c}), numbers, 1,
                                  -1);
        });
      }
  }

  TEST_CASE("gradients of embeddings are added in the order of the ids" * doctest::skip(!gpu_present())) {
    struct Case {
      std::int64_t rows, c;
      std::size_t uses;
    };
    const Philox draws(5, 0, "ids");
    for (const auto& [rows, c, uses] : {Case{1, 2, 9001}, {12, 50, 20000}, {300, 5, 9000}, {70000, 67, 700}}) {
      CAPTURE(rows);
      std::vector<std::int32_t> ids(uses);
      for (std::size_t i = 0; i < uses; ++i) {  // half of them in few rows; the others also beyond 128 * 32 rows
        const std::uint64_t most = i % 2 != 0 ? std::min<std::int64_t>(rows, 3) : rows;
        ids[i] = static_cast<std::int32_t>(draws.below(most, i));
      }
      const auto m = static_cast<std::int64_t>(uses);
      const auto add = [&, rows = rows, c = c](Place& p, std::span<const std::int32_t> list) {
        const Tensor d = p.real_out("d", {rows, c});
        ops::embedding_backward(p.stream, d, p.in("dy", {m, c}), list, 1, 2);
        p.stream.synchronize();
        return d;
      };
      for (const DType type : {DType::f32, DType::f64}) {
        Place here(type, {}), there(type, {DeviceKind::cuda, 0});
        const Tensor expected = add(here, ids);
        CHECK(same_bits(HostView(add(there, there.host(ids))), expected));
        std::vector<std::int32_t> later = ids;
        later.insert(later.begin(), 7);
        const Tensor unaligned = there.ints(later, {m + 1});
        const LastFirst order;
        CHECK(same_bits(HostView(add(there, {unaligned.data<std::int32_t>() + 1, uses})), expected));
      }
    }
  }

  TEST_CASE("gradients of a pair of tables leave out rows after the samples" * doctest::skip(!gpu_present())) {
    const std::vector<std::int64_t> offsets = {0, 2, 5};
    const std::vector<std::uint64_t> samples = {4, 9};
    for (const std::int64_t capacity : {0, 8}) {
      const std::vector<std::int32_t> ids = {1, 3, 1, 0, 3, 0, 0, 1};
      const std::int64_t m = capacity > 0 ? capacity : 5;
      every_dtype_agrees([&](Place& p) {
        ops::embedding_pair_backward(p.stream, p.real_out("dtables", {2, 4, 9}), p.in("dy", {m, 18}),
                                     p.host(ids).first(to_size(m)), {p.host(offsets), p.host(samples), capacity});
      });
    }
  }

  TEST_CASE("sums and means of sequences agree with the CPU" * doctest::skip(!gpu_present())) {
    for (const std::int64_t n : {0, 6, 300})
      for (const std::int64_t width : {8, 5}) {
        every_dtype_agrees([&](Place& p) {
          const Tensor x = p.in("x", {n, 3, width}), table = p.in("table", {1, 3, width}),
                       y = p.in("g", {n / 3, 3, width});
          ops::add_to_each(p.stream, p.out("sum", {n, 3, width}), x, table);
          ops::sum_of_all(p.stream, {p.real_out("added", {1, 3, width}), true}, x);
          ops::sum_of_all(p.stream, {p.real_out("stored", {1, 3, width}), false}, x);
          ops::mean_of_groups(p.stream, {p.out("mean", {n / 3, 3, width}), true}, x);
          ops::spread_mean(p.stream, {p.out("spread", {n, 3, width}), true}, y);
        });
      }
  }
}
