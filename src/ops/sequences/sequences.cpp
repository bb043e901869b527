#include "lockstep/ops/sequences.hpp"

#include "lockstep/ops/elementwise.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/row_groups/row_groups_kernels.hpp"
#include "sequences_kernels.hpp"

namespace lockstep::ops {

namespace {
std::int64_t elements(const Tensor& t) { return t.shape()[0] == 0 ? 0 : t.size() / t.shape()[0]; }

void check_table(const char* what, const Tensor& table, const Tensor& x) {
  require(x.shape().rank() > 0 && (x.size() == 0 || table.size() == elements(x)), what, ": x is ", x.shape(),
          ", table ", table.shape(), "; it must be as large as one sequence");
}
/// Sequences in a group.
std::int64_t group_size(const char* what, const Tensor& y, const Tensor& x) {
  const std::int64_t all = x.shape().rank() > 0 ? x.shape()[0] : 0, groups = y.shape().rank() > 0 ? y.shape()[0] : 0;
  require(groups > 0 ? all % groups == 0 && elements(x) == elements(y) : all == 0, what, ": x is ", x.shape(), ", y ",
          y.shape(), "; sequences must have equal sizes, and x a multiple of the number in y");
  return groups > 0 ? all / groups : 1;
}
}  // namespace

void add_to_each(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& table) {
  check_table("add_to_each", table, x);
  require(y.shape() == x.shape(), "add_to_each: x is ", x.shape(), ", so y must be too, not ", y.shape());
  if (on_gpu(x, [&]<class T>() { cuda::add_to_each<T>(stream, x.shape()[0], table.size(), y, x, table); })) return;
  for (std::int64_t n = 0; n < x.shape()[0]; ++n) {
    const Tensor from = x.slice(n, 1);
    add(stream, y.slice(n, 1), from, table.reshaped(from.shape()));
  }
}

void sum_of_all(Stream& stream, Target table, const Tensor& x) {
  if (!table) return;
  check_table("sum_of_all", table.tensor, x);
  if (on_gpu(x, [&]<class T>() {
        cuda::sum_of_all<T>(stream, x.shape()[0], table.tensor.size(), table.tensor, x, table.accumulate);
      }))
    return;
  if (x.shape()[0] == 0 && !table.accumulate) fill_zero(stream, table.tensor);
  for (std::int64_t n = 0; n < x.shape()[0]; ++n) {
    const Tensor from = x.slice(n, 1);
    scale(stream, {table.tensor.reshaped(from.shape()), table.accumulate || n > 0}, from, 1);
  }
}

void mean_of_groups(Stream& stream, Target y, const Tensor& x) {
  if (!y) return;
  const std::int64_t size = group_size("mean_of_groups", y.tensor, x);
  if (on_gpu(x, [&]<class T>() {
        cuda::sum_rows<T>(stream, y.tensor.shape()[0], elements(y.tensor), size, y.tensor, y.accumulate, x,
                          static_cast<real_t<T>>(size));
      }))
    return;
  for (std::int64_t n = 0; n < x.shape()[0]; ++n)
    scale(stream, {y.tensor.slice(n / size, 1), y.accumulate || n % size > 0}, x.slice(n, 1),
          1 / static_cast<double>(size));
}

void spread_mean(Stream& stream, Target x, const Tensor& y) {
  if (!x) return;
  const std::int64_t size = group_size("spread_mean", y, x.tensor);
  if (on_gpu(y, [&]<class T>() {
        cuda::copy_rows<T>(stream, y.shape()[0], elements(y), size, x.tensor, x.accumulate, y,
                           static_cast<real_t<T>>(size));
      }))
    return;
  for (std::int64_t n = 0; n < x.tensor.shape()[0]; ++n)
    scale(stream, {x.tensor.slice(n, 1), x.accumulate}, y.slice(n / size, 1), 1 / static_cast<double>(size));
}

}  // namespace lockstep::ops
