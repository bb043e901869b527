#include "lockstep/ops/normalize.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/tolerance.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_SUITE("ops.normalize") {
  const std::vector<double> kMean = {265.5, -1.25, 0}, kStd = {12.5, 1e-3, 7};

  TEST_CASE("normalise subtracts the mean and divides by the deviation, column by column") {
    Stream stream;
    const std::vector<float> x = {265.5f, -1.25f, 7.f, 278.f, -1.249f, -14.f};
    std::vector<float> y(6);
    ops::normalize(stream, Tensor::of(y.data(), {2, 3}), Tensor::of(x.data(), {2, 3}), kMean, kStd);
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(y[i] == (x[i] - static_cast<float>(kMean[i % 3])) / static_cast<float>(kStd[i % 3]));
    CHECK(y[3] == 1.f);
    CHECK(y[5] == -2.f);
  }

  TEST_CASE("denormalise is the inverse, and a double state keeps its digits on the way into an f32 network") {
    Stream stream;
    const OwnedTensor z = random_tensor(DType::f64, {40, 3}, "z"), x(DType::f64, {40, 3}), back(DType::f64, {40, 3}),
                      narrow(DType::f32, {40, 3});
    ops::denormalize(stream, x.view(), z.view(), kMean, kStd);
    ops::normalize(stream, back.view(), x.view(), kMean, kStd);
    ops::normalize(stream, narrow.view(), x.view(), kMean, kStd);
    CHECK(difference(back, z) < 1e-12);
    CHECK(difference(narrow, z) < 1e-7);  // in f32 alone 265 K would cost four digits
  }

  TEST_CASE("leading dimensions and variables-first layouts address the same elements, and nothing else is touched") {
    Stream stream;
    const OwnedTensor x = random_tensor(DType::f64, {5, 3}, "x"), y(DType::f64, {5, 3});
    ops::normalize(stream, y.view(), x.view(), kMean, kStd);
    std::vector<double> padded(5 * 7, -1), first(3 * 6, -1), out(5 * 4, -1), soa(3 * 6, -1);
    for (std::size_t m = 0; m < 5; ++m)
      for (std::size_t c = 0; c < 3; ++c) padded[m * 7 + c] = first[c * 6 + m] = x->data<double>()[m * 3 + c];
    ops::normalize(stream, ops::StridedRows(out.data(), 5, 3, 4), ops::StridedRows(padded.data(), 5, 3, 7), kMean,
                   kStd);
    ops::normalize(stream, ops::StridedRows(soa.data(), 5, 3, 1, 6), ops::StridedRows(first.data(), 5, 3, 1, 6), kMean,
                   kStd);
    for (std::size_t m = 0; m < 5; ++m) {
      for (std::size_t c = 0; c < 3; ++c) {
        CHECK(out[m * 4 + c] == y->data<double>()[m * 3 + c]);
        CHECK(soa[c * 6 + m] == y->data<double>()[m * 3 + c]);
      }
      CHECK(out[m * 4 + 3] == -1);
    }
    for (std::size_t c = 0; c < 3; ++c) CHECK(soa[c * 6 + 5] == -1);
  }

  TEST_CASE("scaling stores or adds") {
    Stream stream;
    std::vector<float> y = {1, 2, 3}, x = {10, 20, 30};
    const std::vector<double> factor = {1, 0, -2};
    ops::scale_rows(stream, Tensor::of(y.data(), {1, 3}), Tensor::of(x.data(), {1, 3}), factor, true);
    CHECK(y == std::vector<float>{11, 2, -57});
    ops::scale_rows(stream, Tensor::of(y.data(), {1, 3}), Tensor::of(x.data(), {1, 3}), factor);
    CHECK(y == std::vector<float>{10, 0, -60});
  }

  TEST_CASE("no rows and one element work; a wrong number of moments is named") {
    Stream stream;
    const std::vector<double> one = {2};
    float x = 6, y = 0;
    ops::normalize(stream, ops::StridedRows(&y, 0, 1, 1), ops::StridedRows(&x, 0, 1, 1), one, one);
    CHECK(y == 0);
    ops::normalize(stream, ops::StridedRows(&y, 1, 1, 1), ops::StridedRows(&x, 1, 1, 1), one, one);
    CHECK(y == 2);
    CHECK_THROWS_WITH_AS(
        ops::normalize(stream, ops::StridedRows(&y, 1, 1, 1), ops::StridedRows(&x, 1, 1, 1), kMean, one),
        "normalize: x has 1 columns, but there are 3 means and 1 deviations", Error);
  }
}
