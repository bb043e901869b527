#include "lockstep/ops/rope.hpp"

#include "lockstep/nn/rope.hpp"
#include "ops/every_isa.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.rope") {
  TEST_CASE("q and k rotate like complex numbers, v is unchanged") {
    for_every_isa([&] {
      const std::int64_t batch = 2, length = 5, heads = 3, half = 5, width = 3 * heads * 2 * half;
      for (const DType dtype : {DType::f32, DType::f64}) {
        const OwnedTensor qkv = random_tensor(dtype, {batch, length, width}, "qkv");
        const OwnedTensor before = converted(qkv, DType::f64), expected = converted(qkv, DType::f64);
        for (std::int64_t m = 0; m < batch * length; ++m)
          for (std::int64_t h = 0; h < 2 * heads; ++h)
            for (std::int64_t j = 0; j < half; ++j) {
              const std::int64_t at = m * width + h * 2 * half + j;
              const double angle =
                  static_cast<double>(m % length) * std::pow(10000.0, -2.0 * static_cast<double>(j) / (2 * half));
              const double a = before->data<double>()[at], b = before->data<double>()[at + half];
              expected->data<double>()[at] = a * std::cos(angle) - b * std::sin(angle);
              expected->data<double>()[at + half] = b * std::cos(angle) + a * std::sin(angle);
            }
        const RopeTable table = make_rope_table(dtype, length, 2 * half, 10000);
        Stream stream;
        ops::rope(stream, qkv, table.cos, table.sin, 2 * heads, ops::Rotation::forward);
        CHECK(difference(qkv, expected) < (dtype == DType::f32 ? 1e-6 : 1e-14));
        ops::rope(stream, qkv, table.cos, table.sin, 2 * heads, ops::Rotation::inverse);
        CHECK(difference(qkv, before) < (dtype == DType::f32 ? 1e-6 : 1e-14));
      }
    });
  }

  TEST_CASE("a table of another length is an error") {
    const RopeTable table = make_rope_table(DType::f32, 4, 6, 100);
    const OwnedTensor qkv(DType::f32, {1, 5, 18});
    Stream stream;
    CHECK_THROWS_AS(ops::rope(stream, qkv, table.cos, table.sin, 2, ops::Rotation::forward), Error);
  }
}
