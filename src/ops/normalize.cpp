#include "lockstep/ops/normalize.hpp"

#include <type_traits>

#include "lockstep/device/has_cuda.hpp"
#include "normalize_kernels.hpp"

namespace lockstep::ops {

namespace {
/// y_mc = f(x_mc, c), computed in f64 unless both are f32.
template <class F>
void map_columns(const StridedRows& y, const StridedRows& x, const F& f) {
  visit_float(y.dtype, [&]<class Out>() {
    visit_float(x.dtype, [&]<class In>() {
      using Compute = std::conditional_t<std::is_same_v<Out, float> && std::is_same_v<In, float>, float, double>;
      Out* to = static_cast<Out*>(y.data);
      const In* from = static_cast<const In*>(x.data);
      for (std::int64_t m = 0; m < x.rows; ++m, to += y.row_stride, from += x.row_stride)
        for (std::int64_t c = 0; c < x.columns; ++c) {
          Out& at = to[c * y.column_stride];
          at = static_cast<Out>(f(static_cast<Compute>(from[c * x.column_stride]), static_cast<Compute>(at), c));
        }
    });
  });
}
void check(const char* what, const StridedRows& y, const StridedRows& x, std::size_t mean, std::size_t std) {
  require(y.rows == x.rows && y.columns == x.columns, what, ": x has ", x.rows, " rows of ", x.columns, ", y ", y.rows,
          " of ", y.columns, "; they must be equal");
  const auto columns = static_cast<std::size_t>(x.columns);
  require(mean == columns && std == columns, what, ": x has ", x.columns, " columns, but there are ", mean,
          " means and ", std, " deviations");
}
}  // namespace

void normalize(Stream& stream, const StridedRows& y, const StridedRows& x, std::span<const double> mean,
               std::span<const double> std) {
  check("normalize", y, x, mean.size(), std.size());
  if constexpr (kHasCuda) {
    if (stream.device().is_cuda())
      return cuda::map_columns(stream, cuda::ColumnMap::normalize, y, x, mean.data(), std.data());
  }
  map_columns(y, x, [&]<class T>(T value, T, std::int64_t c) {
    const auto i = static_cast<std::size_t>(c);
    return (value - static_cast<T>(mean[i])) / static_cast<T>(std[i]);
  });
}

void denormalize(Stream& stream, const StridedRows& y, const StridedRows& x, std::span<const double> mean,
                 std::span<const double> std) {
  check("denormalize", y, x, mean.size(), std.size());
  if constexpr (kHasCuda) {
    if (stream.device().is_cuda())
      return cuda::map_columns(stream, cuda::ColumnMap::denormalize, y, x, mean.data(), std.data());
  }
  map_columns(y, x, [&]<class T>(T value, T, std::int64_t c) {
    const auto i = static_cast<std::size_t>(c);
    return value * static_cast<T>(std[i]) + static_cast<T>(mean[i]);
  });
}

void scale_rows(Stream& stream, const StridedRows& y, const StridedRows& x, std::span<const double> scale,
                bool accumulate) {
  check("scale_rows", y, x, scale.size(), scale.size());
  if constexpr (kHasCuda) {
    if (stream.device().is_cuda())
      return cuda::map_columns(stream, accumulate ? cuda::ColumnMap::add_scaled : cuda::ColumnMap::scale, y, x,
                               scale.data(), nullptr);
  }
  map_columns(y, x, [&]<class T>(T value, T old, std::int64_t c) {
    const T scaled = value * static_cast<T>(scale[static_cast<std::size_t>(c)]);
    return accumulate ? old + scaled : scaled;
  });
}

}  // namespace lockstep::ops
