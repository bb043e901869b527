#include "lockstep/ops/hyper_connections.hpp"

#include "lockstep/ops/collapsed_connections.hpp"
#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.hyper_connections") {
  TEST_CASE("gradients, bits and devices for any number of streams; tests/nn/mhc_test.cpp has the definition") {
    const auto run = [](Place& p, Int rows, Int c, Int n) {
      const Int width = n * c;
      const Shape x{rows, n, c}, y{rows, c}, h{rows, n * (2 + n)};
      const Shape site[] = {{}, {}, {}, {n, width}, {n, width}, {n * n, width}, {n}, {n}, {n * n}};
      Tensor w[9];
      Target dw[9];
      for (std::size_t k = 0; k < 9; ++k) {
        w[k] = p.weight(join("w", k), site[k]);
        dw[k] = {p.added(p.sum(join("dw", k), site[k])), true};
      }
      const ops::HyperConnection s{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], 7};
      const ops::HyperConnectionGradients g{dw[0], dw[1], dw[2], dw[3], dw[4], dw[5], dw[6], dw[7], dw[8]};
      const Tensor streams = p.in("x", x), value = p.in("y", y), du = p.in("du", y), dout = p.in("dout", x);
      const Tensor maps = p.real_out("maps", h), raw = p.real_out("raw", h), scale = p.real_out("scale", {rows});
      ops::hyper_maps_forward(p.stream, maps, raw, scale, streams, s);
      ops::hyper_read_forward(p.stream, p.out("u", y), streams, maps, n);
      ops::hyper_write_forward(p.stream, p.out("out", x), streams, maps, value, n);
      const Target dx = p.to("dx", x);
      const Tensor slopes = p.real_in("slopes of maps", h);  // overwritten
      ops::hyper_read_backward(p.stream, dx, {slopes, false}, du, streams, maps, n);
      ops::hyper_write_backward(p.stream, {dx.tensor, true}, {slopes, true}, p.to("dy", y), dout, streams, maps, value,
                                n);
      ops::hyper_maps_backward(p.stream, {dx.tensor, true}, g, slopes, raw, scale, streams, s);
    };
    for (const Int n : {1, 2, 3, 4, 5, 8})
      // In f32 the sums over tokens nearly cancel and keep few digits.
      CHECK(faults(run, {}, {{1, 1, n}, {37, 33, n}, {5, 16, n}, {0, 2, n}},
                   {.f32_rest = 2e-3,
                    .gradient = 1e-6,  // higher derivatives of the Sinkhorn steps are large
                    .gpu = {.f32 = 2e-3, .f64 = 1e-11, .bf16 = 0.016, .f16 = 0.003},
                    .gpu_sizes = {{200, 7, n}}}) == "");
  }

  TEST_CASE("definition, gradients, bits and devices of the collapsed connection, also of vectors near zero") {
    for (const double size : {1.0, 1e-12}) {  // the latter is the epsilon of the norm
      const auto run = [&](Place& p, Int rows, Int c, Int n) {
        const Shape x{rows, c}, w{n, n * c}, b{n};
        const ops::CollapsedConnection site{p.weight("alpha", {}), p.weight("w", w), p.weight("b", b)};
        const Tensor from = p.in("x", x, size), f = p.in("f", x), dy = p.in("dy", x);
        ops::collapsed_connection_forward(p.stream, p.out("y", x), from, f, site);
        ops::collapsed_connection_backward(
            p.stream, p.to("dx", x), p.to("df", x),
            {p.added(p.sum("dalpha", {})), p.added(p.sum("dw", w)), p.added(p.sum("db", b))}, dy, from, f, site);
      };
      const auto definition = [](Plain& r, Int rows, Int c, Int n) {
        const auto alpha = r.in("alpha"), w = r.in("w"), b = r.in("b"), x = r.in("x"), f = r.in("f"), y = r.out("y");
        for (Int m = 0; m < rows; ++m) {
          double squares = 0, g = 0;
          for (Int i = 0; i < c; ++i) squares += x(m, i) * x(m, i) / static_cast<double>(c);
          for (Int k = 0; k < n; ++k) {
            double sum = b(k);
            for (Int i = 0; i < n * c; ++i) sum += w(k, i) * x(m, i % c) / (std::sqrt(squares) + 1e-12);
            g += 2 / (1 + std::exp(-alpha() * sum));
          }
          for (Int i = 0; i < c; ++i) y(m, i) = static_cast<double>(n) * x(m, i) + g * f(m, i);
        }
      };
      const bool tiny = size < 1;
      CHECK(faults(run, definition, {{1, 1, 1}, {37, 33, 4}, {300, 5, 3}, {0, 2, 2}},
                   {.f32 = 1e-5,
                    .f64 = 1e-12,
                    .f32_rest = tiny ? INFINITY : 2e-3,
                    .gradient = tiny ? 0 : 1e-7,
                    .gpu = {.f32 = 2e-3, .f64 = 1e-11, .bf16 = tiny ? 0 : 0x1p-6, .f16 = tiny ? 0 : 0x1p-9}}) == "");
    }
  }
}
