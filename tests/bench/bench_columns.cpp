// bench_columns: liblockstep with one column at a time, as forecast models call it, and with many at once, beside a
// plain Fortran loop over the columns. Network 14-64-64-64-1, erf-GELU.
//
//   bench_columns DIRECTORY               writes the network there (model.lsem, .onnx, .safetensors) with 1000 states
//                                         and their predictions and Jacobians (x, y, j: raw double values)
//   bench_columns MODEL.lsem THREADS [S]  a JSON line per case: seconds per call, the median of windows that take S
//                                         seconds (0.1) together; processor time with one thread, else wall time
//   bench_columns MODEL.lsem first        opens the model and predicts one column, as a new process does
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>

#include "bench/timing.hpp"
#include "lockstep/base/stopwatch.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/lockstep.h"
#include "lockstep/ops/fma_peak.hpp"
#include "support/random_emulator.hpp"

using namespace lockstep;

#if LOCKSTEP_BENCH_FORTRAN
// plain_columns.F90
#define PLAIN_COLUMNS(T, NAME)                                                                          \
  void plain_predict_##NAME(long n, long n_in, long n_out, long hidden, long layers, const T* weights,  \
                            const T* moments, const T* x, T* y, int threads);                           \
  void plain_jacobian_##NAME(long n, long n_in, long n_out, long hidden, long layers, const T* weights, \
                             const T* moments, const T* x, T* j, int threads);                          \
  long one_column_calls_##NAME(void* model, long n, long n_in, long n_out, const T* x, T* y, int threads);
extern "C" {
PLAIN_COLUMNS(float, f32)
PLAIN_COLUMNS(double, f64)
}
#endif

namespace {

constexpr long kColumns[] = {1, 10, 100, 1000, 100000};

void must(int status) { require(status == LSEM_OK, "liblockstep: ", lsem_last_error()); }

lsem_model* opened(const char* path) {
  lsem_model* model = nullptr;
  must(lsem_open(path, &model));
  return model;
}

template <class T>
std::vector<T> states(const Emulator& network, long n) {
  const std::vector<double> some = test::random_states(network, std::min(n, 1000L));
  std::vector<T> x(static_cast<std::size_t>(n * network.arch().n_in));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(some[i % some.size()]);
  return x;
}

void write_files(const std::filesystem::path& directory) {
  const Emulator network = test::random_emulator({.n_in = 14, .n_out = 1, .hidden = 64, .layers = 3}, DType::f32);
  for (const auto& [format, name] : {std::pair{EmulatorFormat::lsem, "model.lsem"},
                                     {EmulatorFormat::onnx, "model.onnx"},
                                     {EmulatorFormat::safetensors, "model.safetensors"}})
    write_emulator(directory / name, format, network, {});
  const long n = 1000, in = network.arch().n_in, out = network.arch().n_out;
  const std::vector<double> x = states<double>(network, n);
  std::vector<double> y(static_cast<std::size_t>(n * out)), j(static_cast<std::size_t>(n * out * in));
  lsem_model* model = opened((directory / "model.lsem").c_str());
  must(lsem_predict_f64(model, n, x.data(), in, y.data(), out, nullptr));
  must(lsem_jac_f64(model, n, x.data(), in, nullptr, 1, j.data(), nullptr));
  lsem_close(model);
  const auto write = [&](const char* name, const std::vector<double>& values) {
    write_text_atomically(directory / name,
                          {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  };
  write("x", x);
  write("y", y);
  write("j", j);
}

void first_call(const char* path) {
  const Stopwatch open;
  lsem_model* model = opened(path);
  const double open_s = open.seconds();
  const std::vector<double> x(static_cast<std::size_t>(lsem_n_in(model)), 0.5);
  std::vector<double> y(static_cast<std::size_t>(lsem_n_out(model)));
  const Stopwatch first;
  must(lsem_predict_f64(model, 1, x.data(), lsem_n_in(model), y.data(), lsem_n_out(model), nullptr));
  const double first_s = first.seconds();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::printf(
      "{\"side\": \"liblockstep\", \"open_s\": %.3g, \"first_s\": %.3g, \"ready_ns\": %lld, \"memory_mb\": %.1f}\n",
      open_s, first_s, static_cast<long long>(std::chrono::nanoseconds(now).count()),
      static_cast<double>(used.ru_maxrss) / 1000);
}

template <class T>
struct Api;
template <>
struct Api<float> {
  static constexpr auto predict = lsem_predict_f32;
  static constexpr auto jac = lsem_jac_f32;
  static constexpr const char* name = "f32";
  static constexpr int workspace = LSEM_WS_JAC_F32;
  static constexpr double tolerance = 1e-5;
};
template <>
struct Api<double> {
  static constexpr auto predict = lsem_predict_f64;
  static constexpr auto jac = lsem_jac_f64;
  static constexpr const char* name = "f64";
  static constexpr int workspace = LSEM_WS_JAC_F64;
  static constexpr double tolerance = 1e-12;
};

template <class T>
void check_close(const std::vector<T>& a, const std::vector<T>& b) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  require(worst <= Api<T>::tolerance * largest, "the Fortran loop differs from liblockstep by ", worst, " of ",
          largest);
}

template <class T>
void measure(const char* path, const Emulator& source, int threads, double seconds) {
  lsem_model* model = opened(path);
  must(lsem_set_threads(model, threads));
  const long in = lsem_n_in(model), out = lsem_n_out(model);
  const bench::Clock clock = threads == 1 ? bench::Clock::processor : bench::Clock::wall;
  const double peak = ops::measure_fma_peak(dtype_of<T>::value, threads);
  const auto report = [&](const char* side, const char* what, long n, const std::function<void()>& call) {
    const double s = bench::time_of(Stream(), seconds, call, clock);
    std::printf(
        "{\"side\": \"%s\", \"what\": \"%s\", \"type\": \"%s\", \"columns\": %ld, \"threads\": %d, \"seconds\": %.4g, "
        "\"fma_peak\": %.4g}\n",
        side, what, Api<T>::name, n, threads, s, peak);
  };
  for (const long n : kColumns) {
    const std::vector<T> x = states<T>(source, n);
    std::vector<T> y(static_cast<std::size_t>(n * out)), j(static_cast<std::size_t>(n * out * in));
    std::vector<std::max_align_t> workspace(
        lsem_workspace_bytes(model, n, Api<T>::workspace) / sizeof(std::max_align_t) + 1);
    report("liblockstep", "predict", n,
           [&] { must(Api<T>::predict(model, n, x.data(), in, y.data(), out, workspace.data())); });
    report("liblockstep", "jacobian", n,
           [&] { must(Api<T>::jac(model, n, x.data(), in, nullptr, 1, j.data(), workspace.data())); });
#if LOCKSTEP_BENCH_FORTRAN
    const Emulator network = source.as(dtype_of<T>::value);
    const EmulatorArch& arch = network.arch();
    std::vector<T> weights, moments, plain_y(y.size()), plain_j(j.size());
    for (std::int64_t k = 0; k <= arch.layers; ++k)
      for (const Param* p : {&network.weight(k), &network.bias(k)})
        for (const T value : p->value.template span<T>()) weights.push_back(value);
    const Moments& m = network.moments();
    for (const auto* values : {&m.input_mean, &m.input_std, &m.output_mean, &m.output_std})
      for (const double value : *values) moments.push_back(static_cast<T>(value));
    constexpr bool kSingle = sizeof(T) == 4;
    const auto run = [&](const auto& predict, const auto& jacobian, const auto& calls) {
      report("Fortran loop", "predict", n, [&] {
        predict(n, in, out, arch.hidden, arch.layers, weights.data(), moments.data(), x.data(), plain_y.data(),
                threads);
      });
      check_close(plain_y, y);
      report("Fortran loop", "jacobian", n, [&] {
        jacobian(n, in, out, arch.hidden, arch.layers, weights.data(), moments.data(), x.data(), plain_j.data(),
                 threads);
      });
      check_close(plain_j, j);
      if (n < 1000) return;
      lsem_model* alone = opened(path);
      report("liblockstep, one column per call", "predict", n,
             [&] { require(calls(alone, n, in, out, x.data(), plain_y.data(), threads) == 0, "liblockstep failed"); });
      lsem_close(alone);
      require(plain_y == y, "columns one by one have other bits than together");
    };
    if constexpr (kSingle)
      run(plain_predict_f32, plain_jacobian_f32, one_column_calls_f32);
    else
      run(plain_predict_f64, plain_jacobian_f64, one_column_calls_f64);
#endif
  }
  lsem_close(model);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 2 ? argv[2] : "";
  if (argc == 2) {
    write_files(argv[1]);
  } else if (mode == "first") {
    first_call(argv[1]);
  } else {
    require_usage(argc == 3 || argc == 4,
                  "usage: bench_columns DIRECTORY, or MODEL.lsem THREADS [SECONDS] or MODEL.lsem first");
    const TrainedEmulator source = read_flat_emulator(argv[1]);
    const double seconds = argc > 3 ? std::stod(argv[3]) : 0.1;
    measure<float>(argv[1], source.network, std::stoi(mode), seconds);
    measure<double>(argv[1], source.network, std::stoi(mode), seconds);
#if !LOCKSTEP_BENCH_FORTRAN
    std::fprintf(stderr, "bench_columns: the Fortran loop is left out: there was no Fortran compiler\n");
#endif
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_columns: %s\n", error.what());
  return 1;
}
