#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/staged_copy.hpp"
#include "row_scores_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// One warp per score. Rows come from L2 in whole cache lines; each id is read once from host memory.
template <class T>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    row_scores_kernel(gpu::Earlier earlier, std::int64_t count, std::int64_t each, std::int64_t columns,
                      real_t<T>* __restrict__ scores, const T* __restrict__ f, const T* __restrict__ table,
                      const std::int32_t* __restrict__ ids) {
  earlier.wait();
  const std::int64_t i = warp_row();
  if (i >= count) return;
  const T *x = f + i / each * columns, *e = table + std::int64_t{ids[i]} * columns;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kWarp)
    sum += static_cast<double>(load(x + c)) * static_cast<double>(load(e + c));
  sum = warp_reduce(sum);
  if (threadIdx.x == 0) scores[i] = static_cast<real_t<T>>(sum);
}

}  // namespace

template <class T>
void row_scores(const Stream& stream, std::int64_t count, std::int64_t each, std::int64_t columns, real_t<T>* scores,
                const T* f, const T* table, const std::int32_t* ids) {
  launch(stream, warp_per_row(count), row_scores_kernel<T>, count, each, columns, scores, f, table, staged_copy(ids));
}

LOCKSTEP_EACH_STORAGE(row_scores)

}  // namespace lockstep::ops::cuda
