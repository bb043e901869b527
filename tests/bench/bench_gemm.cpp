// bench_gemm: the share of the measured FMA peak that the matrix products reach: forward (nt), input gradient (nn) and
// weight gradient (tn), in one run.
//
//   bench_gemm [--threads N] [--seconds S] [--isa generic|avx2|avx512] [--f64]
//
// With one thread: CPU time, median of five windows, so that other processes on the machine do not count. With several:
// wall time, best of the windows.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/ops/fma_peak.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/linear.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;

namespace {
struct Case {
  const char* name;
  std::int64_t m, n, k;  ///< of the layer: x (m, k), weight (n, k), y (m, n)
};
constexpr Case kCases[] = {
    {"emulator first", 64, 64, 14},    {"emulator hidden", 62, 64, 64},  {"emulator hidden", 64, 64, 64},
    {"emulator hidden", 128, 64, 64},  {"emulator hidden", 512, 64, 64}, {"emulator last", 64, 1, 64},
    {"emulator last", 64, 3, 64},      {"sas50", 25600, 50, 50},         {"sas100", 832, 100, 100},
    {"sas256", 25600, 256, 256},       {"hrm laptop qkv", 816, 192, 64}, {"hrm laptop gate", 816, 512, 64},
    {"hrm laptop down", 816, 64, 256}, {"hrm qkv", 656, 1536, 512},      {"hrm gate and up", 656, 3072, 512},
    {"hrm down", 656, 512, 1536},
};

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Returns seconds per call.
template <class F>
double time_of(int threads, double seconds, const F& f) {
  constexpr int kWindows = 5;
  f();
  std::vector<double> windows;
  for (int w = 0; w < kWindows; ++w) {
    const double begin = cpu_seconds();
    const Stopwatch watch;
    int calls = 0;
    do {
      f();
      ++calls;
    } while (watch.seconds() < seconds / kWindows);
    windows.push_back((threads == 1 ? cpu_seconds() - begin : watch.seconds()) / calls);
  }
  std::sort(windows.begin(), windows.end());
  return threads == 1 ? windows[kWindows / 2] : windows[0];
}
}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  double seconds = 0.3;
  DType dtype = DType::f32;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--f64") {
      dtype = DType::f64;
      continue;
    }
    if (arg == "--threads")
      threads = std::max(1, std::atoi(value));
    else if (arg == "--seconds")
      seconds = std::max(0.01, std::atof(value));
    else if (arg == "--isa") {
      for (const ops::Isa isa : ops::available_isas())
        if (std::strcmp(value, ops::name(isa)) == 0) ops::use_isa(isa);
    } else {
      std::fprintf(stderr, "usage: bench_gemm [--threads N] [--seconds S] [--isa generic|avx2|avx512] [--f64]\n");
      return 2;
    }
    ++i;
  }
  omp_set_num_threads(threads);
  const double peak = ops::measure_fma_peak(dtype, threads, 0.4);
  std::printf("%s %s, %d thread%s, FMA peak %.1f GFLOP/s\n", ops::name(ops::active_isa()), name(dtype), threads,
              threads > 1 ? "s" : "", peak / 1e9);
  std::printf("%-16s %6s %5s %5s   %21s %21s %21s %21s\n", "layer", "M", "N", "K", "nt GFLOP/s (peak)",
              "nn GFLOP/s (peak)", "tn GFLOP/s (peak)", "linear+gelu fwd (us)");
  Stream stream;
  for (const Case& c : kCases) {
    const OwnedTensor x = test::random_tensor(dtype, {c.m, c.k}, "x"), w = test::random_tensor(dtype, {c.n, c.k}, "w"),
                      y = test::random_tensor(dtype, {c.m, c.n}, "y"), d = test::random_tensor(dtype, {c.m, c.n}, "d"),
                      b = test::random_tensor(dtype, {c.n}, "b");
    const double flops = 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
    const OwnedTensor dx = test::random_tensor(dtype, {c.m, c.k}, "dx"),
                      dw = test::random_tensor(dtype, {c.n, c.k}, "dw");
    std::printf("%-16s %6ld %5ld %5ld", c.name, static_cast<long>(c.m), static_cast<long>(c.n), static_cast<long>(c.k));
    const auto report = [&](double s) {
      std::printf("      %8.1f (%4.1f%%)", flops / s / 1e9, 100 * flops / s / peak);
    };
    report(time_of(threads, seconds, [&] { ops::gemm_nt(stream, {y, false}, x, w); }));
    report(time_of(threads, seconds, [&] { ops::gemm_nn(stream, {dx, false}, y, w); }));
    report(time_of(threads, seconds, [&] { ops::gemm_tn(stream, {dw, true}, y, x); }));
    const double s =
        time_of(threads, seconds, [&] { ops::linear_forward(stream, y, d, x, w, b, ops::Activation::gelu); });
    std::printf("      %8.1f\n", 1e6 * s);
  }
  return 0;
}
