#include "lockstep/ops/sample_table.hpp"

#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/sample_table_view.hpp"

namespace lockstep::ops {

namespace {

/// One element of z or t per thread; each thread draws its row. Latency bound: rows are scattered in memory.
template <class T>
struct Take {
  T *z, *t;
  cuda::TableView<T> table;
  const RowDraw* draw;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t columns = table.n_in + table.n_out, row = gpu::quotient(i, columns), c = i - row * columns;
    const T value = normalised(table, table.order[(*draw)(row)], c);
    if (c < table.n_in)
      z[row * table.n_in + c] = value;
    else
      t[row * table.n_out + c - table.n_in] = value;
  }
};

}  // namespace

void take_samples(Stream& stream, const Tensor& z, const Tensor& t, const SampleTable& table, const RowDraw* draw) {
  require(z.rows() == t.rows() && z.columns() == table.x.columns() && t.columns() == table.y.columns(),
          "taking samples: z is ", z.shape(), " and t ", t.shape(), ", but the table's rows have ", table.x.columns(),
          " inputs and ", table.y.columns(), " targets");
  require(draw->count == z.rows(), "taking samples: ", draw->count, " are drawn, z has ", z.rows(), " rows");
  const bool ran = on_gpu_in_floats(z, [&]<class T>() {
    gpu::map<1>(stream, z.size() + t.size(), false, Take<T>{z, t, cuda::TableView<T>(table), draw});
  });
  require(ran, "taking samples: the table must be on a GPU");
}

}  // namespace lockstep::ops
