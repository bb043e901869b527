#pragma once
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/train/task.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// The sums of an evaluation of a split in chunks of these sizes, which must cover it.
inline std::vector<double> evaluation_sums(const Task& task, Split split, const std::vector<std::int64_t>& chunks,
                                           DType dtype = DType::f64) {
  std::vector<double> sums(to_size(task.sum_count()), 0);
  std::int64_t first = 0;
  for (const std::int64_t count : chunks) {
    OwnTape tape(dtype);
    task.evaluate(tape, split, first, count, sums.data());
    first += count;
  }
  CHECK(first == task.size(split));
  return sums;
}

/// Its metrics by name.
inline std::map<std::string, double> evaluation_metrics(const Task& task, Split split,
                                                        const std::vector<std::int64_t>& chunks,
                                                        DType dtype = DType::f64) {
  std::map<std::string, double> metrics;
  for (const Metric& m : task.metrics(split, evaluation_sums(task, split, chunks, dtype))) metrics[m.name] = m.value;
  return metrics;
}

}  // namespace lockstep::test
