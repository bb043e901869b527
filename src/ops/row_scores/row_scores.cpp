#include "lockstep/ops/row_scores.hpp"

#include "lockstep/device/staged_copy.hpp"
#include "ops/common/on_gpu.hpp"
#include "row_scores_kernels.hpp"

namespace lockstep::ops {

void row_scores(Stream& stream, const Tensor& scores, const Tensor& f, const Tensor& table,
                std::span<const std::int32_t> ids) {
  require(scores.rows() == f.rows() && table.columns() == f.columns() && scores.size() == std::ssize(ids),
          "row_scores: f is ", f.shape(), ", the table ", table.shape(), ", scores ", scores.shape(), ", there are ",
          ids.size(), " ids");
  for (const std::int32_t id : host_readable(table.device(), ids))
    require(id >= 0 && id < table.shape()[0], "row_scores: row ", id, " of a table of ", table.shape()[0], " rows");
  const std::int64_t c = f.columns(), each = scores.columns();
  on_gpu(f, [&]<class T>() { cuda::row_scores<T>(stream, scores.size(), each, c, scores, f, table, ids.data()); });
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
