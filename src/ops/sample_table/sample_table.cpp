#include "lockstep/ops/sample_table.hpp"

#include "ops/common/on_gpu.hpp"
#include "ops/common/sample_table_kernels.hpp"

namespace lockstep::ops {

void take_samples([[maybe_unused]] Stream& stream, const Tensor& z, const Tensor& t, const SampleTable& table,
                  const RowDraw* draw) {
  require(z.rows() == t.rows() && z.columns() == table.x.columns() && t.columns() == table.y.columns(),
          "taking samples: z is ", z.shape(), " and t ", t.shape(), ", but the table's rows have ", table.x.columns(),
          " inputs and ", table.y.columns(), " targets");
  require(draw->count == z.rows(), "taking samples: ", draw->count, " are drawn, z has ", z.rows(), " rows");
  const bool ran = on_gpu_in_floats(
      z, [&]<class T>() { cuda::take_samples<T>(stream, z.rows(), z, t, cuda::TableView<T>(table), draw); });
  require(ran, "taking samples: the table must be on a GPU");
}

}  // namespace lockstep::ops
