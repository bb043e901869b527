#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// Number of chunks of an evaluation. It does not depend on ranks or threads, so neither does the order of additions.
/// At least 64; at most 4096, then of at least 256 samples each.
///
/// sums     Task::sum_count()
/// samples  samples that are evaluated
std::int64_t evaluation_chunks(std::int64_t sums, std::int64_t samples);

class StopSignals;

class SampleTask;
struct SampleValues;

struct EvaluationOptions {
  std::int64_t most_samples = 0;         ///< limit; the evaluated samples are spread evenly over the split; 0: all
  const StopSignals* signals = nullptr;  ///< a signal to any rank ends the evaluation without metrics
  const SampleTask* samples = nullptr;   ///< the task, to receive the metrics of each sample in `each`; null: do not
  SampleValues* each = nullptr;
  const Baseline* baseline = nullptr;  ///< evaluated instead of the network; metrics that it lacks are omitted
};
/// The number of samples that an evaluation uses of a split of `size`.
inline std::int64_t evaluated_samples(std::int64_t size, std::int64_t most_samples) {
  return most_samples > 0 && most_samples < size ? most_samples : size;
}

/// The metrics of a task over a split. Ranks and threads evaluate fixed chunks of the split, whose sums are added
/// in a fixed tree: the same bits on any number of ranks and threads. Collective; all ranks return the same metrics, or
/// none if a signal ended the evaluation.
///
/// tables  receives Task::tables() unless null
std::vector<Metric> evaluate(Communicator& comm, Task& model, Split split, int threads,
                             std::vector<MetricTable>* tables = nullptr, const EvaluationOptions& options = {});

/// The protocol of an evaluation: the split, Task::protocol(), and the number of samples unless it uses all.
std::string protocol_of(const Task& model, Split split, std::int64_t most_samples = 0);

/// The record of an evaluation, without step, epoch, best and weights.
///
/// data     the data set's file
/// seconds  wall time of the evaluation
EvalRecord record_of(const Task& model, const std::filesystem::path& data, Split split, std::int64_t most_samples,
                     std::vector<Metric> metrics, std::vector<MetricTable> tables, double seconds);

/// The metrics of each of the task's baselines over a split, without the metrics that a baseline lacks. Collective;
/// empty if a signal ended the evaluation.
std::vector<BaselineMetrics> evaluate_baselines(Communicator& comm, Task& model, Split split, int threads,
                                                const StopSignals* signals = nullptr);

}  // namespace lockstep
