#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

namespace optim_kernels {
template <class T>
struct AdamStep;
struct LateRow;
}  // namespace optim_kernels

/// The rows of a parameter (extent of its first axis) that an optimizer keeps: [first, first + count), or all.
struct RowsOf {
  const Param* param = nullptr;
  std::int64_t first = 0;
  std::int64_t count = -1;  ///< -1: all
};

/// Adam over the rows of some parameters for steps whose gradient touches few of them: bit for bit what the dense
/// update does, without sweeping over the tables.
///
/// A row without gradient still moves: m = b1 m, v = b2 v, p -= rate_t m / (sqrt(v) root_t + eps). Such steps are put
/// off and replayed, each in its turn with its own learning rate, when the row is next asked for. Once the moves are
/// below half a unit in the last place of every p of the row, for this and all later steps, only the moments go on.
///
///   adam.catch_up(table, rows);            // before they are read
///   ... gradient of these rows ...
///   adam.begin_step(lr, 1.0 / batch);
///   adam.update(table, rows, gradient);    // each row once
///   adam.flush();                          // before anything else reads the tables, or saves state()
///
/// State vectors have the parameters' full size; only the rows that are kept are ever touched. Rows are shared among
/// OpenMP's threads, each row on one. After set_steps() all rows count as brought up to that step. Lists of rows lie where
/// the kernels can read them, and on a GPU no call waits for it.
///
/// dtypes  f32 | f64, as the parameters
/// source  Kingma, Ba 2015, arXiv:1412.6980, algorithm 1
class LazyAdam final : public Optimizer {
 public:
  /// errors  Error (usage) with weight decay, which moves every row in every step, or an eps of 0, which makes 0 / 0 of them
  LazyAdam(const OptimizerOptions& options, ParamStore& params, const std::vector<RowsOf>& which);
  const char* name() const override { return "adam"; }

  /// Brings rows, however often each is named, to where the steps so far leave them.
  void catch_up(const Param& param, std::span<const std::int32_t> rows);
  /// Counts the next step, of all parameters.
  void begin_step(double lr, double gradient_scale);
  /// Updates rows, each named once, with gradient row i for rows[i].
  /// shapes  gradient (rows.size(), columns)
  void update(const Param& param, std::span<const std::int32_t> rows, const Tensor& gradient);
  /// The same for rows [first, first + count). shapes  gradient (count, columns)
  void update(const Param& param, std::int64_t first, std::int64_t count, const Tensor& gradient);
  /// Brings every row that is kept to where the steps so far leave it.
  void flush();

 protected:
  // The dense step of the base class, over all that is kept.
  void begin(double lr, double gradient_scale) override;
  void update(const FlatPiece& piece, const Tensor& values, const Tensor& gradient) override;
  void update(const GpuSweep& sweep) override;

 private:
  struct Table {
    RowsOf rows;
    std::int64_t columns;
    Tensor m, v;                     ///< like the parameter
    std::vector<std::int64_t> done;  ///< steps that each row has taken
    OwnedTensor gpu_done;            ///< the same in a GPU's memory, instead
  };
  /// What differs from step to step.
  struct Step {
    double rate, root;
  };
  Table& table_of(const Param& param);
  void note(double lr, double gradient_scale);
  /// Forgets what was put off, unless this many steps are what is known to have been taken.
  void expect_steps(std::int64_t taken);
  template <class T>
  optim_kernels::AdamStep<T> step_now() const;
  /// Steps from + 1 ... to of a row, without gradient.
  template <class T>
  void replay(const Table& table, std::int64_t row, std::int64_t from, std::int64_t to) const;
  /// The same for many rows, each named once; and, where there is a gradient, one step more with its row i for rows[i].
  void catch_up(const Table& table, std::span<const optim_kernels::LateRow> rows, std::int64_t to,
                const Tensor& gradient);
  void catch_up_on_gpu(const Table& table, const ops::RowSet& rows, std::int64_t to, const Tensor& gradient);
  void all_have_taken(std::int64_t steps);
  void replay_kept(std::int64_t to);
  void update_rows(const Param& param, const ops::RowSet& rows, const Tensor& gradient);

  OptimizerOptions options_;
  std::vector<Table> tables_;
  Tensor m_, v_;
  std::vector<Step> history_;   ///< of the steps after base_
  std::int64_t base_ = 0;       ///< every row has taken this many steps
  std::int64_t calm_from_ = 0;  ///< from this step on, every one makes the moves of a row without gradient smaller
  double scale_ = 1;
  Buffer gpu_history_;  ///< the same in a GPU's memory, and more room
  Buffer gpu_from_;     ///< steps that the rows of one call have taken
};

}  // namespace lockstep
