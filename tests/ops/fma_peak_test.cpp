#include "lockstep/ops/fma_peak.hpp"

#include <doctest/doctest.h>

#include "ops/every_isa.hpp"

using namespace lockstep;

TEST_SUITE("ops.fma_peak") {
  TEST_CASE("the peak is that of a processor, and wider vectors or narrower numbers do not lower it") {
    double before = 0;
    test::for_every_isa([&] {
      const double f32 = ops::measure_fma_peak(DType::f32, 1, 0.04), f64 = ops::measure_fma_peak(DType::f64, 1, 0.04);
      CHECK(f32 > 1e9);
      CHECK(f32 < 2e12);
      CHECK(f32 > 1.3 * f64);
      CHECK(f32 > 1.1 * before);
      before = f32;
    });
  }
}
