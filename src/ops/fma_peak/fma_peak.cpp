#include "lockstep/ops/fma_peak.hpp"

#include <algorithm>
#include <ctime>

#include "fma_peak_kernels.hpp"
#include "lockstep/ops/gemm.hpp"

namespace lockstep::ops {

namespace {
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The rate of work(), which returns its number of operations, in a window of this thread's CPU time.
template <class Work>
double rate_of(double seconds, const Work& work) {
  const double begin = thread_seconds();
  double flops = 0, elapsed = 0;
  do {
    flops += work();
    elapsed = thread_seconds() - begin;
  } while (elapsed < seconds);
  return flops / elapsed;
}

constexpr int kWindows = 8;
}  // namespace

double measure_fma_peak(DType dtype, int threads, double seconds) {
  return visit_float(dtype, [&]<class T>() {
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
      double best = 0, sink = 0;
      for (int window = 0; window < kWindows; ++window)
        best = std::max(best, rate_of(seconds / kWindows, [&] { return cpu::active_fma_rounds<T>(2000, &sink); }));
      total += best;
    }
    return total;
  });
}

std::vector<double> measure_products(std::span<const Isa> isas) {
  constexpr std::int64_t kRows = 192;  // few enough for one thread
  struct Layer {
    explicit Layer(std::int64_t width)
        : x(DType::f32, {kRows, width}), weight(DType::f32, {width, width}), y(DType::f32, {kRows, width}) {}
    OwnedTensor x, weight, y;
  };
  const Layer layers[] = {Layer(64), Layer(100)};
  constexpr double kFlops = 3 * 2.0 * kRows * (64 * 64 + 100 * 100);
  Stream stream;
  const Isa before = active_isa();
  std::vector<double> rates(isas.size());
  for (int window = 0; window < kWindows; ++window)
    for (std::size_t i = 0; i < isas.size(); ++i) {
      use_isa(isas[i]);
      rates[i] = std::max(rates[i], rate_of(1e-3, [&] {
                            for (const auto& [x, weight, y] : layers) {
                              gemm_nt(stream, {y}, x, weight);
                              gemm_nn(stream, {x}, y, weight);
                              gemm_tn(stream, {weight, true}, y, x);
                            }
                            return kFlops;
                          }));
    }
  use_isa(before);
  return rates;
}

Isa fastest(std::span<const Isa> isas, std::span<const double> rates) {
  constexpr double kMargin = 1.05;
  const auto best = std::ranges::max_element(rates);
  return *best > kMargin * rates.back() ? isas[static_cast<std::size_t>(best - rates.begin())] : isas.back();
}

}  // namespace lockstep::ops
