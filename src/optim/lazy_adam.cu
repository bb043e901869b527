#include "lockstep/optim/lazy_adam.hpp"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "lockstep/base/profile.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/on_gpu.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/lazy_adam_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels {

/// At most this many tables are updated in one launch.
inline constexpr std::size_t kMostTables = 3;

/// Rows of tables in a step that a GPU makes without the host, see LazyNow and UpdateNow. Pointers are device pointers.
template <class T>
struct LazySteps {
  struct Table {
    const std::int32_t* rows;
    std::int64_t elements, columns;
    T *p, *m, *v;        ///< the table and its moments
    std::int64_t* done;  ///< steps that each row of the table has taken
    const T* gradient;   ///< (elements)
  };
  Table tables[kMostTables] = {};
  std::size_t count = 0;
  const LazyNow* now = nullptr;
  double* history = nullptr;
  const UpdateNow<T>* update = nullptr;
  AdamStep<T> decay = {};  ///< beta1, beta2, eps
};

namespace cuda {
namespace {

/// Deferred steps of the rows of a table: steps from_i + 1 ... to without gradient, then one more step if there is a
/// gradient.
template <class T>
struct LateSteps {
  ops::RowSet rows = {};
  std::int64_t columns = 0;
  T *p = nullptr, *m = nullptr, *v = nullptr;    ///< the table and its moments
  const std::int64_t* from = nullptr;            ///< (rows), steps that each row has taken
  const double* history = nullptr;               ///< rate and root of each step after `base`, kStride apart
  std::int64_t base = 0, to = 0, calm_from = 0;  ///< from step calm_from on, each step shrinks the moves
  const T* gradient = nullptr;                   ///< (rows, columns), of step to + 1; null to skip that step
  AdamStep<T> step = {};                         ///< of step to + 1; its decay rates hold for all steps
};

constexpr int kThreads = 256;

/// Writes the scalars of this step to entry `index` of the history.
[[maybe_unused]] __global__ void note_step_kernel(gpu::Earlier earlier, double* history, std::int64_t index,
                                                  double rate, double root) {
  earlier.wait();
  history[kStride * index] = rate;
  history[kStride * index + 1] = root;
}

[[maybe_unused]] __global__ void __launch_bounds__(kThreads)
    set_steps_kernel(gpu::Earlier earlier, std::int64_t* done, std::int64_t rows, std::int64_t steps) {
  earlier.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows; i += stride) done[i] = steps;
}

/// from_i = done[rows_i], then done[rows_i] = max(done[rows_i], to). Of a duplicate row, only one entry receives the
/// smaller value. One thread per row. The maximum does not depend on the order of the atomics.
[[maybe_unused]] __global__ void __launch_bounds__(kThreads)
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
}  // namespace cuda
}  // namespace lockstep::optim_kernels

namespace lockstep {

namespace {
namespace kernels = optim_kernels::cuda;
/// With fewer elements, one thread is faster than several.
[[maybe_unused]] constexpr std::int64_t kParallelFrom = std::int64_t{1} << 14;
/// Prefetch distance in rows, which are scattered over memory.
constexpr std::int64_t kPrefetch = 4, kLine = 64;
/// Upper bound on the ratio of consecutive moves, below 1 by more than the effect of rounding.
constexpr double kCalm = 0.999;
/// The number of steps of a row that a thread is bringing up to date.
constexpr std::int64_t kBusy = -1;
/// A row of a table and the number of steps that it has taken.
struct LateRow {
  std::int64_t row, done;
};
using ops::on_gpu;
using ops::on_gpu_in_floats;
using optim_kernels::AdamStep;
using optim_kernels::step_as;

std::vector<RowsOf> sparse_tables(const ParamStore& params) {
  std::vector<RowsOf> tables;
  for (const Param& p : params.all())
    if (p.row_sparse && p.trainable) tables.push_back({&p});
  return tables;
}
}  // namespace

LazyAdam::LazyAdam(const OptimizerOptions& options, ParamStore& params, const std::vector<RowsOf>& which)
    : LazyAdam(options, params,
               trainable_ranges(params,
                                [&](const Param& p) {
                                  return std::any_of(which.begin(), which.end(),
                                                     [&](const RowsOf& r) { return r.param == &p; });
                                }),
               which, SparseRows::update) {}

LazyAdam::LazyAdam(const OptimizerOptions& options, ParamStore& params)
    : LazyAdam(options, params, trainable_ranges(params), sparse_tables(params), SparseRows::defer) {
  for (const Table& table : tables_) params.at(table.rows.param->name).deferred = this;
}

LazyAdam::~LazyAdam() {
  if (sparse_ != SparseRows::defer) return;
  for (const Table& table : tables_) params().at(table.rows.param->name).deferred = nullptr;
}

bool LazyAdam::defers(const OptimizerOptions& options, const ParamStore& params) {
  const std::vector<RowsOf> tables = sparse_tables(params);
  return options.name == "adam" && !options.lazy && options.weight_decay == 0 && options.eps > 0 &&
         !params.device().is_cuda() && params.storage() == params.dtype() && !tables.empty() &&
         std::ranges::all_of(tables, [](const RowsOf& r) { return r.param->l2 == 0; });
}

LazyAdam::LazyAdam(const OptimizerOptions& options, ParamStore& params, std::vector<FlatRange> ranges,
                   const std::vector<RowsOf>& which, SparseRows sparse)
    : Optimizer(params, std::move(ranges), sparse),
      options_(options),
      sparse_(sparse),
      m_(add_state("exp_avg")),
      v_(add_state("exp_avg_sq")) {
  require_usage(options.weight_decay == 0, "option optim.weight_decay = ", options.weight_decay,
                ": must be 0 when only rows with a gradient are updated");
  require_usage(options.eps > 0, "option optim.eps = ", options.eps, ": must be > 0 when rows may have no gradient");
  const auto state_of = [&](const std::string& name) {
    for (const NamedTensor& t : state())
      if (t.name == name) return t.value;
    return Tensor{};
  };
  std::int64_t most = 0;
  for (RowsOf rows : which) {
    const std::int64_t all = rows.param->shape[0];
    if (rows.count < 0) rows.count = all - rows.first;
    Table& table = tables_.emplace_back();
    table.rows = rows;
    table.columns = all > 0 ? rows.param->shape.size() / all : 0;
    table.m = state_of("exp_avg/" + rows.param->name);
    table.v = state_of("exp_avg_sq/" + rows.param->name);
    if (device().is_cuda()) {
      table.gpu_done = OwnedTensor(DType::i64, Shape{all}, device());
    } else {
      table.done.resize(all);
    }
    most = std::max(most, all);
  }
  if (device().is_cuda()) gpu_from_ = Buffer(device(), static_cast<std::size_t>(most) * sizeof(std::int64_t));
}

LazyAdam::Table& LazyAdam::table_of(const Param& param) {
  const auto found =
      std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.rows.param == &param; });
  require(found != tables_.end(), "looking up the optimizer state of ", param.name,
          ": this optimizer does not update it");
  return *found;
}

void LazyAdam::expect_steps(std::int64_t expected) {
  if (expected == taken() && !settled_) return;
  base_ = expected;
  history_.clear();
  all_have_taken(base_);
}

void LazyAdam::all_have_taken(std::int64_t steps) {
  for (Table& table : tables_) {
    std::fill(table.done.begin(), table.done.end(), steps);
    on_gpu(Stream(device()), [&](const auto& stream) {
      const std::int64_t rows = table.gpu_done->size();
      gpu::launch(stream, gpu::grid_for(rows, kernels::kThreads), kernels::set_steps_kernel,
                  table.gpu_done->data<std::int64_t>(), rows, steps);
    });
  }
}

LazyAdam::Step LazyAdam::step_at(double lr, std::int64_t t) const {
  const auto n = static_cast<double>(t);
  return {lr / (1 - std::pow(options_.beta1, n)), 1 / std::sqrt(1 - std::pow(options_.beta2, n))};
}

StepScalars LazyAdam::scalars(double lr, std::int64_t t) const {
  const Step step = step_at(lr, t);
  return {1,         0,         1,           options_.beta1, 1 - options_.beta1, options_.beta2, 1 - options_.beta2,
          step.rate, step.root, options_.eps};
}

void LazyAdam::remember(double lr, std::int64_t t) {
  const Step step = step_at(lr, t);
  // The move is rate m / (sqrt(v) root + eps). Bounds the ratio of this step's move to the previous one's.
  bool calm = options_.eps >= 1e-12 && step.rate <= 1;
  if (calm && !history_.empty()) {
    const Step& before = history_.back();
    const double shrink = std::min(1.0, std::sqrt(options_.beta2) * step.root / before.root);
    calm = step.rate * options_.beta1 <= kCalm * before.rate * shrink;
  }
  if (!calm) calm_from_ = t;
  history_.push_back(step);
  settled_ = false;
  if (!device().is_cuda() || history_.size() * sizeof(Step) <= gpu_history_.size_bytes()) return;
  constexpr std::size_t kLeastSteps = 1024;
  const Stream stream(device());
  Buffer larger(device(), 2 * std::max(kLeastSteps, history_.size()) * sizeof(Step));
  copy_bytes(stream, larger.data(), gpu_history_.data(), gpu_history_.size_bytes());
  stream.synchronize();  // work that reads the old buffer is complete
  gpu_history_ = std::move(larger);
}

void LazyAdam::note(double lr, double gradient_scale) {
  remember(lr, steps());
  now_ = scalars(lr, steps());
  now_[0] = gradient_scale;
  const Step& step = history_.back();
  on_gpu(Stream(device()), [&](const auto& stream) {
    gpu::launch(stream, {}, kernels::note_step_kernel, reinterpret_cast<double*>(gpu_history_.data()),
                std::ssize(history_) - 1, step.rate, step.root);
  });
}

LazyNow LazyAdam::describe(double lr, int open_steps) {
  const std::int64_t before = steps() + open_steps;
  expect_steps(before);
  LazyNow now = {.to = before, .base = base_, .calm_from = calm_from_};
  remember(lr, before + 1);
  now.rate = history_.back().rate;
  now.root = history_.back().root;
  return now;
}

template <class T>
optim_kernels::LazySteps<T> LazyAdam::steps_of(std::span<const RowsNow> tables, const LazyNow* now) {
  require(tables.size() <= optim_kernels::kMostTables, "updating rows of ", tables.size(), " tables: at most ",
          optim_kernels::kMostTables, " fit in one launch");
  optim_kernels::LazySteps<T> all = {.now = now, .history = reinterpret_cast<double*>(gpu_history_.data())};
  for (const RowsNow& rows : tables) {
    const Table& table = table_of(*rows.param);
    all.tables[all.count++] = {.rows = rows.rows.data(),
                               .elements = std::ssize(rows.rows) * table.columns,
                               .columns = table.columns,
                               .p = table.rows.param->value,
                               .m = table.m,
                               .v = table.v,
                               .done = table.gpu_done->data<std::int64_t>(),
                               .gradient = rows.gradient};
  }
  all.decay.beta1 = static_cast<T>(options_.beta1);
  all.decay.beta2 = static_cast<T>(options_.beta2);
  all.decay.eps = static_cast<T>(options_.eps);
  return all;
}

void LazyAdam::enqueue_catch_up(std::span<const RowsNow> tables, const LazyNow* now) {
  const profile::Span span("lazy_adam catch_up", profile::Kind::phase);
  on_gpu_in_floats(m_, [&]<class T>() {
    const optim_kernels::LazySteps<T> all = steps_of<T>(tables, now);
    gpu::launch(Stream(device()), kernels::grid_of(all), kernels::lazy_catch_up_kernel<T>, all);
  });
}

void LazyAdam::enqueue_update(std::span<const RowsNow> tables, const LazyNow* now, const void* scalars) {
  const profile::Span span("lazy_adam", profile::Kind::phase);
  on_gpu_in_floats(m_, [&]<class T>() {
    optim_kernels::LazySteps<T> all = steps_of<T>(tables, now);
    all.update = static_cast<const optim_kernels::UpdateNow<T>*>(scalars);
    gpu::launch(Stream(device()), kernels::grid_of(all), kernels::lazy_update_kernel<T>, all);
  });
}

template <class T>
void LazyAdam::replay(const Table& table, std::int64_t row, std::int64_t from, std::int64_t to) const {
  static_assert(sizeof(Step) == optim_kernels::kStride * sizeof(double));
  const Step* first = history_.data() + (from - base_);
  const optim_kernels::MissedSteps<T> missed = {.rate = &first->rate,
                                                .root = &first->root,
                                                .count = to - from,
                                                .calm_from = calm_from_ - from - 1,
                                                .beta1 = static_cast<T>(options_.beta1),
                                                .beta2 = static_cast<T>(options_.beta2),
                                                .eps = static_cast<T>(options_.eps)};
  const std::int64_t at = row * table.columns;
  optim_kernels::active_replay_kernel<T>()(table.columns, table.rows.param->value.data<T>() + at,
                                           table.m.data<T>() + at, table.v.data<T>() + at, missed);
}

void LazyAdam::catch_up(Table& table, const ops::RowSet& rows, std::int64_t to, const Tensor& gradient) {
  if (device().is_cuda()) return catch_up_on_gpu(table, rows, to, gradient);
  thread_local std::vector<LateRow> kept;
  thread_local std::vector<std::int64_t> of_others;  // rows that other threads are bringing up to date
  kept.clear();
  of_others.clear();
  const std::int64_t after = gradient ? to + 1 : to;
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const std::atomic_ref<std::int64_t> done(table.done[rows[i]]);
    std::int64_t before = done.load(std::memory_order_acquire);
    while (before != kBusy && (gradient || before < after) && !done.compare_exchange_weak(before, kBusy)) {
    }
    if (before == kBusy)
      of_others.push_back(rows[i]);
    else if (gradient || before < after)
      kept.push_back({rows[i], before});
  }
  const std::span<const LateRow> late = kept;  // of this thread
  const auto count = std::ssize(late);
  visit_float(dtype(), [&]<class T>() {
    const auto step = step_as<AdamStep<T>>(now_);
    T *const value = table.rows.param->value, *const m = table.m, *const v = table.v;
    const T* const slope = gradient;
#pragma omp parallel for schedule(dynamic, 16) if (count * table.columns >= kParallelFrom)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto [row, done] = late[i];
      if (i + kPrefetch < count) {
        const std::int64_t next = late[i + kPrefetch].row * table.columns;
        for (T* const array : {value, m, v})
          for (std::int64_t c = 0; c < table.columns; c += kLine / static_cast<std::int64_t>(sizeof(T)))
            __builtin_prefetch(array + next + c, 1);
      }
      if (done < to) replay<T>(table, row, done, to);
      const std::int64_t at = row * table.columns;
      if (slope)
        optim_kernels::active_update(table.columns, value + at, m + at, v + at, slope + i * table.columns, step);
      std::atomic_ref(table.done[row]).store(after, std::memory_order_release);
    }
  });
  for (const std::int64_t row : of_others)
    while (std::atomic_ref(table.done[row]).load(std::memory_order_acquire) == kBusy) std::this_thread::yield();
}

void LazyAdam::catch_up_on_gpu(const Table& table, const ops::RowSet& rows, std::int64_t to, const Tensor& gradient) {
  if (history_.empty()) return;  // nothing is deferred
  const Stream stream(device());
  auto* from = reinterpret_cast<std::int64_t*>(gpu_from_.data());
  on_gpu_in_floats(m_, [&]<class T>() {
    gpu::launch(stream, gpu::thread_per_element(rows.size(), kernels::kThreads), kernels::claim_rows_kernel, rows,
                table.gpu_done->data<std::int64_t>(), from, gradient ? to + 1 : to);
    const kernels::LateSteps<T> late = {.rows = rows,
                                        .columns = table.columns,
                                        .p = table.rows.param->value,
                                        .m = table.m,
                                        .v = table.v,
                                        .from = from,
                                        .history = reinterpret_cast<const double*>(gpu_history_.data()),
                                        .base = base_,
                                        .to = to,
                                        .calm_from = calm_from_,
                                        .gradient = gradient,
                                        .step = step_as<AdamStep<T>>(now_)};
    gpu::launch(stream, gpu::thread_per_element(rows.size() * table.columns, kernels::kThreads),
                kernels::late_steps_kernel<T>, late);
  });
}

void LazyAdam::catch_up(const Param& param, std::span<const std::int32_t> rows) {
  const profile::Span span("lazy_adam catch_up", profile::Kind::phase);
  expect_steps(steps());
  catch_up(table_of(param), ops::RowSet::list(rows), steps(), {});
}

void LazyAdam::apply(const Param& param, std::span<const std::int32_t> rows) {
  if (!settled_) catch_up(table_of(param), ops::RowSet::list(rows), taken(), {});
}

void LazyAdam::catch_up_all(std::int64_t to) {
  if (history_.empty()) return;  // nothing is deferred
  for (Table& table : tables_) catch_up(table, ops::RowSet::range(table.rows.first, table.rows.count), to, {});
}

void LazyAdam::flush() {
  if (settled_) return;
  const profile::Span span("lazy_adam catch_up", profile::Kind::phase);
  expect_steps(steps());
  catch_up_all(steps());
  settled_ = true;
}

void LazyAdam::begin_step(double lr, double gradient_scale) {
  expect_steps(steps());
  set_steps(steps() + 1);
  note(lr, gradient_scale);
}

void LazyAdam::update_rows(const Param& param, const ops::RowSet& rows, const Tensor& gradient) {
  const profile::Span span("lazy_adam", profile::Kind::phase);
  Table& table = table_of(param);
  require(gradient.size() == rows.size() * table.columns, "updating ", rows.size(), " rows of ", param.name, " ",
          param.shape, ": the gradient is ", gradient.shape());
  catch_up(table, rows, steps() - 1, gradient);
}

void LazyAdam::update(const Param& param, std::span<const std::int32_t> rows, const Tensor& gradient) {
  update_rows(param, ops::RowSet::list(rows), gradient);
}

void LazyAdam::update(const Param& param, std::int64_t first, std::int64_t count, const Tensor& gradient) {
  update_rows(param, ops::RowSet::range(first, count), gradient);
}

void LazyAdam::begin(double lr, double gradient_scale) {
  expect_steps(steps() - 1);
  if (sparse_ == SparseRows::update) {
    catch_up_all(steps() - 1);
    all_have_taken(steps());
  }
  note(lr, gradient_scale);
}

void LazyAdam::update(const FlatChunk& chunk, const Tensor& values, const Tensor& gradient) {
  visit_float(dtype(), [&]<class T>() {
    if (chunk.row > 0) {
      Table& table = *std::ranges::find_if(tables_, [&](const Table& t) { return t.contains(chunk.begin); });
      const std::int64_t row = (chunk.begin - table.rows.param->offset) / chunk.row;
      const std::int64_t done = std::exchange(table.done[row], steps());
      if (done < steps() - 1) replay<T>(table, row, done, steps() - 1);
    }
    optim_kernels::active_update(chunk.end - chunk.begin, values.data<T>() + chunk.begin, m_.data<T>() + chunk.state,
                                 v_.data<T>() + chunk.state, gradient.data<T>() + chunk.begin,
                                 step_as<AdamStep<T>>(now_));
  });
}

void LazyAdam::update(const GpuSweep& sweep) {
  visit_float(dtype(), [&]<class T>() {
    if constexpr (kHasCuda) optim_kernels::cuda::sweep(sweep, m_.data<T>(), v_.data<T>(), step_as<AdamStep<T>>(now_));
  });
}

}  // namespace lockstep
