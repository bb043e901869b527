#include "lockstep/ops/spmm.hpp"

#include <omp.h>

#include <algorithm>

#include "ops/common/on_gpu.hpp"
#include "spmm_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Entries in a chunk of work for a thread; below this one thread does all.
constexpr std::int64_t kChunkEntries = 16384;

template <class T, class X>
void run(const Stream& stream, const cpu::SpmmArguments<T, X>& a, const RowSet& rows) {
  const auto multiply = if_built([&]<class>() { cuda::spmm(stream, a, rows); });
  if (on_gpu(stream.device(), [&] { multiply.template operator()<X>(); })) return;
  const auto kernel = cpu::active_spmm_kernel<cpu::SpmmArguments<T, X>>();
  const std::int64_t count = rows.size();
  if (count == 0) return;
  const std::int64_t entries = a.indptr[rows[count - 1] + 1] - a.indptr[rows[0]];
  if (omp_in_parallel() || entries < kChunkEntries) {
    kernel(a, rows, 0, count);
    return;
  }
  // Chunks with about equally many entries. The weight of a row is its number of entries plus one.
  const std::int64_t span = rows[count - 1] + 1 - rows[0];
  const std::int64_t chunks = std::clamp<std::int64_t>((entries + span) / kChunkEntries, 1, count);
  const auto weight_before = [&](std::int64_t i) {
    return i == count ? entries + span : a.indptr[rows[i]] - a.indptr[rows[0]] + rows[i] - rows[0];
  };
  const auto start_of = [&](std::int64_t chunk) {
    const std::int64_t target = (entries + span) * chunk / chunks;
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      weight_before(middle) < target ? low = middle + 1 : high = middle;
    }
    return low;
  };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t first = start_of(chunk), last = chunk + 1 == chunks ? count : start_of(chunk + 1);
    if (last > first) kernel(a, rows, first, last - first);
  }
}

}  // namespace

void spmm(Stream& stream, Target y, const CsrPattern& pattern, const Tensor& values, const Tensor& x,
          const RowSet& rows, RowBits columns) {
  const Tensor& to = y.tensor;
  require(to.rows() == pattern.rows() && to.columns() == x.columns() && values.size() == std::ssize(pattern.column) &&
              to.dtype() == values.dtype(),
          "spmm: the shapes do not fit: a matrix of ", pattern.rows(), " rows and ", pattern.column.size(),
          " entries, ", values.size(), " values, x ", x.shape(), ", y ", to.shape());
  visit_float(to.dtype(), [&]<class T>() {
    const auto arguments = [&]<class X>(const X* p) {
      return cpu::SpmmArguments<T, X>{to,
                                      y.accumulate,
                                      pattern.indptr.data(),
                                      pattern.column.data(),
                                      values,
                                      p,
                                      x.columns(),
                                      columns.empty() ? nullptr : columns.data()};
    };
    if constexpr (std::is_same_v<T, float>) {
      if (x.dtype() == DType::bf16) return run(stream, arguments(x.data<const bf16>()), rows);
      if (x.dtype() == DType::f16) return run(stream, arguments(x.data<const f16>()), rows);
    }
    require(x.dtype() == to.dtype(), "spmm: x has dtype ", x.dtype(), ", but y has ", to.dtype());
    run(stream, arguments(x.data<const T>()), rows);
  });
}

}  // namespace lockstep::ops
