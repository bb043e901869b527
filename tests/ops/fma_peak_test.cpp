#include "lockstep/ops/fma_peak.hpp"

#include "ops/every_isa.hpp"
#include "ops/fma_peak/fma_peak_kernels.hpp"
#include "support/test.hpp"

/// Tests how many operations are counted, not the speed, which depends on the load of the machine.
TEST_SUITE("ops.fma_peak") {
  TEST_CASE("the counted operations are done, twice as many per round in f32 as in f64, more with wider vectors") {
    double before = 0;
    for_every_isa([&] {
      double sink32 = 0, sink64 = 0;
      const double f32 = ops::cpu::active_fma_rounds<float>(5000, &sink32);
      const double f64 = ops::cpu::active_fma_rounds<double>(5000, &sink64);
      CHECK(f32 == 2 * f64);
      CHECK(f32 == 2 * ops::cpu::active_fma_rounds<float>(2500, &sink32));
      CHECK(f32 >= before);
      before = f32;
      // Each of the 12 chains x -> 0.999 x + 0.001 ends at 1, wherever it begins.
      CHECK(sink32 == Approx(12).epsilon(1e-3));
      CHECK(sink64 == Approx(12).epsilon(1e-6));
    });
  }

  TEST_CASE("a peak is measured in both types, on any number of threads") {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const int threads : {1, 2}) {
        const double peak = ops::measure_fma_peak(dtype, threads, 0.004);
        CHECK(peak > 0);
        CHECK(peak < 1e14);  // not infinite: a window that took no time
      }
  }

  TEST_CASE("products are measured with each instruction set; the active one stays") {
    const ops::Isa before = ops::active_isa();
    const std::vector<ops::Isa>& isas = ops::available_isas();
    const std::vector<double> rates = ops::measure_products(isas);
    CHECK(std::ssize(rates) == std::ssize(isas));
    CHECK(ops::active_isa() == before);
    CHECK(rates.front() > 0);
    CHECK(rates.back() < 1e14);
    CHECK(ops::fastest(isas, rates) == isas.back());  // the first one lacks fused multiply-adds
  }

  TEST_CASE("the fastest instruction set; the last one, unless another is clearly faster") {
    using enum ops::Isa;
    const std::vector<ops::Isa> isas = {avx2, avx512};
    CHECK(ops::fastest(isas, std::vector{60e9, 100e9}) == avx512);
    CHECK(ops::fastest(isas, std::vector{104e9, 100e9}) == avx512);
    CHECK(ops::fastest(isas, std::vector{106e9, 100e9}) == avx2);
    CHECK(ops::fastest({isas.data(), 1}, std::vector{1e9}) == avx2);
  }
}
