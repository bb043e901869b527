#include <type_traits>

#include "cuda_map.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "normalize_kernels.hpp"

namespace lockstep::ops::cuda {
namespace {

/// An element per thread and turn, in the order of the rows. Memory bound where a row's columns are neighbours.
template <ColumnMap kMap, class Out, class In>
__global__ void __launch_bounds__(256)
    map_columns_kernel(StridedRows y, StridedRows x, const double* __restrict__ first,
                       const double* __restrict__ second) {
  using Compute = std::conditional_t<std::is_same_v<Out, float> && std::is_same_v<In, float>, float, double>;
  const std::int64_t count = x.rows * x.columns, stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const std::int64_t m = gpu::quotient(i, x.columns), c = gpu::remainder(i, x.columns);
    const auto value = static_cast<Compute>(static_cast<const In*>(x.data)[m * x.row_stride + c * x.column_stride]);
    Out& to = static_cast<Out*>(y.data)[m * y.row_stride + c * y.column_stride];
    const auto a = static_cast<Compute>(first[c]);
    if constexpr (kMap == ColumnMap::normalize)
      to = static_cast<Out>((value - a) / static_cast<Compute>(second[c]));
    else if constexpr (kMap == ColumnMap::denormalize)
      to = static_cast<Out>(value * static_cast<Compute>(second[c]) + a);
    else if constexpr (kMap == ColumnMap::scale)
      to = static_cast<Out>(value * a);
    else
      to = static_cast<Out>(static_cast<Compute>(to) + value * a);
  }
}

template <ColumnMap kMap>
void run(const Stream& stream, const StridedRows& y, const StridedRows& x, const double* first, const double* second) {
  visit_float(y.dtype, [&]<class Out>() {
    visit_float(x.dtype, [&]<class In>() {
      gpu::launch(stream, gpu::grid_for(x.rows * x.columns), map_columns_kernel<kMap, Out, In>, y, x, first, second);
    });
  });
}

}  // namespace

void map_columns(const Stream& stream, ColumnMap map, const StridedRows& y, const StridedRows& x, const double* mean,
                 const double* std) {
  if (x.rows * x.columns == 0) return;
  gpu::ScratchPlan plan;
  const auto first = plan.add<double>(x.columns), second = plan.add<double>(x.columns);
  std::byte* memory = gpu::scratch(stream, plan.size_bytes());
  const std::size_t bytes = static_cast<std::size_t>(x.columns) * sizeof(double);
  copy_bytes(stream, first.in(memory), mean, bytes);
  if (std != nullptr) copy_bytes(stream, second.in(memory), std, bytes);
  const double *a = first.in(memory), *b = second.in(memory);
  switch (map) {
    case ColumnMap::normalize:
      return run<ColumnMap::normalize>(stream, y, x, a, b);
    case ColumnMap::denormalize:
      return run<ColumnMap::denormalize>(stream, y, x, a, b);
    case ColumnMap::scale:
      return run<ColumnMap::scale>(stream, y, x, a, b);
    case ColumnMap::add_scaled:
      return run<ColumnMap::add_scaled>(stream, y, x, a, b);
  }
}

}  // namespace lockstep::ops::cuda
