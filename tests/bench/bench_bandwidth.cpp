// bench_bandwidth: how close the memory-bound kernels come to the bandwidth of a plain copy on the same device, in one
// run.
//
// Each operand has N MiB, more than any cache holds. A rate counts the bytes that an op must read and write, each once;
// for a copy, twice its size. Reports the median of nine windows of wall time, each of several calls and one wait.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "bench/timing.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/embedding.hpp"
#include "lockstep/ops/layernorm.hpp"
#include "lockstep/ops/rmsnorm.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;

namespace {
constexpr std::int64_t kColumns = 512;

/// A tensor on the device filled with copies of one block of random numbers: drawing all of them on the host would take
/// minutes.
class Operand {
 public:
  Operand(const Stream& stream, std::int64_t rows, const char* name)
      : tensor_(DType::f32, {rows, kColumns}, stream.device()) {
    const std::int64_t rows_at_once = std::min<std::int64_t>(rows, 1024);
    const OwnedTensor block = test::random_tensor(DType::f32, {rows_at_once, kColumns}, name);
    for (std::int64_t row = 0; row < rows; row += rows_at_once)
      copy_bytes(stream, tensor_.view().data<float>() + row * kColumns, block.view().data<float>(),
                 sizeof(float) * static_cast<std::size_t>(std::min(rows_at_once, rows - row) * kColumns));
    stream.synchronize();
  }
  operator Tensor() const { return tensor_.view(); }

 private:
  OwnedTensor tensor_;
};

struct Arguments {
  Device device;
  std::int64_t mib = 0;
  double seconds = 0;
  bool json = false;
};

void run(const Arguments& o) {
  Stream stream(o.device);
  const std::int64_t rows = std::max<std::int64_t>(1, (o.mib << 20) / (4 * kColumns)), operand = 4 * rows * kColumns;
  const Operand a(stream, rows, "a"), b(stream, rows, "b"), c(stream, rows, "c");
  const OwnedTensor mean(DType::f32, {rows}, o.device), rstd(DType::f32, {rows}, o.device);
  const Operand gamma(stream, 1, "gamma"), beta(stream, 1, "beta"), dgamma(stream, 1, "dgamma"),
      dbeta(stream, 1, "dbeta");
  const auto vector = [](const Tensor& t) { return Tensor(t.data<float>(), DType::f32, {kColumns}, t.device()); };
  const Buffer pinned = Buffer::pinned(sizeof(std::int32_t) * static_cast<std::size_t>(rows));
  const std::span ids(reinterpret_cast<std::int32_t*>(pinned.data()), static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i)  // every row once, in random order
    ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  for (std::int64_t i = rows - 1; i > 0; --i)
    std::swap(ids[static_cast<std::size_t>(i)], ids[static_cast<std::size_t>((i * 2654435761LL) % (i + 1))]);

  struct Case {
    const char* name;
    int operands;  ///< operands read or written
    std::function<void()> call;
  };
  const Case cases[] = {
      {"copy", 2, [&] { copy(stream, b, a); }},
      {"add", 3, [&] { ops::add(stream, c, a, b); }},
      {"gelu, forward", 3, [&] { ops::activation_forward(stream, b, c, a, ops::Activation::gelu); }},
      {"activation, backward", 3,
       [&] {
         ops::activation_backward(stream, {c, false}, a, b);
       }},
      {"layer norm, forward", 2,
       [&] { ops::layernorm_forward(stream, b, mean, rstd, a, vector(gamma), vector(beta), 1e-5); }},
      {"layer norm, backward", 3,
       [&] {
         ops::layernorm_backward(stream, {c, false}, {vector(dgamma), true}, {vector(dbeta), true}, b, a, mean, rstd,
                                 vector(gamma));
       }},
      {"RMS norm and sum, forward", 3,
       [&] {
         ops::rmsnorm_forward(stream, b, rstd, a, 1e-5, {c, a, {}});
       }},
      {"embedding, forward", 2, [&] { ops::embedding_forward(stream, b, a, ids, 1.0); }},
  };
  double copied = 0;
  if (!o.json) std::printf("%-32s %12s %10s %16s\n", "operation", "us", "GB/s", "of the copy");
  for (const Case& one : cases) {
    const double seconds = bench::time_of(stream, o.seconds, one.call);
    const double rate = static_cast<double>(one.operands) * static_cast<double>(operand) / seconds;
    if (copied == 0) copied = rate;
    if (o.json)
      std::printf("{\"operation\":\"%s\",\"seconds\":%.9g,\"bytes_per_s\":%.6g,\"of_copy\":%.4f}\n", one.name, seconds,
                  rate, rate / copied);
    else
      std::printf("%-32s %12.1f %10.1f %15.0f%%\n", one.name, 1e6 * seconds, rate / 1e9, 100 * rate / copied);
  }
}
}  // namespace

int main(int argc, char** argv) {
  Arguments o;
  std::string device;
  Options options("bench_bandwidth", "Memory-bound kernels compared with a copy on the same device");
  options.choice("device", &device, "cpu", {"cpu", "cuda"}, "where to measure");
  options.add("mib", &o.mib, 256, positive, "MiB of each operand");
  options.add("seconds", &o.seconds, 0.5, positive, "time of each measurement");
  options.add("json", &o.json, false, "print JSON");
  return bench::run(options, argc, argv, [&] {
    if (device == "cuda") o.device = {DeviceKind::cuda, 0};
    run(o);
  });
}
