// bench_item_softmax: the exact softmax loss over all items, forward and backward, and the share of the measured FMA
// peak that it and its matrix products alone reach, in one thread.
//
//   bench_item_softmax [TARGETS ITEMS WIDTH]     the default is a batch of configs/sasrec-ml1m-softmax.ini
//
// Prints one JSON line; CPU time, medians.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench/timing.hpp"
#include "lockstep/ops/fma_peak.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/ops/item_softmax.hpp"
#include "support/tolerance.hpp"

using namespace lockstep;

int main(int argc, char** argv) {
  const auto number = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const std::int64_t m = number(1, 13400), k = number(2, 3266), c = number(3, 50);
  if (m < 1 || k < 1 || c < 1) {
    std::fprintf(stderr, "usage: bench_item_softmax [TARGETS ITEMS WIDTH], each at least 1\n");
    return 2;
  }
  omp_set_num_threads(1);
  const OwnedTensor f = test::random_tensor(DType::f32, {m, c}, "f"), df(DType::f32, {m, c}),
                    table = test::random_tensor(DType::f32, {k + 1, c}, "table"), dtable(DType::f32, {k + 1, c}),
                    loss(DType::f32, {}), dloss(DType::f32, {}), state(DType::f32, {3, m}),
                    scratch(DType::f32, {ops::softmax_scratch({}, false, m, k, c)});
  std::vector<std::int32_t> pos;
  for (std::int64_t i = 0; i < m; ++i) pos.push_back(static_cast<std::int32_t>(1 + i * 7 % k));
  *dloss->data<float>() = 1;
  const ops::SoftmaxCandidates all{.rows = table->slice(1, k), .ids = {}, .bias = {}};
  Stream stream;
  const auto cpu_seconds_of = [&](const std::function<void()>& f) {
    return bench::time_of(stream, 1, f, bench::Clock::processor);
  };
  const double forward =
      cpu_seconds_of([&] { ops::item_softmax_forward(stream, loss, state, scratch, f, table, all, pos); });
  const double backward = cpu_seconds_of([&] {
    ops::item_softmax_backward(stream, {df.view()}, {dtable->slice(1, k), true}, dtable, dloss, state, scratch, f,
                               table, all, pos);
  });
  // The four products of each tile, without what lies between them.
  const double products = cpu_seconds_of([&] {
    for (std::int64_t i = 0; i < m; i += 512) {
      for (std::int64_t j = 0; j < k; j += ops::kSoftmaxTile) {
        const std::int64_t rows = std::min<std::int64_t>(512, m - i), items = std::min(ops::kSoftmaxTile, k - j);
        const Tensor z(scratch->raw(), DType::f32, {rows, items}), x = f->slice(i, rows), w = all.rows.slice(j, items);
        ops::gemm_nt(stream, {z}, x, w);
        ops::gemm_nt(stream, {z}, x, w);
        ops::gemm_tn(stream, {dtable->slice(1 + j, items), true}, z, x);
        ops::gemm_nn(stream, {df->slice(i, rows), true}, z, w);
      }
    }
  });
  const double peak = ops::measure_fma_peak(DType::f32, 1, 0.4);
  const double flops = 8.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(c);
  std::printf(
      "{\"seconds\": %.4f, \"forward\": %.4f, \"backward\": %.4f, \"fma_peak_share\": %.3f, "
      "\"products_share\": %.3f, \"fma_peak_gflops\": %.1f}\n",
      forward + backward, forward, backward, flops / (forward + backward) / peak, flops / products / peak, peak / 1e9);
  return 0;
}
