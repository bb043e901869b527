#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/sample_table_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// One element of z or t per thread; the threads of a row draw it each. Latency bound: rows are scattered in memory.
template <class T>
struct Take {
  T *z, *t;
  TableView<T> table;
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

template <class T>
void take_samples(const Stream& stream, std::int64_t count, T* z, T* t, const TableView<T>& table,
                  const RowDraw* draw) {
  gpu::map<1>(stream, count * (table.n_in + table.n_out), false, Take<T>{z, t, table, draw});
}

LOCKSTEP_EACH_FLOAT(take_samples)

}  // namespace lockstep::ops::cuda
