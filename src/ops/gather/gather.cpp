#include "lockstep/ops/gather.hpp"

#include <cstring>

#include "gather_kernels.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

void gather_rows(Stream& stream, const Tensor& y, const Tensor& table, std::span<const std::int64_t> rows) {
  require(table.shape().rank() >= 1 && y.shape().rank() == table.shape().rank() && y.dtype() == table.dtype(),
          "gather_rows: table is ", table.shape(), " of ", table.dtype(), ", y ", y.shape(), " of ", y.dtype(),
          "; they may differ in their first extent only");
  for (int axis = 1; axis < y.shape().rank(); ++axis)
    require(y.shape()[axis] == table.shape()[axis], "gather_rows: table is ", table.shape(), ", y ", y.shape(),
            "; they may differ in their first extent only");
  const std::int64_t available = table.shape()[0], count = y.shape()[0];
  require(count == static_cast<std::int64_t>(rows.size()), "gather_rows: y is ", y.shape(), ", but there are ",
          rows.size(), " row numbers");
  if (y.size() == 0) return;
  const std::size_t bytes = y.size_bytes() / static_cast<std::size_t>(count);
  for (const std::int64_t row : rows)
    require(row >= 0 && row < available, "gather_rows: row ", row, " of a table of ", available, " rows");
  if constexpr (kHasCuda) {
    if (y.device().is_cuda()) return cuda::gather_rows(stream, count, bytes, y.raw(), table.raw(), rows.data());
  }
  auto* to = static_cast<std::byte*>(y.raw());
  const auto* from = static_cast<const std::byte*>(table.raw());
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * bytes, bytes);
    to += bytes;
  }
}

}  // namespace lockstep::ops
