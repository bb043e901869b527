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

/// Makes values of the sums of all samples. `mine` (samples of this rank, sum_count()) are those of its share of
/// `chunks` equal chunks of the split. Collective; all ranks return the same.
SampleValues gather_samples(Communicator& comm, const SampleTask& model, Split split, std::int64_t chunks,
                            const std::vector<double>& mine);

/// What one network adds to another over the same samples. Row: a metric that both have; columns: its mean for both, the
/// mean of the difference, and the latter's 95 % interval (paired_bootstrap(), 2000 resamples).
///
/// errors  Error (usage): no metric in common; (data): other numbers of samples
MetricTable compare_samples(const std::string& name, const SampleValues& model, const SampleValues& other,
                            std::uint64_t seed);

}  // namespace lockstep
