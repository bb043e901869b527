// bench_gemm: the share of the measured FMA peak that the matrix products reach: forward (nt), input gradient (nn) and
// weight gradient (tn), in one run.
//
// With one thread it counts processor time, so that other processes on the machine do not matter, with several wall
// time; the median of windows.
#include <omp.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/timing.hpp"
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

void run(int threads, double seconds, DType dtype) {
  const bench::Clock clock = threads == 1 ? bench::Clock::processor : bench::Clock::wall;
  omp_set_num_threads(threads);
  const double peak = ops::measure_fma_peak(dtype, threads, 0.4);
  std::printf("%s %s, %d thread%s, FMA peak %.1f GFLOP/s\n", name(ops::active_isa()), name(dtype), threads,
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
    const auto time_of = [&](const std::function<void()>& f) { return bench::time_of(stream, seconds, f, clock); };
    const auto report = [&](double s) {
      std::printf("      %8.1f (%4.1f%%)", flops / s / 1e9, 100 * flops / s / peak);
    };
    report(time_of([&] { ops::gemm_nt(stream, {y, false}, x, w); }));
    report(time_of([&] { ops::gemm_nn(stream, {dx, false}, y, w); }));
    report(time_of([&] { ops::gemm_tn(stream, {dw, true}, y, x); }));
    const double s = time_of([&] { ops::linear_forward(stream, y, d, x, w, b, ops::Activation::gelu); });
    std::printf("      %8.1f\n", 1e6 * s);
  }
}
}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  double seconds = 0;
  bool f64 = false;
  std::string isa;
  std::vector<std::string> isas;
  for (const ops::Isa each : ops::available_isas()) isas.emplace_back(name(each));
  Options options("bench_gemm", "Share of the measured FMA peak that the matrix products reach");
  options.add("threads", &threads, 1, positive, "threads");
  options.add("seconds", &seconds, 0.3, positive, "time of each measurement");
  options.choice("isa", &isa, isas.back(), isas, "instruction set");
  options.add("f64", &f64, false, "double precision");
  return bench::run(options, argc, argv, [&] {
    for (const ops::Isa each : ops::available_isas())
      if (isa == name(each)) ops::use_isa(each);
    run(threads, seconds, f64 ? DType::f64 : DType::f32);
  });
}
