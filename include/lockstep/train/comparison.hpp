#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/sample_task.hpp"

namespace lockstep {

/// SampleTask::compared_metrics() of every sample of a split.
struct SampleValues {
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;  ///< (metrics, samples)
};

/// Gathers the sums of the samples of all ranks, and computes the metrics of each sample from them. Collective; all
/// ranks return the same.
///
/// chunks  equal chunks of the split, divided over the ranks by shards_of()
/// shapes  mine (samples in this rank's chunks, sum_count())
SampleValues gather_samples(Communicator& comm, const SampleTask& model, Split split, std::int64_t chunks,
                            const std::vector<double>& mine);

/// Compares two networks over the same samples. Each row is a metric that both have. Its columns are the mean of
/// `model`, the mean of `other`, the mean difference, and its 95 % interval (paired_bootstrap(), 2000 resamples).
///
/// errors  Error (usage): no metric in common; (data): different numbers of samples
MetricTable compare_samples(const std::string& name, const SampleValues& model, const SampleValues& other,
                            std::uint64_t seed);

}  // namespace lockstep
