#include "lockstep/ops/cast.hpp"

#include "lockstep/ops/gemm.hpp"
#include "ops/on_both.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {
constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr DType kHalves[] = {DType::bf16, DType::f16};

/// Converts x to another dtype on the GPU.
OwnedTensor cast_there(const Tensor& x, DType dtype) {
  Stream stream(kGpu);
  const OwnedTensor from = on_device(x, kGpu), to(dtype, x.shape(), kGpu);
  ops::cast(stream, to, from);
  return on_cpu(to);
}
}  // namespace

TEST_SUITE("ops.cast.cuda") {
  TEST_CASE("a cast rounds as on the host, for any size" * doctest::skip(gpu_count() == 0)) {
    for (const std::int64_t n : {0, 1, 7, 8, 33, 1023})
      for (const DType half : kHalves)
        for (const DType from : {DType::f32, DType::f64}) {
          CAPTURE(n);
          const OwnedTensor x = random_tensor(from, {n}, "x");
          const OwnedTensor rounded = converted(converted(x, DType::f32), half);
          CHECK(same_bits(cast_there(x, half), rounded));
          CHECK(same_bits(cast_there(rounded, DType::f32), converted(rounded, DType::f32)));
        }
  }

  TEST_CASE("numbers out of range become infinite in f16 and stay in bf16, NaN stays NaN" *
            doctest::skip(gpu_count() == 0)) {
    const std::vector<float> values = {65504.0f, 65519.0f, 65520.0f, -1e30f, 5e-8f, std::nanf("")};
    const Tensor x = Tensor::of(values.data(), {6});
    const OwnedTensor f16s = converted(cast_there(x, DType::f16), DType::f32);
    const OwnedTensor bf16s = converted(cast_there(x, DType::bf16), DType::f32);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float expected[] = {65504.0f, 65504.0f, kInfinity, -kInfinity, 0x1p-24f};
    for (int i = 0; i < 5; ++i) CHECK(f16s->data<float>()[i] == expected[i]);
    CHECK(std::isnan(f16s->data<float>()[5]));
    for (int i = 0; i < 5; ++i) CHECK(std::isfinite(bf16s->data<float>()[i]));
    CHECK(std::isnan(bf16s->data<float>()[5]));
  }

  TEST_CASE("the CPU rejects halves and lists its dtypes") {
    Stream stream;
    const OwnedTensor x(DType::f32, {3}), y(DType::bf16, {3});
    CHECK_THROWS_WITH_AS(ops::cast(stream, y, x),
                         "cast: cannot convert f32 to bf16 on the CPU, which has only f32 and f64", Error);
    CHECK_THROWS_WITH_AS(
        ops::gemm_nt(stream, {OwnedTensor(DType::bf16, {3, 3}).view()}, y->reshaped({3, 1}), y->reshaped({3, 1})),
        "this operation computes in f32 or f64, not in bf16", Error);
  }

  TEST_CASE("TF32 rounds the operands of a product, and only if allowed" * doctest::skip(gpu_count() == 0)) {
    const auto product = [&](DType dtype) {
      Place p(dtype, kGpu);
      const Tensor c = p.out("c", {33, 20});
      ops::gemm_nt(p.stream, {c}, p.in("a", {33, 70}), p.in("b", {20, 70}));
      return on_cpu(c);
    };
    const OwnedTensor exact = product(DType::f64), single = product(DType::f32);
    ops::allow_tf32(true);
    const OwnedTensor tf32 = product(DType::f32), wide = product(DType::f64);
    ops::allow_tf32(false);
    CHECK(same_bits(product(DType::f32), single));
    CHECK(same_bits(wide, exact));
    CHECK(difference(single, converted(exact, DType::f32)) < 1e-6);
    const Difference d = difference(tf32, converted(exact, DType::f32));
    CHECK(d < 2e-3);
    CHECK(d.relative > 1e-5);
  }
}
