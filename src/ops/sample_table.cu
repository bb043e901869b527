#include "lockstep/ops/sample_table.hpp"

#include "ops/common/map_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/sample_table_view.hpp"

namespace lockstep::ops {

namespace {

/// One element of z or t per thread; each thread draws its row. Latency bound: rows are scattered in memory.
template <class T>
struct Take {
  T *z, *t, *weights;
  cuda::TableView<T> table;
  const RowDraw* draw;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t columns = table.n_in + table.n_out, row = gpu::quotient(i, columns), c = i - row * columns;
    const T value = normalised(table, *draw, row_of(table, *draw, row), c);
    if (c == 0 && weights != nullptr) weights[row] = static_cast<T>(draw->weights[row]);
    if (c < table.n_in)
      z[row * table.n_in + c] = value;
    else
      t[row * table.n_out + c - table.n_in] = value;
  }
};

/// One element of the copy per thread. Memory bound: reads and writes each element once. *last receives the number of
/// elements from the first one on that is not finite.
template <class S>
struct CopyColumns {
  float* to;
  StateView<const S> from;
  std::int64_t variables, count;
  unsigned long long* last;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t column = gpu::quotient(i, variables);
    const auto value = static_cast<float>(from.at(column, i - column * variables));
    to[i] = value;
    if (!isfinite(value)) atomicMax(last, static_cast<unsigned long long>(count - i));
  }
};

}  // namespace

void take_samples(Stream& stream, const Tensor& z, const Tensor& t, const SampleTable& table, const RowDraw* draw,
                  const Tensor& weights) {
  require(z.rows() == t.rows() && z.columns() == table.x.columns() && t.columns() == table.y.columns(),
          "taking samples: z is ", z.shape(), " and t ", t.shape(), ", but the table's rows have ", table.x.columns(),
          " inputs and ", table.y.columns(), " targets");
  require(draw->count == z.rows(), "taking samples: ", draw->count, " are drawn, z has ", z.rows(), " rows");
  const bool ran = on_gpu_in_floats(z, [&]<class T>() {
    gpu::map<1>(stream, z.size() + t.size(), false, Take<T>{z, t, weights, cuda::TableView<T>(table), draw});
  });
  require(ran, "taking samples: the table must be on a GPU");
}

template <class S>
std::int64_t copy_columns(const Stream& stream, const Tensor& to, StateView<const S> from, const Buffer& scratch) {
  unsigned long long found = 0;
  const bool ran = on_gpu(stream, [&](const auto& of_gpu) {
    auto* const last = reinterpret_cast<unsigned long long*>(scratch.data());
    zero_bytes(of_gpu, last, sizeof found);
    gpu::map<1>(of_gpu, to.size(), false, CopyColumns<S>{to, from, to.columns(), to.size(), last});
    copy_bytes(of_gpu, &found, last, sizeof found);
    of_gpu.synchronize();
  });
  require(ran, "copying columns: they must be on a GPU");
  return found == 0 ? -1 : to.size() - static_cast<std::int64_t>(found);
}
template std::int64_t copy_columns(const Stream&, const Tensor&, StateView<const float>, const Buffer&);
template std::int64_t copy_columns(const Stream&, const Tensor&, StateView<const double>, const Buffer&);

}  // namespace lockstep::ops
