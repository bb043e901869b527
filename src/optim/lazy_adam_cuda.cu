#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/lazy_adam_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void note_step_kernel(gpu::Earlier earlier, double* history, std::int64_t index, double rate, double root) {
  earlier.wait();
  history[kStride * index] = rate;
  history[kStride * index + 1] = root;
}

__global__ void __launch_bounds__(kThreads)
    set_steps_kernel(gpu::Earlier earlier, std::int64_t* done, std::int64_t rows, std::int64_t steps) {
  earlier.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows; i += stride) done[i] = steps;
}

/// One thread per row. The maximum does not depend on the order of the atomics.
__global__ void __launch_bounds__(kThreads)
    claim_rows_kernel(gpu::Earlier earlier, ops::RowSet rows, std::int64_t* done, std::int64_t* from, std::int64_t to) {
  earlier.wait();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows.size()) return;
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  from[i] = atomicMax(reinterpret_cast<long long*>(done + rows[i]), static_cast<long long>(to));
}

/// Applies the deferred steps to one element. Once four times the move, and a move of kTiny, leave p unchanged, only
/// the moments change.
template <class T>
__device__ void replay(const LateSteps<T>& s, std::int64_t done, T& p, T& m, T& v) {
  const AdamStep<T>& k = s.step;
  if (m == 0 && v == 0) return;
  std::int64_t t = done;
  for (bool moving = m != 0; moving && t < s.to; ++t) {
    const double* scalars = s.history + kStride * (t - s.base);
    const T rate = static_cast<T>(scalars[0]), root = static_cast<T>(scalars[1]);
    m = k.beta1 * m + T(0);
    v = k.beta2 * v + T(0);
    const T move = rate * (m / (std::sqrt(v) * root + k.eps));
    p = p - move;
    if ((t - done) % kLook == kLook - 1 && t + 1 >= s.calm_from)
      moving = !(p - 4 * move == p && p - kTiny<T> == p && p + kTiny<T> == p);
  }
  for (; t < s.to; ++t) {
    m = k.beta1 * m + T(0);
    v = k.beta2 * v + T(0);
  }
}

/// One thread per element, row by row. Elements are independent, so each thread stops when its element is at rest. All
/// threads of a row read the same scalars of a step, from the cache. Memory bound: 28 bytes per element in f32 for one
/// step of all rows.
template <class T>
__global__ void __launch_bounds__(kThreads) late_steps_kernel(gpu::Earlier earlier, LateSteps<T> s) {
  earlier.wait();
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, elements = s.rows.size() * s.columns;
  if (at >= elements) return;
  const std::int64_t i =
      elements >> 32 == 0 ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(s.columns) : at / s.columns;
  const std::int64_t from = s.from[i], e = s.rows[i] * s.columns + (at - i * s.columns);
  if (from >= s.to && s.gradient == nullptr) return;
  T p = s.p[e], m = s.m[e], v = s.v[e];
  replay(s, from, p, m, v);
  if (s.gradient) s.step(p, m, v, s.gradient[at]);
  s.p[e] = p;
  s.m[e] = m;
  s.v[e] = v;
}

/// The element of a thread: blocks are numbered table by table. `row` is negative if there is none.
template <class T>
struct Element {
  const typename LazySteps<T>::Table* table;
  std::int64_t at, row, column;
  __device__ explicit Element(const LazySteps<T>& s) : table(s.tables), row(-1), column(0) {
    std::int64_t block = blockIdx.x;
    for (std::size_t t = 1; t < s.count; ++t) {
      const std::int64_t blocks = gpu::ceil_div(table->elements, kThreads);
      if (block < blocks) break;
      block -= blocks;
      ++table;
    }
    at = block * kThreads + threadIdx.x;
    if (at >= table->elements) return;
    const std::int64_t i = at / table->columns;
    row = table->rows[i];
    column = at - i * table->columns;
  }
  __device__ std::int64_t index() const { return row * table->columns + column; }
};

/// One thread per element, as late_steps_kernel(). Leaves the rows' step counts to lazy_update_kernel().
template <class T>
__global__ void __launch_bounds__(kThreads) lazy_catch_up_kernel(gpu::Earlier earlier, LazySteps<T> s) {
  earlier.wait();
  const Element<T> e(s);
  if (e.row < 0) return;
  const std::int64_t from = e.table->done[e.row];
  if (from >= s.now->to) return;
  const LateSteps<T> late = {
      .history = s.history, .base = s.now->base, .to = s.now->to, .calm_from = s.now->calm_from, .step = s.decay};
  T p = e.table->p[e.index()], m = e.table->m[e.index()], v = e.table->v[e.index()];
  replay(late, from, p, m, v);
  e.table->p[e.index()] = p;
  e.table->m[e.index()] = m;
  e.table->v[e.index()] = v;
}

/// One thread per element. Memory bound: 28 bytes per element in f32.
template <class T>
__global__ void __launch_bounds__(kThreads) lazy_update_kernel(gpu::Earlier earlier, LazySteps<T> s) {
  earlier.wait();
  if (!s.update->moves) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    double* entry = s.history + kStride * (s.now->to - s.now->base);
    entry[0] = s.now->rate;
    entry[1] = s.now->root;
  }
  const Element<T> e(s);
  if (e.row < 0) return;
  const AdamStep<T> step = *reinterpret_cast<const AdamStep<T>*>(s.update->scalars);
  T p = e.table->p[e.index()], m = e.table->m[e.index()], v = e.table->v[e.index()];
  step(p, m, v, e.table->gradient[e.at]);
  e.table->p[e.index()] = p;
  e.table->m[e.index()] = m;
  e.table->v[e.index()] = v;
  if (e.column == 0) e.table->done[e.row] = s.now->to + 1;
}

template <class T>
gpu::Grid grid_of(const LazySteps<T>& s) {
  std::int64_t blocks = 0;
  for (std::size_t t = 0; t < s.count; ++t) blocks += gpu::ceil_div(s.tables[t].elements, kThreads);
  return {.grid = blocks, .block = kThreads};
}

}  // namespace

void note_step(const Stream& stream, double* history, std::int64_t index, double rate, double root) {
  gpu::launch(stream, {}, note_step_kernel, history, index, rate, root);
}
void set_steps(const Stream& stream, std::int64_t* done, std::int64_t rows, std::int64_t steps) {
  gpu::launch(stream, gpu::grid_for(rows, kThreads), set_steps_kernel, done, rows, steps);
}
void claim_rows(const Stream& stream, const ops::RowSet& rows, std::int64_t* done, std::int64_t* from,
                std::int64_t to) {
  gpu::launch(stream, gpu::thread_per_element(rows.size(), kThreads), claim_rows_kernel, rows, done, from, to);
}

template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late) {
  gpu::launch(stream, gpu::thread_per_element(late.rows.size() * late.columns, kThreads), late_steps_kernel<T>, late);
}

template <class T>
void lazy_catch_up(const Stream& stream, const LazySteps<T>& s) {
  gpu::launch(stream, grid_of(s), lazy_catch_up_kernel<T>, s);
}
template <class T>
void lazy_update(const Stream& stream, const LazySteps<T>& s) {
  gpu::launch(stream, grid_of(s), lazy_update_kernel<T>, s);
}

LOCKSTEP_EACH_FLOAT(late_steps, lazy_catch_up, lazy_update)

}  // namespace lockstep::optim_kernels::cuda
