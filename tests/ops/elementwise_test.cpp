#include "lockstep/ops/elementwise.hpp"

#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.elementwise") {
  TEST_CASE("definition, gradients, bits and devices, at addresses of any alignment") {
    for (const Int shift : {0, 1}) {
      const auto run = [&](Place& p, Int n) {
        p.shift = shift;
        const Tensor a = p.in("a", {n}), b = p.in("b", {n}), c = p.in("c", {n});
        ops::scale(p.stream, p.to("scaled", {n}), a, -1.5);
        ops::scale_by(p.stream, p.to("scaled by", {n}), p.real_in("x", {n}), p.real_weight("times", {}), 3);
        ops::add(p.stream, p.out("two", {n}), a, b);
        ops::add(p.stream, p.out("three", {n}), a, b, c);
      };
      const auto definition = [](Plain& r, Int n) {
        const auto a = r.in("a"), b = r.in("b"), c = r.in("c"), x = r.in("x"), times = r.in("times");
        const auto scaled = r.out("scaled"), by = r.out("scaled by"), two = r.out("two"), three = r.out("three");
        for (Int i = 0; i < n; ++i) {
          scaled(i) = -1.5 * a(i);
          by(i) = 3 * times() * x(i);
          two(i) = a(i) + b(i);
          three(i) = a(i) + b(i) + c(i);
        }
      };
      CHECK(faults(run, definition, {{0}, {1}, {31}, {33}, {1023}}) == "");
    }
  }
}
