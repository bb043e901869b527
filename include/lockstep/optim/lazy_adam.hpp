#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

namespace optim_kernels {
template <class T>
struct LazySteps;
}  // namespace optim_kernels

/// Rows [first, first + count) of a parameter's first axis, or all rows.
struct RowsOf {
  const Param* param = nullptr;
  std::int64_t first = 0;
  std::int64_t count = -1;  ///< -1: all
};

/// The description of a LazyAdam step that a GPU makes without the host.
struct LazyNow {
  std::int64_t to = 0;         ///< number of earlier steps
  std::int64_t base = 0;       ///< of the history
  std::int64_t calm_from = 0;  ///< from this step on, each step shrinks the moves of rows without gradient
  double rate = 0, root = 0;   ///< of this step, for the history
};

/// Distinct rows of a table, and their gradient (rows, columns). Negative rows are padding.
struct RowsNow {
  const Param* param = nullptr;
  std::span<const std::int32_t> rows;
  Tensor gradient = {};
};

/// Adam for tables whose gradient touches few rows in each step. The result equals the dense update bit for bit,
/// without a sweep over the tables.
///
/// A row without gradient still moves: m = b1 m, v = b2 v, p -= rate_t m / (sqrt(v) root_t + eps). LazyAdam defers such
/// steps. When the row is next used, it replays them in order, each with its own learning rate. Once this and all later
/// moves are below half a unit in the last place of every p, the replay updates only the moments.
///
///   adam.catch_up(table, rows);            // before reading these rows
///   ... gradient of these rows ...
///   adam.begin_step(lr, 1.0 / batch);
///   adam.update(table, rows, gradient);    // each row once
///   adam.flush();                          // before anything else reads the tables, or saves state()
///
/// As the optimizer of all parameters it takes the steps of Optimizer::step(), updates the rows of row-sparse parameters
/// that have a gradient, and defers the others. Operations of a tape read rows that are up to date (Param::deferred):
///
///   adam.step(gradient, lr, scale);
///   adam.flush();
///
/// For steps that a GPU makes without the host (GpuUpdate), the host writes a description, which kernels read:
///
///   const LazyNow now = adam.describe(lr, open_steps);   // to be copied to the GPU
///   adam.enqueue_catch_up(tables, now_on_gpu);
///   adam.enqueue_update(tables, now_on_gpu, update.now());
///
/// State vectors have the full size of the parameters, but only the rows in `which` are accessed. The OpenMP threads
/// share the rows. After set_steps() all rows count as up to date. On a GPU, kernels must be able to read lists of
/// rows, and no call waits for the GPU.
///
/// dtypes   f32 | f64, as the parameters
/// source   Kingma, Ba 2015, arXiv:1412.6980, algorithm 1
class LazyAdam final : public Optimizer, private DeferredRows {
 public:
  /// errors   Error (usage) with weight decay, which changes every row in every step, or with eps = 0, which gives 0 /
  ///          0 for rows without gradient
  LazyAdam(const OptimizerOptions& options, ParamStore& params, const std::vector<RowsOf>& which);
  /// The optimizer of all trainable parameters. Requires defers().
  LazyAdam(const OptimizerOptions& options, ParamStore& params);
  LazyAdam(const LazyAdam&) = delete;
  LazyAdam& operator=(const LazyAdam&) = delete;
  ~LazyAdam() override;
  /// Whether step() can defer rows: Adam without weight decay and with eps > 0, on the CPU, of f32 or f64 parameters of
  /// which some are row-sparse, but none of these has a penalty. A penalty or weight decay changes every row in every
  /// step, and an average needs every step of every row: step() without one.
  static bool defers(const OptimizerOptions& options, const ParamStore& params);
  const char* name() const override { return "adam"; }

  /// Applies the deferred steps of these rows. Rows may repeat.
  void catch_up(const Param& param, std::span<const std::int32_t> rows);
  /// Starts the next step of all parameters.
  void begin_step(double lr, double gradient_scale);
  /// Updates distinct rows; gradient row i belongs to rows[i].
  ///
  /// shapes   gradient (rows.size(), columns)
  void update(const Param& param, std::span<const std::int32_t> rows, const Tensor& gradient);
  /// Updates rows [first, first + count).
  ///
  /// shapes   gradient (count, columns)
  void update(const Param& param, std::int64_t first, std::int64_t count, const Tensor& gradient);
  /// Applies the deferred steps of all rows of this optimizer. Requires that no step is open.
  void flush() override;

  StepScalars scalars(double lr, std::int64_t t) const override;
  /// Describes the next step. `open_steps` (0 or 1): the number of earlier steps that steps() does not count yet.
  LazyNow describe(double lr, int open_steps);
  /// Enqueues catch_up() or update(), for at most three tables in one launch. The update also writes the history. It
  /// does nothing if `scalars` (optim_kernels::UpdateNow) say so; no further step is possible then, because the update
  /// marks the rows as up to date.
  void enqueue_catch_up(std::span<const RowsNow> tables, const LazyNow* now);
  void enqueue_update(std::span<const RowsNow> tables, const LazyNow* now, const void* scalars);
  /// The address of the history, which changes when the history grows.
  const void* gpu_history() const { return gpu_history_.data(); }

 protected:
  // The step of the base class, over all rows of this optimizer, or all but the deferred ones.
  void begin(double lr, double gradient_scale) override;
  void update(const FlatChunk& chunk, const Tensor& values, const Tensor& gradient) override;
  void update(const GpuSweep& sweep) override;

 private:
  struct Table {
    RowsOf rows;
    std::int64_t columns;
    Tensor m, v;                     ///< in the parameter's shape
    std::vector<std::int64_t> done;  ///< steps that each row has taken (CPU)
    OwnedTensor gpu_done;            ///< steps that each row has taken (GPU)
    bool contains(std::int64_t at) const {
      return at >= rows.param->offset && at < rows.param->offset + rows.param->shape.size();
    }
  };
  LazyAdam(const OptimizerOptions& options, ParamStore& params, std::vector<FlatRange> ranges,
           const std::vector<RowsOf>& which, SparseRows sparse);
  void apply(const Param& table, std::span<const std::int32_t> rows) override;
  /// The scalars that change from step to step.
  struct Step {
    double rate, root;
  };
  Table& table_of(const Param& param);
  /// Number of steps that rows are brought up to.
  std::int64_t taken() const { return base_ + std::ssize(history_); }
  Step step_at(double lr, std::int64_t t) const;
  /// Adds step t to the history, except for its entry in GPU memory.
  void remember(double lr, std::int64_t t);
  void note(double lr, double gradient_scale);
  /// Discards deferred updates if the step count does not match, and the history if it is not needed.
  void expect_steps(std::int64_t expected);
  template <class T>
  optim_kernels::LazySteps<T> steps_of(std::span<const RowsNow> tables, const LazyNow* now);
  /// Applies steps from + 1 ... to without gradient to a row.
  template <class T>
  void replay(const Table& table, std::int64_t row, std::int64_t from, std::int64_t to) const;
  /// Applies deferred steps up to `to` to rows, then one more step if there is a gradient. Then the rows are distinct,
  /// and row i of the gradient belongs to rows[i].
  void catch_up(Table& table, const ops::RowSet& rows, std::int64_t to, const Tensor& gradient);
  void catch_up_on_gpu(const Table& table, const ops::RowSet& rows, std::int64_t to, const Tensor& gradient);
  void all_have_taken(std::int64_t steps);
  void catch_up_all(std::int64_t to);
  void update_rows(const Param& param, const ops::RowSet& rows, const Tensor& gradient);

  OptimizerOptions options_;
  SparseRows sparse_;  ///< update: every row takes part in step()
  std::vector<Table> tables_;
  Tensor m_, v_;
  std::vector<Step> history_;         ///< of the steps after base_
  std::int64_t base_ = 0;             ///< every row has taken at least this many steps
  std::int64_t calm_from_ = 0;        ///< from this step on, each step shrinks the moves of rows without gradient
  std::atomic<bool> settled_ = true;  ///< no step is deferred
  StepScalars now_ = scalars(0, 1);   ///< of the last step that note() counted; the decay rates hold for all
  Buffer gpu_history_;                ///< history_ in GPU memory, with spare capacity
  Buffer gpu_from_;                   ///< steps that each row of a call has taken
};

}  // namespace lockstep
