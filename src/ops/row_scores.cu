
#include "lockstep/ops/row_scores.hpp"

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// One warp per score. Rows come from L2 in whole cache lines; each id is read once from host memory.
template <class T>
__global__ void __launch_bounds__(gpu::kWarp* gpu::kRowWarps)
    row_scores_kernel(gpu::Earlier earlier, std::int64_t count, std::int64_t each, std::int64_t columns,
                      real_t<T>* __restrict__ scores, const T* __restrict__ f, const T* __restrict__ table,
                      const std::int32_t* __restrict__ ids) {
  earlier.wait();
  const std::int64_t i = gpu::warp_row();
  if (i >= count) return;
  const T *x = f + i / each * columns, *e = table + std::int64_t{ids[i]} * columns;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += gpu::kWarp)
    sum += static_cast<double>(gpu::load(x + c)) * static_cast<double>(gpu::load(e + c));
  sum = gpu::warp_reduce(sum);
  if (threadIdx.x == 0) scores[i] = static_cast<real_t<T>>(sum);
}

}  // namespace

void row_scores(Stream& stream, const Tensor& scores, const Tensor& f, const Tensor& table,
                std::span<const std::int32_t> ids) {
  require(scores.rows() == f.rows() && table.columns() == f.columns() && scores.size() == std::ssize(ids),
          "row_scores: f is ", f.shape(), ", the table ", table.shape(), ", scores ", scores.shape(), ", there are ",
          ids.size(), " ids");
  for (const std::int32_t id : host_readable(table.device(), ids))
    require(id >= 0 && id < table.shape()[0], "row_scores: row ", id, " of a table of ", table.shape()[0], " rows");
  const std::int64_t c = f.columns(), each = scores.columns();
  on_gpu(f, [&]<class T>() {
    gpu::launch(stream, gpu::warp_per_row(scores.size()), row_scores_kernel<T>, scores.size(), each, c,
                scores.data<real_t<T>>(), f.data<T>(), table.data<T>(), staged_copy(ids.data()));
  });
  on_cpu(f, [&]<class T>() {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const T *x = f.data<T>() + static_cast<std::int64_t>(i) / each * c, *e = table.data<T>() + ids[i] * c;
      double sum = 0;
      for (std::int64_t k = 0; k < c; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(e[k]);
      scores.data<T>()[i] = static_cast<T>(sum);
    }
  });
}

}  // namespace lockstep::ops
