#include "lockstep/ops/fma_peak.hpp"

#include <algorithm>
#include <ctime>

#include "fma_peak_kernels.hpp"

namespace lockstep::ops {

namespace {
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
}  // namespace

double measure_fma_peak(DType dtype, int threads, double seconds) {
  return visit_float(dtype, [&]<class T>() {
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
      constexpr int kWindows = 8;
      double best = 0, sink = 0;
      for (int window = 0; window < kWindows; ++window) {
        const double begin = thread_seconds();
        double flops = 0, elapsed = 0;
        do {
          flops += cpu::active_fma_rounds<T>(2000, &sink);
          elapsed = thread_seconds() - begin;
        } while (elapsed < seconds / kWindows);
        best = std::max(best, flops / elapsed);
      }
      total += best;
    }
    return total;
  });
}

}  // namespace lockstep::ops
