#include "lockstep/train/comparison.hpp"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/report/statistics.hpp"

namespace lockstep {

SampleValues gather_samples(Communicator& comm, const SampleTask& model, Split split, std::int64_t chunks,
                            const std::vector<double>& mine) {
  const std::int64_t size = model.size(split), sums = model.sum_count();
  std::vector<std::int64_t> bytes;
  for (int r = 0; r < comm.size(); ++r) {
    const ShardRange of = shards_of(chunks, r, comm.size());
    bytes.push_back((size * of.end / chunks - size * of.begin / chunks) * sums *
                    static_cast<std::int64_t>(sizeof(double)));
  }
  std::vector<double> all(size * sums);
  comm.all_gather_known(std::as_bytes(std::span(mine)), bytes, std::as_writable_bytes(std::span(all)),
                        "values of samples");
  SampleValues result{model.compared_metrics(), {}};
  result.values.resize(result.names.size());
  for (auto row = all.begin(); row != all.end(); row += sums) {
    const std::vector<Metric> metrics = model.metrics(split, {row, row + sums});
    for (std::size_t m = 0; m < result.names.size(); ++m)
      result.values[m].push_back(find_metric(metrics, result.names[m])->value);
  }
  return result;
}

MetricTable compare_samples(const std::string& name, const SampleValues& model, const SampleValues& other,
                            std::uint64_t seed) {
  constexpr std::int64_t kResamples = 2000;
  MetricTable table{name, {}, {"model", "other", "difference", "low", "high"}, {}};
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  for (std::size_t m = 0; m < model.names.size(); ++m) {
    const auto found = std::find(other.names.begin(), other.names.end(), model.names[m]);
    if (found == other.names.end()) continue;
    const std::vector<double>&a = model.values[m], &b = other.values[found - other.names.begin()];
    require_data(a.size() == b.size(), name, ": the model has ", a.size(), " samples, the other ", b.size(),
                 "; compare networks of one data set");
    const Interval interval = paired_bootstrap(a, b, seed, kResamples, 0.95);
    table.rows.push_back(model.names[m]);
    table.values.insert(table.values.end(), {mean(a), mean(b), interval.value, interval.low, interval.high});
  }
  require_usage(!table.rows.empty(), name, ": no cutoff of eval.k is in both configurations; set eval.k");
  return table;
}

}  // namespace lockstep
