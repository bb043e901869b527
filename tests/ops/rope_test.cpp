#include "lockstep/ops/rope.hpp"

#include "support/op_row.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.rope") {
  TEST_CASE("rotary positions: definition, gradients, bits and devices") {
    // q and k rotate like complex numbers, v is unchanged.
    const auto run = [](Place& p, Int batch, Int length, Int heads, Int half) {
      const Tensor cos = p.real_weight("cos", {length, half}), sin = p.real_weight("sin", {length, half});
      ops::rope_table(cos, sin, 10000);
      const Tensor qkv = p.out("qkv", {batch, length, 6 * heads * half});
      const Tensor back = p.over("back", qkv);
      ops::rope(p.stream, qkv, cos, sin, 2 * heads, ops::Rotation::forward);
      ops::rope(p.stream, back, cos, sin, 2 * heads, ops::Rotation::inverse);
    };
    const auto definition = [](Plain& r, Int batch, Int length, Int heads, Int half) {
      const auto before = r.in("qkv"), qkv = r.out("qkv"), back = r.out("back");
      for (Int b = 0; b < batch; ++b)
        for (Int t = 0; t < length; ++t)
          for (Int i = 0; i < 6 * heads * half; ++i) {
            const Int head = i / (2 * half), j = i % half;
            const double angle = static_cast<double>(t) *
                                 std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(2 * half));
            const bool second = i / half % 2 == 1, rotated = head < 2 * heads;
            const double other = before(b, t, second ? i - half : i + half) * (second ? 1 : -1);
            const double c = rotated ? std::cos(angle) : 1, s = rotated ? std::sin(angle) : 0;
            qkv(b, t, i) = before(b, t, i) * c + other * s;
            back(b, t, i) = before(b, t, i) * c - other * s;
          }
    };
    CHECK(faults(run, definition, {{2, 5, 3, 5}, {1, 1, 1, 1}, {3, 7, 4, 32}, {2, 3, 2, 33}, {0, 3, 2, 4}}) == "");
  }

  TEST_CASE("a table of another length is an error") {
    const OwnedTensor cos(DType::f32, {4, 3}), sin(DType::f32, {4, 3}), qkv(DType::f32, {1, 5, 18});
    Stream stream;
    CHECK_THROWS_AS(ops::rope(stream, qkv, cos, sin, 2, ops::Rotation::forward), Error);
  }
}
